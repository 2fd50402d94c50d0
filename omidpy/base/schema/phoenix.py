"""Which tables are Apache Phoenix's, and what follows from that?

Phoenix keeps its transactional tables in Omid's format, and detects conflicts by row, whatever
Omid's settings say.  A client that went by cell there would see none of Phoenix's conflicts, nor
Phoenix any of its own.  Its other tables, its own catalogue among them, know no transactions.

They are told by the coprocessors among a table's attributes, as HBase writes them:

    coprocessor$N = PATH|CLASS|PRIORITY|ARGUMENTS

A secondary index is a table of its own, which Phoenix's clients write together with the table that
it is of.  It names that one among its attributes, by the name that SQL has for it; one that the
views of a table share is told by its own name.  Nothing at the table says that it has an index.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, CONFLICT_LEVEL_ATTRIBUTE
from omidpy.model import TableSchema

CONFLICT_LEVEL: Final = "row"
"""What Phoenix detects conflicts by (`OmidTransactionProvider`)."""

EMPTY_COLUMN: Final = b"_0"
"""The qualifier of the cell that each row has in the family of the table's first column."""
EMPTY_VALUE: Final = b"x"
"""What is in it; rows of indexes may have another."""

_PREFIX: Final = "org.apache.phoenix."
_TRANSACTIONAL: Final = "org.apache.phoenix.coprocessor.OmidTransactionalProcessor"
DATA_TABLE_ATTRIBUTE: Final = "DATA_TABLE_NAME"
"""Table attribute of an index: the table, or the view, that it is of."""
_VIEW_INDEX_PREFIX: Final = "_IDX_"
_COPROCESSOR: Final = re.compile(r"coprocessor\$[0-9]+", re.IGNORECASE)

_CATALOGUE: Final = frozenset(
    f"SYSTEM{separator}{name}"
    for separator in ".:"
    for name in (
        "CATALOG",
        "CHILD_LINK",
        "FUNCTION",
        "LOG",
        "MUTEX",
        "SEQUENCE",
        "STATS",
        "TASK",
        "TRANSFORM",
    )
)
"""Phoenix's own tables; not each of them has a coprocessor."""


def is_coprocessor(attribute: str) -> bool:
    """Say whether the attribute of a table names a coprocessor."""
    return _COPROCESSOR.fullmatch(attribute) is not None


def is_transactional(schema: TableSchema) -> bool:
    """Say whether Phoenix writes a table in transactions of Omid's."""
    return _TRANSACTIONAL in _classes(schema)


def objection(schema: TableSchema) -> str | None:
    """Say why a table of Phoenix's is not to be adopted; None: it may, or is not Phoenix's."""
    if schema.name in _CATALOGUE:
        return f"table {schema.name} is one of Phoenix's own, which no transaction writes"
    classes = _classes(schema)
    if _TRANSACTIONAL in classes or not any(one.startswith(_PREFIX) for one in classes):
        return None
    return (
        f"table {schema.name} is Phoenix's, which writes it without transactions; make it with "
        "TRANSACTIONAL=true, TRANSACTION_PROVIDER='OMID' there first"
    )


def misadoption(schema: TableSchema) -> str | None:
    """Say how a table of Phoenix's was adopted wrongly, and the remedy; None: it was not."""
    if COMMIT_TABLE_ATTRIBUTE not in schema.attributes:
        return None
    if (why := objection(schema)) is not None:
        return (
            f"{why}; to give it back, in the HBase shell: alter '{schema.name}', METHOD => "
            f"'table_att_unset', NAME => '{COMMIT_TABLE_ATTRIBUTE}'"
        )
    level = schema.attributes.get(CONFLICT_LEVEL_ATTRIBUTE)
    if level == CONFLICT_LEVEL or not is_transactional(schema):
        return None
    told = "no level" if level is None else f"level {level}"
    return (
        f"table {schema.name} was adopted with {told}, but Phoenix detects conflicts by "
        f"{CONFLICT_LEVEL} there, and updates of both are lost; run `omidpy table adopt "
        f"{schema.name} --conflict-level {CONFLICT_LEVEL} --apply`"
    )


def schema_of(table: str) -> str:
    """Return the schema, as SQL calls it, of a table by its name in the store; empty: none."""
    namespace, colon, name = table.rpartition(":")
    if colon:
        return namespace
    return name.removeprefix(_VIEW_INDEX_PREFIX).rpartition(".")[0]


def may_have_indexes(schema: TableSchema) -> bool:
    """Say whether a table is one that Phoenix may keep indexes of, or an index itself."""
    return is_transactional(schema) or _indexed(schema) is not None


def indexes(schemas: Iterable[TableSchema]) -> dict[str, str]:
    """Return Phoenix's indexes among some tables: what each is of, as SQL names it, by its name."""
    return {one.name: of for one in schemas if (of := _indexed(one)) is not None}


def index_objection(table: str, known: Mapping[str, str]) -> str | None:
    """Say why nobody but Phoenix may write a table, and the remedy; None: no index forbids it.

    Args:
        table: Its name in the store.
        known: The `indexes` among all tables of the store.
    """
    if table in known:
        return (
            f"table {table} is Phoenix's index of {known[table]}, and what is written to one of "
            "the two alone makes queries by index wrong; write through Phoenix, or write both and "
            "say so: tx.table(NAME, phoenix_indexes='mine')"
        )
    # With namespaces the store says S:T where SQL, and so the attribute, says S.T.
    name = in_sql(table)
    found = sorted(index for index, of in known.items() if in_sql(of) == name)
    if not found:
        return None
    return (
        f"table {table} has indexes of Phoenix's ({', '.join(found)}), which nobody but Phoenix "
        "writes, so that queries by index would not see what is written here; write it through "
        "Phoenix, or drop the indexes there (DROP INDEX), or write their rows, too, and say so: "
        "tx.table(NAME, phoenix_indexes='mine').  Reading goes on"
    )


def _indexed(schema: TableSchema) -> str | None:
    """Return of what a table is an index; None: it is none of Phoenix's."""
    if not any(one.startswith(_PREFIX) for one in _classes(schema)):
        return None
    namespace, colon, name = schema.name.rpartition(":")
    if name.startswith(_VIEW_INDEX_PREFIX):
        return namespace + colon + name.removeprefix(_VIEW_INDEX_PREFIX)
    return schema.attributes.get(DATA_TABLE_ATTRIBUTE)


def in_sql(name: str) -> str:
    """Return how SQL calls a table, by its name in the store: S.T, with namespaces too."""
    return name.replace(":", ".")


def _classes(schema: TableSchema) -> frozenset[str]:
    """Return the names of the coprocessors' classes."""
    return frozenset(
        parts[1].strip()
        for name, value in schema.attributes.items()
        if is_coprocessor(name) and len(parts := value.split("|")) > 1
    )
