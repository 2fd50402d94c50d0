"""Compile the decision step, rows, messages and what HBase answers where a compiler is found.

pyproject.toml has the rest.  The modules run as they are.  Where Cython and a C compiler are at
hand, the same sources become extension modules; where one of them is missing the build says so and
goes on.  OMIDPY_NO_COMPILE=1 leaves them interpreted.
"""

from __future__ import annotations

import logging
import os

from setuptools import Extension, setup

logger = logging.getLogger(__name__)

MODULES = (
    "tso.core.engine",
    "omidpy.base.rows.simple",
    "omidpy.wire.protobuf",
    "omidpy.storage.hbase.native.cellblock",
    "omidpy.storage.hbase.native.wire.answers",
)


def extensions() -> list[Extension]:
    """Return the modules to compile, none if that is not wanted or not possible."""
    if os.environ.get("OMIDPY_NO_COMPILE", "") not in ("", "0"):
        logger.warning("OMIDPY_NO_COMPILE is set: all of omidpy stays interpreted")
        return []
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - absent where it was not installed
    except ImportError:
        logger.warning("Cython is not installed: all of omidpy stays interpreted")
        return []
    compiled: list[Extension] = cythonize(
        [Extension(module, [module.replace(".", "/") + ".py"]) for module in MODULES],
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


setup(ext_modules=extensions(), options={"build_ext": {"parallel": len(MODULES)}})
