"""Remembers the stems of words, which the search index asks for anew on each page."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from sphinx.search.en import SearchEnglish

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class RememberedEnglish(SearchEnglish):
    """Works out the stem of a word once."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.stem = functools.cache(super().stem)  # type: ignore[method-assign] # the same function


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_search_language(RememberedEnglish)
    return {"parallel_read_safe": True}
