"""Shows docstrings as they were meant: an indented block after a blank line is a literal one.

The source's docstrings are read in editors first and follow Markdown in this; reStructuredText
would take such a block for a quotation and reflow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

BEFORE_NAPOLEON = 400


def with_literal_blocks(lines: Sequence[str]) -> list[str]:
    """Put `::` before each indented block that a blank line sets off from a paragraph."""
    result: list[str] = []
    last_indent = 0
    is_literal = False
    for index, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip():
            is_set_off = index > 0 and not lines[index - 1].strip()
            is_list = bool(result) and _last_text(result).lstrip().startswith(("* ", "- "))
            if is_set_off and indent > last_indent and not is_literal and not is_list:
                result += [" " * last_indent + "::", ""]
                is_literal = True
            elif indent <= last_indent and is_literal and not _is_inside(result, indent):
                is_literal = False
            if not is_literal:
                last_indent = indent
        result.append(line)
    return result


def _last_text(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "")


def _is_inside(lines: Sequence[str], indent: int) -> bool:
    """Say whether a line of this indent still belongs to the literal block above it."""
    marker = next(line for line in reversed(lines) if line.strip() == "::")
    return indent > len(marker) - len(marker.lstrip())


def _process(  # the arguments are those of Sphinx's event
    _app: Sphinx, _what: str, _name: str, _object: object, _options: Any, lines: list[str]
) -> None:
    lines[:] = with_literal_blocks(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", _process, priority=BEFORE_NAPOLEON)
    return {"parallel_read_safe": True}
