"""Compile the oracle's decision step where a compiler is found; pyproject.toml has the rest.

`tso/core/engine.py` runs as it is.  Where Cython and a C compiler are at hand, the same source
becomes an extension module; where one of them is missing the build says so and goes on.
OMIDPY_NO_COMPILE=1 leaves it interpreted.
"""

from __future__ import annotations

import logging
import os

from setuptools import Extension, setup

logger = logging.getLogger(__name__)


def extensions() -> list[Extension]:
    """Return the modules to compile, none if that is not wanted or not possible."""
    if os.environ.get("OMIDPY_NO_COMPILE", "") not in ("", "0"):
        logger.warning("OMIDPY_NO_COMPILE is set: tso/core/engine.py stays interpreted")
        return []
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - absent where it was not installed
    except ImportError:
        logger.warning("Cython is not installed: tso/core/engine.py stays interpreted")
        return []
    compiled: list[Extension] = cythonize(
        [Extension("tso.core.engine", ["tso/core/engine.py"])],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "annotation_typing": False,
        },
        build_dir="build/cython",
    )
    for module in compiled:
        # Makes a failed compilation a warning.  cythonize() makes new objects and forgets it.
        module.optional = True
    return compiled


setup(ext_modules=extensions())
