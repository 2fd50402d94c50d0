"""What `omidpy doctor` finds: each thing that it looked at, as values.

A finding knows its facts, how serious they are, and the sentence that tells a person.  Programs
read the facts and never the sentence.  Looks at nothing itself.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from omidpy.base.installation import engine_text
from omidpy.facts.tables.makers import ghost_text
from omidpy.storage.address import init_command, server_command
from omidpy.storage.hbase.addresses.gateways import parse_address

LARGEST_SKEW_S: Final = 5.0
"""A snapshot may be asked for at a time at most so far above the oracle's."""

TAKEOVER_LEAD_S: Final = 10.0
"""How far ahead of its clock an oracle may begin that took over from Omid's.

Omid reserves its timestamps so far ahead, and its successor begins above the last one reserved.
"""


class Health(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(Protocol):
    """One thing that was looked at; a dataclass, whose fields are the facts."""

    @property
    def name(self) -> str:
        """What was looked at."""
        ...

    @property
    def health(self) -> Health:
        """How serious it is."""
        ...

    @property
    def detail(self) -> str:
        """The sentence for a person, with the remedy where there is one."""
        ...


def document(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON values."""
    facts: Any = finding  # which is a dataclass, as its protocol cannot say
    return {
        "name": finding.name,
        "verdict": str(finding.health),
        "detail": finding.detail,
        **dataclasses.asdict(facts),
    }


@dataclass(frozen=True, slots=True)
class InstallationFinding:
    """What is installed here."""

    omidpy: str
    """Its version."""
    python: str
    engine: str
    """`compiled` or `interpreted`."""

    @property
    def name(self) -> str:
        """Speak of what is installed."""
        return "installation"

    @property
    def health(self) -> Health:
        """Warn where every transaction waits longer for the oracle than it need."""
        return Health.OK if self.engine == engine_text(is_compiled=True) else Health.WARNING

    @property
    def detail(self) -> str:
        """Name the versions, and how the engine would be compiled."""
        found = f"omidpy {self.omidpy}, Python {self.python}, the oracle's engine {self.engine}"
        if self.health is Health.OK:
            return found
        return (
            f"{found}: an oracle here decides the same, and takes many times as long for it; "
            "install a wheel, or install again where a C compiler and the headers of Python are"
        )


@dataclass(frozen=True, slots=True)
class GatewayFinding:
    """What answers at a gateway."""

    gateway: str
    """`host:port`."""
    url: str | None
    """The address to use; None if no form was understood."""
    problem: str | None = None
    """Why none was understood, or what is wrong with what answers."""
    is_as_addressed: bool | None = None
    """Whether it speaks as the store's address says; None if there is none to compare with."""

    @property
    def name(self) -> str:
        """What was looked at."""
        return f"gateway {self.gateway}"

    @property
    def health(self) -> Health:
        """A failure, unless a gateway answers as expected; a warning if it can do little."""
        if self.problem is not None or self.is_as_addressed is False:
            return Health.FAILED
        return Health.WARNING if self._limits else Health.OK

    @property
    def _limits(self) -> str:
        """What cannot be done through the gateway, as the end of a sentence."""
        if self.url is None or parse_address(self.url).api != "thrift1":
            return ""
        return (
            ", for clients alone: a Thrift1 gateway shows one version of a cell and deletes all "
            "below it, so that `init`, `tso-server`, `create_table`, `table adopt` and `compact` "
            "need a Thrift2 gateway beside it (`hbase thrift2 start`)"
        )

    @property
    def detail(self) -> str:
        """What to use, or what is wrong."""
        if self.problem is not None or self.url is None:
            return self.problem or ""
        if self.is_as_addressed:
            return f"answers as the address says{self._limits}"
        if self.is_as_addressed is None:
            return f"use {shlex.quote(self.url)}{self._limits}"
        found = parse_address(self.url)
        return (
            f"speaks {found.api}, {found.transport} transport, {found.protocol} protocol; "
            f"use {shlex.quote(self.url)}{self._limits}"
        )


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """Whether a server of HBase, which clients call themselves, can be reached."""

    role: str
    """`catalogue`, `master` or `region server`; `HBase` for all, of a release not supported."""
    server: str
    """`host:port`; the address that was asked where none was found; a release."""
    problem: str | None = None
    """Why it cannot be used."""
    secured: str | None = None
    """What secures the connection; None where there is none."""
    load: str | None = None
    """What a region server has to do; None where its master does not tell."""

    @property
    def name(self) -> str:
        """What was looked at."""
        return f"{self.role} {self.server}"

    @property
    def health(self) -> Health:
        """A failure if it cannot: some rows, or tables, are out of reach."""
        return Health.OK if self.problem is None else Health.FAILED

    @property
    def detail(self) -> str:
        """That it can be reached, what secures the way there, and its load; or why not."""
        reached = f"can be reached {self.secured or ''}".rstrip()
        return self.problem or (reached if self.load is None else f"{reached}; {self.load}")


@dataclass(frozen=True, slots=True)
class RoadFinding:
    """Whether the road to HBase without a gateway is open from this machine."""

    url: str
    """The address that was asked."""
    servers: int
    """How many servers were looked for."""
    closed: tuple[str, ...]
    """Those that cannot be reached, `host:port`."""

    @property
    def name(self) -> str:
        """What was looked at."""
        return "road"

    @property
    def health(self) -> Health:
        """A failure if a server cannot be reached."""
        return Health.FAILED if self.closed else Health.OK

    @property
    def detail(self) -> str:
        """Which road is open, or what to do."""
        if not self.closed:
            return f"HBase is reached without a gateway: use {shlex.quote(self.url)}"
        return (
            f"{len(self.closed)} of {self.servers} servers cannot be reached from here "
            f"({', '.join(self.closed)}): open the way to each, by the name that it gives itself, "
            "or go through a gateway, hbase+thrift2://HOST:9090"
        )


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """Whether the store answers."""

    url: str
    table_count: int | None
    """None if it does not answer."""
    problem: str | None = None

    name = "store"

    @property
    def health(self) -> Health:
        """A failure if it does not."""
        return Health.OK if self.problem is None else Health.FAILED

    @property
    def detail(self) -> str:
        """How many tables it has, or what its answer was."""
        return self.problem or f"{self.url} answers and has {self.table_count} tables"


@dataclass(frozen=True, slots=True)
class MissingTablesFinding:
    """System tables that the store does not have."""

    url: str
    missing: Sequence[str]

    name = "system tables"
    health = Health.FAILED

    @property
    def detail(self) -> str:
        """Which, and what makes them."""
        return f"{', '.join(self.missing)} missing; run {init_command(self.url)}"


@dataclass(frozen=True, slots=True)
class ForgetfulFinding:
    """A table that loses what transactions need."""

    table: str
    complaint: str

    name = "tables"
    health = Health.FAILED

    @property
    def detail(self) -> str:
        """How, and what mends it."""
        return self.complaint


@dataclass(frozen=True, slots=True)
class MisadoptedFinding:
    """A table of Phoenix's that was taken for ours in a way that loses updates."""

    table: str
    complaint: str

    name = "tables"
    health = Health.FAILED

    @property
    def detail(self) -> str:
        """How, and what mends it."""
        return self.complaint


@dataclass(frozen=True, slots=True)
class IndexedFinding:
    """A table of ours that only Phoenix may write, because of its indexes."""

    table: str
    why: str

    name = "tables"
    health = Health.WARNING

    @property
    def detail(self) -> str:
        """Why, and what ends it."""
        return self.why


@dataclass(frozen=True, slots=True)
class ClosedFinding:
    """A table of ours that HBase has closed."""

    table: str
    state: str
    """`disabled`, `disabling` or `enabling`."""

    name = "tables"
    health = Health.FAILED

    @property
    def detail(self) -> str:
        """What follows, and what ends it."""
        told = f"{self.table} is {self.state}: who reads or writes it fails, and no compaction "
        told += "forgets what its cells may need"
        if self.state == "enabling":
            return told
        return f"{told}; enable it in the HBase shell: enable '{self.table}'"


@dataclass(frozen=True, slots=True)
class GhostFinding:
    """A table that an executor has made too late, and that no client of ours opens."""

    table: str
    is_written: bool
    """Whether clients that know nothing of that have written to it."""

    name = "tables"

    @property
    def health(self) -> Health:
        """An empty one does no harm."""
        return Health.WARNING if self.is_written else Health.OK

    @property
    def detail(self) -> str:
        """What it is, and what becomes of it."""
        return ghost_text(self.table, is_written=self.is_written)


@dataclass(frozen=True, slots=True)
class BlockingFinding:
    """A table that may hold transactions and is not ours, so that nothing can be pruned."""

    table: str
    reason: str

    name = "tables"
    health = Health.WARNING

    @property
    def detail(self) -> str:
        """Which, why, and what to do with it."""
        return f"{self.table} is {self.reason}"


@dataclass(frozen=True, slots=True)
class OwnershipFinding:
    """How many tables are whose."""

    owned: int
    ignored: int
    plain: int

    name = "tables"
    health = Health.OK

    @property
    def detail(self) -> str:
        """The numbers, and who knows more about those without a mark."""
        text = f"{self.owned} are ours"
        if self.owned:
            text += ", and forget no version that is needed"
        if self.ignored:
            text += f"; {self.ignored} are ignored"
        if self.plain:
            text += (
                f"; {self.plain} have no mark: `omidpy table list` reads them and says whether "
                "transactions wrote there"
            )
        return text


@dataclass(frozen=True, slots=True)
class UnreadableFinding:
    """Something that could not be looked at."""

    name: str
    problem: str

    health = Health.FAILED

    @property
    def detail(self) -> str:
        """Why it could not be read."""
        return self.problem


BY_RECORD_ALONE: Final = (
    "by its record alone: no process here is its oracle, unless one in another container is"
)
"""What is said of an oracle that `seems_gone`."""


@dataclass(frozen=True, slots=True)
class LeaseFinding:
    """Who holds the oracle's lease."""

    url: str
    is_held: bool
    address: str | None = None
    """None: inside a client's process."""
    pid: int | None = None
    host: str | None = None
    is_omid_leading: bool = False
    """Whether the last oracle that led here was Omid's."""
    seems_gone: bool = False
    """Whether no such process is on this machine, where it ran."""

    name = "lease"

    @property
    def health(self) -> Health:
        """No oracle need hold it while no client works; it is worth knowing."""
        return Health.OK if self.is_held and not self.seems_gone else Health.WARNING

    @property
    def detail(self) -> str:
        """Who, or what would."""
        start = f"start {server_command(self.url)}"
        if not self.is_held and self.is_omid_leading:
            return (
                "no oracle of ours holds it, and Omid's led last: stop that one for good, or let "
                f"both compete in ZooKeeper; then {start}"
            )
        if not self.is_held:
            return f"no oracle holds it; {start}"
        where = self.address or "inside a client's process"
        held = f"held by {where} (pid {self.pid} on {self.host})"
        if self.seems_gone:
            return f"{held} {BY_RECORD_ALONE}; else {start}"
        return held


@dataclass(frozen=True, slots=True)
class OracleFinding:
    """Whether the oracle that was named answers for this store."""

    tso: str
    problem: str | None = None

    name = "oracle"

    @property
    def health(self) -> Health:
        """It was asked for by name."""
        return Health.OK if self.problem is None else Health.FAILED

    @property
    def detail(self) -> str:
        """That it does, or why not."""
        return self.problem or f"{self.tso} answers, and serves this store"


@dataclass(frozen=True, slots=True)
class ClockFinding:
    """How this machine's clock and the oracle's differ."""

    ahead_ms: int | None
    """How far this machine's is ahead; None where timestamps tell no time."""

    name = "clocks"

    @property
    def health(self) -> Health:
        """Times given to snapshots are read by this clock and kept by the oracle's."""
        if self.ahead_ms is None:
            return Health.OK
        lowest_ms = -(LARGEST_SKEW_S + TAKEOVER_LEAD_S) * 1000
        is_near = lowest_ms <= self.ahead_ms <= LARGEST_SKEW_S * 1000
        return Health.OK if is_near else Health.WARNING

    @property
    def detail(self) -> str:
        """By how much, and what follows."""
        if self.ahead_ms is None:
            return "timestamps of this oracle count, and tell no time"
        if self.health is Health.OK:
            return f"this machine and the oracle differ by {self.ahead_ms} ms"
        side = "ahead of" if self.ahead_ms > 0 else "behind"
        return (
            f"this machine is {abs(self.ahead_ms) / 1000:.1f} s {side} the oracle, so that times "
            "given to snapshot(at=...) mean others; synchronise both (NTP)"
        )
