"""Every command that a message, a page of the console or a document names is one that exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

from omidpy.cli import _with_verb
from omidpy.cli.app import tree

ROOT: Final = Path(__file__).parents[3]
COMMAND: Final = re.compile(r"(?:`|<code>)(omidpy [a-z][^`<]*)(?:`|</code>)")
FENCED: Final = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)


def texts_of(path: Path) -> Iterator[str]:
    """Yield what is said in a file: of a module its strings, what is put into them left out."""
    text = path.read_text("utf-8")
    if "`omidpy " not in text and "<code>omidpy " not in text:
        return
    if path.suffix != ".py":
        yield FENCED.sub("", text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = (one.value if isinstance(one, ast.Constant) else "_" for one in node.values)
            yield "".join(str(one) for one in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named() -> Iterator[tuple[Path, str]]:
    """Yield each command that is named, with where."""
    for package in ("omidpy", "tso", "compactor"):
        for pattern in ("*.py", "*.html", "*.service"):
            for path in sorted((ROOT / package).rglob(pattern)):
                for text in texts_of(path):
                    yield from ((path, " ".join(one.split())) for one in COMMAND.findall(text))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if path.parent.name not in {"changes", "decisions"}:
            for text in texts_of(path):
                yield from ((path, " ".join(one.split())) for one in COMMAND.findall(text))


@cache
def root() -> Any:
    """Return the command as its parser has it."""
    return typer.main.get_command(tree())


def complaint(command: str) -> str | None:
    """Say what there is not of a command; None if it is one."""
    found, words = root(), _with_verb(command.split()[1:])
    while words and getattr(found, "commands", None):
        verbs = words.pop(0).split("|")
        if missing := set(verbs) - set(found.commands):
            return f"there is no {', '.join(sorted(missing))!r}"
        found = found.commands[verbs[0]]
    known = {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
    known |= {"--help", "--version"}
    given = (word.partition("=")[0].rstrip(".,;)]") for word in words if word.startswith("--"))
    unknown = [one for one in given if one not in known]
    return f"there is no {', '.join(unknown)}" if unknown else None


def test_a_command_that_is_named_is_there() -> None:
    """Somebody types it at night as it stands."""
    found = list(named())
    assert len(found) > 100
    wrong = [
        f"{path.relative_to(ROOT)}: {command}: {told}"
        for path, command in found
        if (told := complaint(command)) is not None
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("omidpy comapct", "there is no 'comapct'"),
        ("omidpy tx inspect|mend 5", "there is no 'mend'"),
        ("omidpy tx inspect --everything 5", "there is no --everything"),
        ("omidpy fate list --state FAILED", None),
        ("omidpy fate delete ID", None),
        ("omidpy fsck --repair", None),
    ],
)
def test_what_is_not_there_is_noticed(command: str, told: str | None) -> None:
    """The test above passes for whatever cannot be read, too."""
    assert complaint(command) == told
