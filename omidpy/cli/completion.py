"""`omidpy completion`: what a shell evaluates so that it completes commands and options.

The scripts are Typer's own, as is what answers them.  Nothing is written into anybody's files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import typer

from omidpy.cli.common import say

PROGRAM: Final = "omidpy"
VARIABLE: Final = "_OMIDPY_COMPLETE"
"""Set by the script when the shell asks what comes next."""

_TYPED: Final = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")
"""Where the scripts say what was typed so far: those of zsh and fish, that of bash."""


class Shell(StrEnum):
    """A shell for which there is a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Whose script.")],
) -> None:
    """Print the script that completes commands and options in a shell.

    For bash, once: omidpy completion bash >> ~/.bashrc
    """
    from typer import completion as made  # noqa: PLC0415 - only for this verb

    say(made.get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value))  # type: ignore[attr-defined] # is public there, and not declared


def typed(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """Return the whole words behind `omidpy` that a shell wants completed; None if none asks."""
    if VARIABLE not in environment:
        return None
    from typer import completion as asked  # noqa: PLC0415 - only where a shell asks

    asked.completion_init()  # type: ignore[attr-defined] # is public there, and not declared
    text = next((environment[name] for name in _TYPED if name in environment), "")
    words = text.split()[1:]
    # The last one is still being typed unless a space stands behind it.
    return words if text[-1:].isspace() else words[:-1]
