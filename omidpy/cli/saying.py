"""What a command says, and what it says where it cannot do what it was asked for.

An answer may find nobody who takes it: a closed pipe, a full disk.  By then the command has done
what it has done, and says so: who is told of a failure alone does it again.
"""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from typing import Any

import typer

from omidpy.base.telemetry.events import failure_line
from omidpy.base.telemetry.streams import tell
from omidpy.base.words.printable import printable


class Unsaid(Exception):
    """What there was to say cannot be written to stdout, whatever was done."""


class _Answer:
    """What this process has written to stdout since the command began."""

    line_count = 0


def begin() -> None:
    """Note that a command begins, which has said nothing."""
    _Answer.line_count = 0


def has_answered() -> bool:
    """Say whether the command has written anything to stdout."""
    return _Answer.line_count > 0


def say(text: str, *, err: bool = False) -> None:
    """Print text, whoever wrote what is in it; `err` is for stderr.

    A word on stderr that nobody takes ends nothing.

    Raises:
        Unsaid: stdout cannot be written.
    """
    if err:
        tell(printable(text))
        return
    try:
        typer.echo(printable(text))
    except OSError as error:
        raise Unsaid(_of_unsaid(error)) from error
    _Answer.line_count += 1


def _of_unsaid(error: OSError) -> str:
    """Say what follows where stdout refuses an answer; nothing where its reader has seen enough."""
    if error.errno == errno.EPIPE and has_answered():
        return ""
    return (
        f"the answer cannot be written to stdout: {error.strerror or error}; what the command has "
        "done is done"
    )


def print_json(document: Any) -> None:
    """Print a document as one line of JSON."""
    say(json.dumps(document))


def print_failure(text: str, code: int) -> None:
    """Print why there is no document, for a program that reads one; nothing if there is one."""
    if not has_answered():
        with suppress(Unsaid):
            say(failure_line(text, code))
