"""What the search of the documentation site answers, without a browser.

`searchindex.js` holds the index, and `searchtools.js` the rules, which are Sphinx's own; they are
said again here, as far as they decide which page comes first.  Left out are excluded words, which
no newcomer types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

OBJECT_PRIORITY: Final = {0: 15, 1: 5, 2: -5}


class Hit(NamedTuple):
    """One line of the answer; the greatest comes first."""

    score: int
    title: str
    page: str
    """Of the site, without a suffix: `guide/backup`."""


class SiteSearch:
    """The index of one site."""

    def __init__(self, site: Path) -> None:
        """Read it."""
        from sphinx.search.en import SearchEnglish  # of the group `docs`, which may be missing

        text = (site / "searchindex.js").read_text("utf-8")
        self._index: Mapping[str, Any] = json.loads(
            text.removeprefix("Search.setIndex(").rstrip().removesuffix(")")
        )
        self._language = SearchEnglish({})

    def first(self, query: str) -> Hit | None:
        """Return what stands on top; None if nothing is found."""
        hits = list(self._hits(query.lower().strip()))
        # Of equal scores the first title of the alphabet stands on top.
        return min(hits, key=lambda hit: (-hit.score, hit.title.lower()), default=None)

    def _hits(self, query: str) -> Iterator[Hit]:
        titles, pages = self._index["titles"], self._index["docnames"]
        for title, places in self._index["alltitles"].items():
            if query in title.lower() and len(query) >= len(title) / 2:
                for page, _anchor in places:
                    own = titles[page] == title
                    score = _rounded(15 * len(query) / len(title)) + own
                    yield Hit(score, title if own else f"{titles[page]} > {title}", pages[page])
        for entry, places in self._index["indexentries"].items():
            if query in entry and len(query) >= len(entry) / 2:
                for page, _anchor, is_main in places:
                    # What is no main entry stands below everything else.
                    score = _rounded(100 * len(query) / len(entry)) if is_main else -1
                    yield Hit(score, titles[page], pages[page])
        yield from self._objects(query.split())
        yield from self._terms(query.split())

    def _objects(self, words: list[str]) -> Iterator[Hit]:
        for prefix, found in self._index["objects"].items():
            for page, kind, priority, _anchor, name in found:
                full = f"{prefix}.{name}".lower().removeprefix(".")
                last = full.rpartition(".")[2]
                title = self._index["titles"][page]
                where = f"{full} {self._index['objnames'][str(kind)][2]} {title}".lower()
                for word in words:
                    if word in full and all(other in where for other in words):
                        match = 11 if word in (full, last) else 6 if word in last else 0
                        score = match + OBJECT_PRIORITY.get(priority, 0)
                        yield Hit(score, full, self._index["docnames"][page])

    def _terms(self, words: list[str]) -> Iterator[Hit]:
        stems = {self._language.stem(word) for word in words if self._is_searched(word)}
        scores = [self._scores(stem) for stem in stems]
        known = [score for score in scores if score]
        if not known:
            return
        for page in set.intersection(*(set(score) for score in known)):
            best = max(score[page] for score in known)
            yield Hit(best, self._index["titles"][page], self._index["docnames"][page])

    def _is_searched(self, word: str) -> bool:
        return word not in self._language.stopwords and not word.isdigit()

    def _scores(self, stem: str) -> dict[int, int]:
        """Return the score of each page for one word; as there, the last kind of match counts."""
        found: dict[int, int] = {}
        for name, whole, part in (("terms", 5, 2), ("titleterms", 15, 7)):
            index = self._index[name]
            near = [term for term in index if len(stem) > 2 and stem in term]
            for term, score in (
                [(stem, whole)] if stem in index else [(term, part) for term in near]
            ):
                pages = index[term]
                found |= dict.fromkeys(pages if isinstance(pages, list) else [pages], score)
        return found


def _rounded(number: float) -> int:
    """Round as JavaScript does, a half upwards."""
    return int(number + 0.5)
