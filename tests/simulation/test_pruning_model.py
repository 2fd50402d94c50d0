"""The proof of the pruner, checked by visiting every state of a small model of it.

The table of mutations says which mistakes break a promise under which oracle.  Where one is
harmless the barrier of the low watermark makes it so: in the regular setting nothing can still be
under way when a pass begins.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.machines.pruning_model import Finding, Mutation, Setting, search

REGULAR, ZOMBIE, LOW_LATENCY = Setting.REGULAR, Setting.ZOMBIE, Setting.LOW_LATENCY
EVERYWHERE: Final = frozenset(Setting)
UNDER_WAY: Final = frozenset({ZOMBIE, LOW_LATENCY})

BREAKS: Final = {
    Mutation.WATERMARK_AFTER_SCAN: EVERYWHERE,
    Mutation.NO_INVALIDATION: UNDER_WAY,
    Mutation.INVALIDATIONS_WITHOUT_GRACE: UNDER_WAY,
    Mutation.SHADOW_BEFORE_ENTRY: EVERYWHERE,
    Mutation.DROP_BEFORE_INVALIDATION: UNDER_WAY,
    Mutation.COMMITS_WITHOUT_GRACE: frozenset({REGULAR, ZOMBIE}),
    Mutation.NO_SECOND_LOOK: UNDER_WAY,
    Mutation.INVALIDATION_IS_FINAL: UNDER_WAY,
    Mutation.ONE_RANGE_SUFFICES: EVERYWHERE,
    Mutation.WATERMARK_BEFORE_DURABLE: frozenset({REGULAR}),
    Mutation.WATERMARK_BEFORE_DURABLE | Mutation.NO_INVALIDATION: EVERYWHERE,
}
"""Mutation -> the settings in which it breaks a promise, where every range is ours."""

FOREIGN_BREAKS: Final = {
    Mutation.NOBODY_ASKED: EVERYWHERE,
    Mutation.ASKED_BEFORE_WATERMARK: EVERYWHERE,
    Mutation.COMMITS_WITHOUT_GRACE: frozenset(),
}
"""The same where one cell lies in a table that no pass goes over."""


def told(finding: Finding) -> str:
    """Return a counterexample as text."""
    return f"{finding.broken} after {finding.state_count} states:\n" + "\n".join(
        map(str, finding.path)
    )


@pytest.mark.parametrize("is_foreign", [False, True], ids=["ours", "foreign"])
@pytest.mark.parametrize("setting", Setting, ids=lambda setting: setting.value)
def test_protocol_keeps_every_promise_in_every_state(setting: Setting, *, is_foreign: bool) -> None:
    """Whatever dies, is lost or comes late."""
    finding = search(setting, is_foreign=is_foreign)
    assert not finding.broken, told(finding)
    fewest = 300 if is_foreign else 1000
    assert finding.state_count > fewest, "the model has become too small to mean anything"


@pytest.mark.parametrize(
    ("mutation", "setting"),
    [(mutation, setting) for mutation in BREAKS for setting in Setting],
    ids=lambda value: str(value.value) if isinstance(value, Setting) else str(value.name),
)
def test_each_mistake_breaks_a_promise_where_it_matters(
    mutation: Mutation, setting: Setting
) -> None:
    """A guard whose removal no search notices would be superstition, or the search blind."""
    finding = search(setting, mutation)
    assert bool(finding.broken) == (setting in BREAKS[mutation]), told(finding)


@pytest.mark.parametrize(
    ("mutation", "setting"),
    [(mutation, setting) for mutation in FOREIGN_BREAKS for setting in Setting],
    ids=lambda value: str(value.value) if isinstance(value, Setting) else str(value.name),
)
def test_each_mistake_breaks_a_promise_where_a_table_is_not_ours(
    mutation: Mutation, setting: Setting
) -> None:
    """Asked before L was read, a table may be written the moment after.

    A grace does not matter there: while a cell lies in such a table, the entry stays anyway.
    """
    finding = search(setting, mutation, is_foreign=True)
    assert bool(finding.broken) == (setting in FOREIGN_BREAKS[mutation]), told(finding)


def test_every_mistake_is_in_the_table() -> None:
    """A new mutation without a verdict would prove nothing."""
    tables = (*BREAKS, *FOREIGN_BREAKS)
    assert {mutation for mutation in tables if len(mutation) == 1} == set(Mutation)
