"""Accumulo's flags of `admin fate`, and those of its shell, as verbs.  Pure.

    omidpy fate --fail 0c143900c230c1df        omidpy fate fail 0c143900c230c1df
    omidpy fate --summary -j -s IN_PROGRESS    omidpy fate summary --json --state IN_PROGRESS
    omidpy fate                                omidpy fate list

Source: Apache Accumulo's `admin fate` (2.1 and main) and the shell's `fate` (2.1): the flags, and
the two messages about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from omidpy.errors import UsageError

VERBS: Final = frozenset(
    {
        "list",
        "print",
        "summary",
        "cancel",
        "fail",
        "delete",
        "repair",
        "dump",
        "status",
        "wait",
        "run",
    }
)

_ACTIONS: Final = {
    **dict.fromkeys(("-c", "--cancel", "-cancel"), "cancel"),
    **dict.fromkeys(("-f", "--fail", "-fail"), "fail"),
    **dict.fromkeys(("-d", "--delete", "-delete"), "delete"),
    **dict.fromkeys(("-p", "--print", "-print", "-l", "--list", "-list"), "list"),
    **dict.fromkeys(("--summary", "-summary"), "summary"),
    **dict.fromkeys(("--dump", "-dump"), "dump"),
    "--status": "status",
    "--wait": "wait",
}
_CHANGING: Final = frozenset({"cancel", "fail", "delete"})
_RENAMED: Final = {
    "-j": "--json",
    "-s": "--state",
    "-t": "--type",
    "-i": "--info",
    "--status-type": "--state",
}
_WITH_VALUE: Final = frozenset(
    {"--store", "--tso", "--timeout", "--for", "--module", "--env", "--pool", "--lease", "--poll"}
)
_WITH_VALUES: Final = frozenset({"--state", "--type"})


def as_verb(words: Sequence[str]) -> list[str]:
    """Return the words behind `omidpy fate` with a verb first.

    Raises:
        UsageError: two of cancel, fail and delete, or one without an id.
    """
    if not words:
        return ["list"]
    if words[0] in VERBS:
        return [words[0], *_renamed(words[1:])]
    if words[0] in ("--help", "-h"):
        return ["--help"]
    actions: list[str] = []
    rest: list[str] = []
    for word in words:
        action = _ACTIONS.get(word)
        if action is None:
            rest.append(word)
        elif action not in actions:
            actions.append(action)
    changing = [action for action in actions if action in _CHANGING]
    if len(changing) > 1:
        raise UsageError("Can only perform one of the following at a time: cancel, fail or delete.")
    others = [action for action in actions if action not in _CHANGING]
    verb = (changing or sorted(others, key=lambda one: one == "list") or ["list"])[0]
    rest = _renamed(rest)
    if changing and not _ids(rest):
        raise UsageError("At least one txId required when using cancel, fail or delete")
    return [verb, *rest]


def _renamed(words: Sequence[str]) -> list[str]:
    """Return options by our names; several values behind one flag get a flag each.

    The first word behind it is one in any case: kinds of operations have whatever names they like.
    """
    found: list[str] = []
    values_of = ""
    is_first = False
    for word in (*words, "--"):
        name = _RENAMED.get(word, word)
        if is_first and word[:1] == "-":
            found.append(values_of)  # without a value, which the parser then misses
            is_first = False
        if name in _WITH_VALUES:
            values_of, is_first = name, True
        elif is_first or (values_of and (word.isupper() or "," in word)):
            found += [values_of, word]
            is_first = False
        else:
            values_of = ""
            found.append(name)
    return found[:-1]


def _ids(words: Sequence[str]) -> list[str]:
    """Return the words that are neither options nor values of options."""
    found = []
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word in _WITH_VALUE or word in _WITH_VALUES:
            skips = True
        elif not word.startswith("-"):
            found.append(word)
    return found
