"""Flags of Accumulo's command, as our verbs."""

from __future__ import annotations

import pytest

from omidpy.cli.operations.flags import as_verb
from omidpy.errors import UsageError

ID = "0c143900c230c1df"
OTHER = "55f59a2ae838e19e"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("", "list"),
        ("--print", "list"),
        ("-print", "list"),
        ("-p", "list"),
        ("--list -i", "list --info"),
        (f"{ID}", f"list {ID}"),
        (f"-l {ID} {OTHER}", f"list {ID} {OTHER}"),
        ("-s NEW SUBMITTED", "list --state NEW --state SUBMITTED"),
        (f"-s NEW,FAILED {ID}", f"list --state NEW,FAILED {ID}"),
        ("--summary", "summary"),
        ("--summary -j -s IN_PROGRESS", "summary --json --state IN_PROGRESS"),
        ("-summary -list", "summary"),
        (f"--cancel {ID}", f"cancel {ID}"),
        (f"{ID} -cancel", f"cancel {ID}"),
        (f"-f {ID} {OTHER} --store sqlite:///x.db", f"fail {ID} {OTHER} --store sqlite:///x.db"),
        (f"-d {ID} -d", f"delete {ID}"),
        (f"-dump {ID}", f"dump {ID}"),
        (f"--status {ID}", f"status {ID}"),
        (f"--wait {ID}", f"wait {ID}"),
        (f"fail {ID} -j", f"fail {ID} --json"),
        ("print -t PRUNE", "print --type PRUNE"),
        ("list -s", "list --state"),
        ("list -s -j", "list --state --json"),
        (f"-t pay -s in_progress {ID}", f"list --type pay --state in_progress {ID}"),
        ("run --module shop --pool general=2", "run --module shop --pool general=2"),
        ("--help", "--help"),
        ("-h", "--help"),
        ("summary --help", "summary --help"),
    ],
)
def test_a_flag_is_the_verb_that_it_names(given: str, meant: str) -> None:
    """Scripts for Accumulo need their flags only."""
    assert as_verb(given.split()) == meant.split()


@pytest.mark.parametrize("given", [f"-c -f {ID}", f"--fail --delete {ID}", f"-d {ID} -cancel"])
def test_two_that_change_something_are_refused(given: str) -> None:
    """In Accumulo's words."""
    with pytest.raises(UsageError, match="one of the following at a time: cancel, fail or delete"):
        as_verb(given.split())


@pytest.mark.parametrize("given", ["-c", "--fail -j", "-d --store sqlite:///x.db", "-f -s NEW"])
def test_a_change_needs_an_id(given: str) -> None:
    """An address is none, nor a state."""
    with pytest.raises(UsageError, match="At least one txId required when using cancel, fail"):
        as_verb(given.split())
