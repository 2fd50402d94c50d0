"""What is in the list of pages at the side of each page, which was half of the work of a build.

The records of decisions are not: they are more than all other pages, and found on the page that
lists them.  Next and previous still go through them, and the search finds them.

The rest of the list is worked out of titles.  The theme asks for nothing else, and gets them from
Sphinx, which copies all sections of all pages for each page, and throws them away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from docutils.nodes import bullet_list
from sphinx.addnodes import toctree

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

RECORDS: Final = "decisions/README"
"""The page that lists them."""


class Aside:
    """The list of one build."""

    def __init__(self) -> None:
        """Nothing is known before the pages are read."""
        self._titles: dict[str, bullet_list] = {}

    def prepare(self, _app: Sphinx, env: BuildEnvironment) -> None:
        """Keep what the list is made of, once all pages were found to be listed somewhere."""
        self._titles = {page: _titles(contents) for page, contents in env.tocs.items()}
        for listed in list(self._titles[RECORDS].findall(toctree)):
            listed.parent.remove(listed)

    def offer(
        self, app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object
    ) -> None:
        """Let the theme have it."""
        work_out = context["toctree"]

        def listed(*, titles_only: bool = False, **options: object) -> str:
            whole = app.env.tocs
            if titles_only:
                app.env.tocs = self._titles
            try:
                return str(work_out(titles_only=titles_only, **options))
            finally:
                app.env.tocs = whole

        context["toctree"] = listed


def _titles(contents: bullet_list) -> bullet_list:
    """Return the title of a page, and the lists of pages below it."""
    copied = contents.deepcopy()
    for item in copied.children:
        below = list(item.findall(toctree))
        del item[1:]
        if below:
            item.append(bullet_list("", *below))
    return copied


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    aside = Aside()
    app.connect("env-check-consistency", aside.prepare)
    app.connect("html-page-context", aside.offer, priority=100)  # before the theme asks for it
    return {"parallel_read_safe": True}
