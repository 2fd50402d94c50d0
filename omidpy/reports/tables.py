"""Which tables are ours, and what holds them back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omidpy.base.schema.table_settings import ATTRIBUTES
from omidpy.base.tables import CONFLICT_LEVEL_ATTRIBUTE
from omidpy.facts.tables.catalog import DEFAULT_CONFLICT_LEVEL
from omidpy.facts.tables.makers import Makers, ghost_text
from omidpy.storage.base import Store

if TYPE_CHECKING:
    from compactor.pruning.unvisited import Surveyed


@dataclass(frozen=True, slots=True)
class Standing:
    """What a compaction may do with a table, and why."""

    table: str
    standing: str
    """`owned`, `blocking`, `ignored`, `plain` or `system`."""
    families: Sequence[bytes]
    families_left_out: Sequence[bytes]
    """Of a table of ours: those that were not adopted."""
    conflict_level: str
    """`cell` or `row`; empty where the table is not ours."""
    reason: str
    attributes: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "standing": self.standing,
            "families": _texts(self.families),
            "families_left_out": _texts(self.families_left_out),
            "conflict_level": self.conflict_level,
            "reason": self.reason,
            "settings": table_settings(self.attributes),
        }


def list_standings(store: Store, surveyed: Surveyed | None = None) -> list[Standing]:
    """Return every table by name.

    Args:
        store: Where.
        surveyed: What was seen just now; None: it is looked for.

    Cost: as `compactor.tables.ownership.survey`, and of `holding_back`.
    """
    from compactor.pruning.unvisited import Surveyed  # noqa: PLC0415 - application
    from compactor.tables import ownership  # noqa: PLC0415 - application

    standings, holding = surveyed or Surveyed.of(store)
    reasons = {one.table: one.reason for one in holding}
    schemas = {schema.name: schema for schema in store.tables()}
    ghosts = Makers(store).ghosts(list(schemas.values()))
    reasons |= {one.name: one.reason for one in standings if one.reason}
    reasons = {one.name: one.note for one in standings if one.note} | reasons
    reasons |= {name: ghost_text(name, is_written=False) for name in sorted(ghosts)}
    found = []
    for one in standings:
        is_ours = one.standing is ownership.Standing.OWNED
        attributes = schemas[one.name].attributes if one.name in schemas else {}
        level = attributes.get(CONFLICT_LEVEL_ATTRIBUTE, DEFAULT_CONFLICT_LEVEL)
        found.append(
            Standing(
                one.name,
                one.standing.value,
                families=sorted(one.families),
                families_left_out=sorted(one.rest) if is_ours else (),
                conflict_level=level if is_ours else "",
                reason=reasons.get(one.name, ""),
                attributes=dict(one.settings),
            )
        )
    return found


def table_settings(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among a table's attributes, by name."""
    return {
        name: attributes[attribute]
        for name, attribute in ATTRIBUTES.items()
        if attribute in attributes
    }


def _texts(families: Iterable[bytes]) -> list[str]:
    return [family.decode(errors="replace") for family in families]
