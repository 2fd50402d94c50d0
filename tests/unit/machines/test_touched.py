"""`make quick` runs the tests that a change touches, and no others."""

from __future__ import annotations

import pytest

from tests.machines.touched import module_of, touched

TESTS = (
    ("tests/unit/tx/test_retry.py", "from omidpy.tx.retry import Attempts\n"),
    ("tests/unit/tx/test_tokens.py", "from omidpy.tx.parts import tokens\n"),
    ("tests/unit/test_manager.py", "import omidpy.manager as managers\n"),
    ("tests/contract/test_memory.py", "from tests.machines.clients import Client\n"),
)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["omidpy/tx/retry.py"], ["tests/unit/tx/test_retry.py"]),
        (["omidpy/tx/parts/tokens.py"], ["tests/unit/tx/test_tokens.py"]),
        (["omidpy/manager.py"], ["tests/unit/test_manager.py"]),
        (["tests/machines/clients.py"], ["tests/contract/test_memory.py"]),
        (["tests/unit/tx/test_retry.py", "README.md"], ["tests/unit/tx/test_retry.py"]),
        (["omidpy/tx/retrying.py", "docs/index.md"], []),
    ],
)
def test_a_test_is_touched_by_itself_and_by_what_it_imports(
    paths: list[str], expected: list[str]
) -> None:
    """However the import is written; a name that only begins alike is another module."""
    assert touched(paths, TESTS) == expected


def test_the_nearest_come_first() -> None:
    """A run that ends in time has then looked where a mistake is seen soonest."""
    source = "import omidpy.base.cells\n"
    tests = [
        ("tests/contract/test_fsck.py", source),
        ("tests/property/test_cells_of_models.py", source),
        ("tests/unit/base/test_row_ids.py", source),
        ("tests/unit/facts/test_facts.py", ""),
        ("tests/unit/storage/test_cells.py", source),
    ]
    assert touched(["omidpy/base/cells.py", "tests/unit/facts/test_facts.py"], tests) == [
        "tests/unit/facts/test_facts.py",
        "tests/unit/storage/test_cells.py",
        "tests/unit/base/test_row_ids.py",
        "tests/contract/test_fsck.py",
        "tests/property/test_cells_of_models.py",
    ]


def test_a_package_is_named_by_its_folder() -> None:
    """Its `__init__.py` is what runs when it is imported."""
    assert module_of("omidpy/fate/__init__.py") == "omidpy.fate"
