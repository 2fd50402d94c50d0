"""The `omidpy` command: one module a noun, each imported when its verb runs.

    omidpy  init | doctor | status | table list|adopt|ignore | tx inspect|outcome | watermarks |
            commit-table stats | verify | fsck [check]|show | backup | restore |
            compact [run]|history|show|plot |
            fate [list]|summary|status|wait|cancel|fail|delete|dump|run |
            export create|run|once|status|lag|peek|dlq|replay|drop |
             committers uploads|plan|published|verify | export-snapshot | console |
             completion bash|zsh|fish

Every verb takes `--store` and `--tso` (or OMIDPY_STORE and OMIDPY_TSO) and, but for `console`,
`--json`; one that asks no oracle does not offer `--tso`.  Exit codes: 0 done, 1 failed, 2 usage or
configuration.  An error is one line on stderr, and with `--json` a document on stdout, unless there
is one.  A verb may have more exit codes, which its module names.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Final, NoReturn

from omidpy.base.telemetry.streams import fill_closed_streams
from omidpy.cli.ending import EXIT_INTERRUPTED, told_as_interrupts
from omidpy.errors import ConfigError, OmidError, UsageError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

_TOLD_ON_STDERR: Final = {
    EXIT_USAGE: "the words of the command are wrong; stderr says how",
    EXIT_INTERRUPTED: "interrupted; what was done by then is done",
}
"""By exit code: what a program is told where a person was told more."""

_DEFAULT_VERBS: Final = {
    "compact": ("run", frozenset({"run", "history", "show", "plot", "--help"})),
    "fsck": ("check", frozenset({"check", "show", "--help"})),
}
"""By noun: the verb that one may leave out, and what it is not put before."""
_OF_PUBLISHED: Final = frozenset({"show", "list", "sweep", "--help"})
"""The verbs of `committers published`, whose `show` one may leave out."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    from omidpy.cli.saying import begin  # noqa: PLC0415 - `import omidpy.cli` stays light

    fill_closed_streams()
    # Each try of kazoo's would be a line before the one that says what failed.
    logging.getLogger("kazoo").addHandler(logging.NullHandler())
    if isinstance(sys.stdout, TextIOWrapper):
        # What a terminal has no letters for is shown as an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    begin()
    words = list(sys.argv[1:] if arguments is None else arguments)
    with told_as_interrupts():
        try:
            _run(words)
        except KeyboardInterrupt:  # before a verb was called, or behind it
            _fail(words, "", EXIT_INTERRUPTED)


def _run(words: list[str]) -> None:
    from omidpy.cli.app import NOUNS, tree  # noqa: PLC0415 - see `main`
    from omidpy.cli.completion import typed  # noqa: PLC0415 - see `main`
    from omidpy.cli.saying import Unsaid  # noqa: PLC0415 - see `main`

    try:
        begun = words if (asked := typed()) is None else asked
        noun = begun[0] if begun and begun[0] in (*NOUNS, "--version") else None
        words = _with_verb(words)
        tree(noun)(args=words, prog_name="omidpy")
    except OmidError as error:
        is_usage = isinstance(error, UsageError | ConfigError)
        _fail(words, str(error), EXIT_USAGE if is_usage else EXIT_FAILED)
    except UnicodeEncodeError as error:
        # A word in other bytes than UTF-8, where it would be a name or a key in the store.
        text = f"{error.object!r:.80} cannot be written as {error.encoding}: {error.reason}"
        _fail(words, text, EXIT_USAGE)
    except Unsaid as error:
        _fail(words, str(error), EXIT_FAILED)
    except OSError as error:
        # A file or folder that this user may not touch, or a full disk.
        _fail(words, str(error), EXIT_FAILED)
    except SystemExit as ended:
        if ended.code in _TOLD_ON_STDERR:
            _fail(words, "", ended.code)
        raise


def _fail(words: Sequence[str], text: str, code: int) -> NoReturn:
    """End a command that has failed, with a line for a person, and a document for a program."""
    from omidpy.cli.saying import print_failure, say  # noqa: PLC0415 - see `main`

    if text:
        # Of a server, or a library, it may have more lines.
        say(f"error: {' '.join(filter(None, map(str.strip, text.splitlines())))}", err=True)
    if "--json" in words or (words[:1] == ["fate"] and not {"-j", "dump"}.isdisjoint(words)):
        print_failure(text or _TOLD_ON_STDERR.get(code, ""), code)
    raise SystemExit(code) from None


def _with_verb(words: list[str]) -> list[str]:
    """Return the words with the verb that some nouns let one leave out, or write as a flag."""
    if words and words[0] in _DEFAULT_VERBS:
        verb, known = _DEFAULT_VERBS[words[0]]
        if len(words) == 1 or words[1] not in known:
            return [words[0], verb, *words[1:]]
    if words[:2] == ["committers", "published"] and words[2:3] and words[2] not in _OF_PUBLISHED:
        return [*words[:2], "show", *words[2:]]
    if words[:1] == ["fate"]:
        from omidpy.cli.operations.flags import as_verb  # noqa: PLC0415 - only for this noun

        return ["fate", *as_verb(words[1:])]
    return words
