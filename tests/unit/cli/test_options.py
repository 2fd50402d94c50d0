"""The options of the `omidpy` command: what is offered, and what is understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer.main

from compactor.shell.job import parser
from omidpy.base.schema.table_settings import ATTRIBUTES, setting_attributes
from omidpy.cli.app import tree
from omidpy.cli.store.verify import duration_s
from omidpy.errors import UsageError

ASK_AN_ORACLE: Final = {
    "console",
    "doctor",
    "status",
    "verify",
    "compact run",
    "fate run",
    "table adopt",
    "table create",
    "table drop",
    "table truncate",
    "export create",
    "export run",
    "export once",
    "export status",
    "export lag",
    "export peek",
    "export replay",
    "export rebucket",
    "export pause",
    "export resume",
    "export ack",
    "export repair",
    "export drop",
    "export dlq list",
    "export dlq retry",
    "export dlq drop",
    "export-snapshot",
    "committers published list",
    "committers published sweep",
}


def verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every verb with its command."""
    if not hasattr(command, "commands"):
        yield " ".join(words), command
        return
    for name, child in command.commands.items():
        yield from verbs(child, (*words, name))


def test_an_oracle_is_offered_where_one_is_asked() -> None:
    """Elsewhere it is taken all the same: scripts give every verb the same words."""
    taken, offered = set(), set()
    for name, command in verbs(typer.main.get_command(tree())):
        for option in command.params:
            if "--tso" in option.opts:
                taken.add(name)
                if not option.hidden:
                    offered.add(name)
    assert offered == ASK_AN_ORACLE
    of_stores = {name for name, _ in verbs(typer.main.get_command(tree()))} - {"completion"}
    assert taken == of_stores


def test_a_compaction_takes_the_same_options_here_and_on_spark() -> None:
    """The same nightly line runs either way."""
    (command,) = [
        command for name, command in verbs(typer.main.get_command(tree())) if name == "compact run"
    ]
    here = {name for option in command.params for name in option.opts}
    on_spark = {name for action in parser()._actions for name in action.option_strings}
    assert here - {"--help"} == on_spark - {"-h", "--help"}


def test_what_a_table_may_ask_is_taken_where_it_is_made_and_told_where_it_is_set() -> None:
    """Each setting by its name; what the help writes as an example is one."""
    commands = dict(verbs(typer.main.get_command(tree())))
    made = {name for option in commands["table create"].params for name in option.opts}
    assert {f"--{name}" for name in ATTRIBUTES} <= made
    (told,) = [one.help for one in commands["table set"].params if one.name == "settings"]
    examples = re.findall(r"([a-z-]+)=(\w+(?::\w+)?)", told)
    assert list(dict(examples)) == list(ATTRIBUTES)
    for name, value in examples:
        assert setting_attributes("t", {name: value}) == {ATTRIBUTES[name]: value}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("2", 2), ("1.5", 1.5)],
)
def test_the_duration_of_a_verification(text: str, seconds: float) -> None:
    """As every other option of that kind, and in seconds without a unit."""
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "-1s", "1.2.3", "30 sec", "1e3", "²"])
def test_what_is_no_duration_is_named(text: str) -> None:
    """With examples of what to write."""
    with pytest.raises(
        UsageError, match=r"--duration=.* is no duration; write a number and a unit.*90s"
    ):
        duration_s(text)
