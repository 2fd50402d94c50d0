"""Puts drawings into the page itself: their text can be selected and follows its light and dark.

A page refers to a drawing as to any picture, `![What it shows](../images/parts.svg)`, so that
whoever reads the Markdown where the code is sees it as well.  The file carries its own colours.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class InlineDrawings(SphinxTransform):
    """Replaces each picture that is an SVG file by what the file holds."""

    default_priority: Final = 200  # before Sphinx collects pictures, which it would copy

    def apply(self, **_options: Any) -> None:
        """Replace them in one page."""
        for image in list(self.document.findall(nodes.image)):
            if not image["uri"].endswith(".svg"):
                continue
            name, path = self.env.relfn2path(image["uri"])
            self.env.note_dependency(name)
            drawing = Path(path).read_text("utf-8")
            image.replace_self(nodes.raw("", drawing, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_transform(InlineDrawings)
    return {"parallel_read_safe": True}
