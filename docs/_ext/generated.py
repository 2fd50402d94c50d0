"""Two directives for pages of the reference.

{module-doc} MODULE    the docstring of a module, as Markdown
{generated} NAME       what the function NAME of `reference.py` returns, as Markdown
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

import reference
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class ModuleDoc(SphinxDirective):
    """Shows a module's docstring; its first line, which is the page's own matter, is left out."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        text = inspect.getdoc(importlib.import_module(self.arguments[0])) or ""
        return self.parse_text_to_nodes(text.partition("\n")[2].strip("\n"))


class Generated(SphinxDirective):
    """Shows what is written nowhere but in the code."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        text = getattr(reference, self.arguments[0])()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("module-doc", ModuleDoc)
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True}
