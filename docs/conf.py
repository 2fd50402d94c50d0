"""How the documentation site is built: `make docs`, which needs the dependency group `docs`.

Pages are Markdown; the reference takes its text from docstrings, parsers and settings while it is
built (`_ext/`).  Nothing is fetched, neither while building nor by a reader's browser.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from omidpy import __version__ as release  # noqa: E402 - from this checkout, by the line above

project = "omidpy"
copyright = "The omidpy authors"  # noqa: A001 - the name that Sphinx reads
author = "The omidpy authors"
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "aside",
    "docstrings",
    "drawings",
    "generated",
    "stems",
]
# The list of explanations is for those who read the pages where the code is.
exclude_patterns = ["changes", "_ext", "_static", "explanation/README.md"]

html_theme = "furo"
html_title = f"omidpy {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False

# Docstrings write names in single backticks, as Markdown does.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
napoleon_custom_sections = ["Cost", "Source"]
napoleon_numpy_docstring = False

# Headings of all depths can be linked to.
myst_heading_anchors = 4
