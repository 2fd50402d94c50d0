"""Which tables of Apache Phoenix does a compaction adopt by itself?

Phoenix makes tables while it runs, one for each index, and each holds commits until it is ours.  So
an operator may leave a rule, and each run adopts what Phoenix has made by then, before it lists the
tables.  Nothing is forgotten sooner for that: a table that becomes ours has no claims, and those
that a run makes count once they are as old as the grace.

What is undecided is no reason to wait, as it is where a person adopts a table: such cells are of
transactions that run, or can no longer commit, or have an entry.  But where single tables are
restored, it may be a copy, with cells whose shadow cells are gone and whose entries are, too: by
the client's hand, or forgotten when the table was ours before.  Nobody is asked, so that what is
there without a shadow cell is in doubt, and stays until it has a proof or an operator accepts it.
Plain data is a reason: cells that were
written without a transaction become part of the table's past, and a program that still writes so
has to be stopped before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from compactor.tables.adoption import adopt, plan_adoption
from compactor.tables.ownership import read_ignored, said_of
from omidpy.base.schema.phoenix import is_transactional, schema_of
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE
from omidpy.errors import CorruptCell, OmidError
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.facts.tables.sightings import NO_DOUBT
from omidpy.model import TableSchema
from omidpy.storage.base import Store

PHOENIX_FACT: Final = b"phoenix"


class Rule(msgspec.Struct, frozen=True):
    """What an operator said of tables that Phoenix makes."""

    is_followed: bool
    """Whether they are adopted."""
    schemas: tuple[str, ...] = ()
    """Those of these schemas alone, sorted; empty: all of them."""

    def __str__(self) -> str:
        """Say which tables it is about."""
        if not self.schemas:
            return "every transactional table that Phoenix makes"
        return f"every transactional table that Phoenix makes in {', '.join(self.schemas)}"


NO_RULE: Final = Rule(is_followed=False)


def read_rule(control: ControlTable) -> Rule:
    """Return the rule.

    Raises:
        CorruptCell: what is recorded is none.

    Cost: 1 get.
    """
    found = control.read(PHOENIX_FACT)
    return NO_RULE if found is None else decode_document(found, Rule, row=PHOENIX_FACT)


def set_rule(control: ControlTable, rule: Rule) -> None:
    """Record a rule in place of the one before."""
    control.write(PHOENIX_FACT, encode_document(rule))


def followed(store: Store, rule: Rule) -> list[TableSchema]:
    """Return the tables that a rule is about, and that are not ours yet, by name.

    What an operator has said of a table to ignore goes before the rule.

    Cost: 1 list of all tables, 1 scan.
    """
    if not rule.is_followed:
        return []
    words = read_ignored(ControlTable(store))
    return [
        schema
        for schema in store.tables()
        if is_transactional(schema)
        and COMMIT_TABLE_ATTRIBUTE not in schema.attributes
        and (not rule.schemas or schema_of(schema.name) in rule.schemas)
        and not said_of(schema, words).is_ignored
    ]


def adopt_followed(
    store: Store,
    commit_table: str,
    *,
    note: Callable[[str], None],
    newest: Callable[[], int],
    is_dry_run: bool,
) -> None:
    """Adopt what the rule is about, and say so; one table that cannot be holds up no other.

    Args:
        store: Where they are.
        commit_table: Whose transactions they shall have.
        note: Is told of each.
        newest: Returns what no timestamp that was issued so far is above; called where a table has
            cells without a shadow cell, after they were read.
        is_dry_run: Change nothing.

    Cost: 1 get; where there is a rule, that of `followed`, and reads each such table whole.
    """
    try:
        rule = read_rule(ControlTable(store))
    except CorruptCell as error:
        note(
            f"no table of Phoenix's was adopted by itself: {error}; "
            "`omidpy table adopt --phoenix --apply` sets the rule again"
        )
        return
    for schema in followed(store, rule):
        name = schema.name
        try:
            plan = plan_adoption(store, name, commit_table, names_it=not is_dry_run)
            if plan.plain:
                note(
                    f"table {name} of Phoenix's was not adopted by itself: it has "
                    f"{plan.plain_cells()} cells that were written without a transaction; stop who "
                    f"does, and run `omidpy table adopt {name} --apply`"
                )
                continue
            is_doubtful = plan.state is not None and plan.has_unhealed_cells()
            if not is_dry_run:
                doubtful = newest() if is_doubtful else NO_DOUBT
                adopt(store, plan, commit_table, doubtful=doubtful)
        except OmidError as error:
            note(f"table {name} of Phoenix's was not adopted by itself: {error}")
            continue
        done = "would be" if is_dry_run else "was"
        doubt = ""
        if is_doubtful and plan.undecided_cells():
            doubt = (
                f"; {plan.undecided_cells()} cells have neither a shadow cell nor a commit entry, "
                "and stay until they are decided, since the table may have been restored or cloned "
                f"from a snapshot, or until `omidpy table accept {name} --apply`"
            )
        note(f"table {name} {done} adopted by row, as is {rule}{doubt}")
