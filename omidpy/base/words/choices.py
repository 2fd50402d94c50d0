"""What may be asked, said once: its name, form, default and help, for every parser that asks it.

Pure.  Lacks the parser of `omidpy` (`cli/options.py`), and what the words mean.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Choice(NamedTuple):
    """One thing that may be asked."""

    name: str
    """As on a command line, without its dashes."""
    help: str
    metavar: str | None = None
    """None: a flag."""
    default: str | int | None = None
    """None: what its absence means is said in `help`."""
    kind: type = str
    """What the words become before anybody looks at what they mean."""
    is_many: bool = False
    """It may be given again, and the words come as a list."""
    envvar: str | None = None
    """Where it is looked for if it is not given."""

    @property
    def key(self) -> str:
        """Its name as that of an argument."""
        return self.name.replace("-", "_")

    @property
    def absent(self) -> Any:
        """What it is unless it is asked for."""
        if self.metavar is None:
            return False
        return [] if self.is_many else self.default


def words_of(choices: Iterable[Choice], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words of every choice by its key: what was given, and what its absence is.

    Raises:
        TypeError: something was given that may not be asked.
    """
    words = {one.key: one.absent for one in choices}
    if unknown := given.keys() - words.keys():
        raise TypeError(f"nobody may ask {sorted(unknown)}; there are {sorted(words)}")
    return {**words, **given}


def add_choices(parser: ArgumentParser, choices: Iterable[Choice]) -> None:
    """Let a parser of the standard library ask them."""
    for one in choices:
        if one.metavar is None:
            parser.add_argument(f"--{one.name}", action="store_true", help=one.help)
            continue
        found = None if one.envvar is None else os.environ.get(one.envvar)
        parser.add_argument(
            f"--{one.name}",
            metavar=one.metavar,
            type=one.kind,
            action="append" if one.is_many else "store",
            default=found or one.absent,
            help=one.help if one.default is None else f"{one.help} Default: {one.default}.",
        )
