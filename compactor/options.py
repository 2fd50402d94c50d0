"""What one compaction is asked to do, as values; the command line's words are parsed here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from compactor.pacing import Pacing
from omidpy.base.schema.compaction_choices import (
    AUTO,
    COMPACTION,
    DEFAULT_COLLECT_EVERY,
    DEFAULT_GRACE,
    DEFAULT_INVALIDATION_GRACE,
    DEFAULT_KEEP_KEYS,
    DEFAULT_RETENTION,
    GRACE_BESIDE_OMID,
    NEVER,
)
from omidpy.base.schema.table_settings import setting_attributes
from omidpy.base.words import sizes
from omidpy.base.words.choices import words_of
from omidpy.base.words.durations import seconds_in
from omidpy.base.words.windows import Window, parse_window
from omidpy.errors import UsageError
from omidpy.facts.commit_table import COMMIT_TABLE

MOST_RANGES: Final = 1000
NO_SNAPSHOTS: Final = "none"
"""In place of HBase's root folder."""


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of one run; the defaults suit a nightly job."""

    tables: frozenset[str] | None = None
    """Scan these tables alone; None is every table of ours."""
    exclude: frozenset[str] = frozenset()
    """Scan every table of ours but these."""
    grace_s: float | None = None
    """How old a claim must be before commit entries below it go: longer than any client waits for
    a lost reply.  None: `DEFAULT_GRACE`, or `GRACE_BESIDE_OMID`, see there."""
    invalidation_grace_s: float | None = seconds_in(
        DEFAULT_INVALIDATION_GRACE, name="--invalidation-grace"
    )
    """The same for invalidations: longer than a deposed oracle's last write can be under way.  None
    keeps them for ever, for clients that write their entries themselves, as late as they like."""
    retention_s: float = seconds_in(DEFAULT_RETENTION, name="--retention")
    """How far back snapshots are kept readable; 0 keeps what the low watermark alone demands."""
    keep_keys_s: float | None = seconds_in(DEFAULT_KEEP_KEYS, name="--keep-keys")
    """How long idempotency keys are kept, from the commit that used them; None for ever."""
    should_wait: bool = False
    """Sleep until this run's own claims are as old as `grace_s`."""
    is_dry_run: bool = False
    """Count, and write nothing."""
    max_lag_s: float | None = None
    """Rows that are behind for longer than this are an alarm; None raises none."""
    metrics: str | None = None
    """Where the numbers of the run go: a file, or the URL of a Pushgateway."""
    max_rows_per_s: float | None = None
    """How many rows, and entries, the whole run reads a second; None is as many as it can."""
    max_bytes_per_s: float | None = None
    """The same in bytes of keys and values."""
    until: Window | None = None
    """When to begin nothing more; None is never."""
    ranges_per_region: int | None = None
    """Into how many ranges a region is cut; None: as many as the rows ask for that the last runs
    read."""
    table_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings by table, which go before what the tables' own attributes say."""
    resting: Mapping[str, str] = field(default_factory=dict)
    """Tables of ours that are not due, and why."""
    should_collect: bool = False
    """Read every range whole, whatever earlier passes have claimed."""
    should_collect_foreign: bool = False
    """The same, and judge cells from before the oracle by their shadow cells."""
    collect_every: int = DEFAULT_COLLECT_EVERY
    """Each how many-th pass over a range reads it whole; 0 is none for this reason alone."""
    hbase_root: str | None = None
    """HBase's root folder, where its snapshots are; None: the one that an earlier run was told of,
    `NO_SNAPSHOTS`: forget that, they are of no account."""
    should_resume: bool = False
    """Go on with the run that was killed, if there is one, with its L and what it has claimed."""
    commit_table: str = COMMIT_TABLE

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if self.tables is not None and self.exclude:
            raise UsageError("--tables and --exclude were both given; give one of them")
        if self.collect_every < 0:
            raise UsageError(f"--collect-every is {self.collect_every}; use 0 or more")
        for name, seconds in (
            ("--grace", self.grace_s),
            ("--invalidation-grace", self.invalidation_grace_s),
            ("--retention", self.retention_s),
            ("--keep-keys", self.keep_keys_s),
            ("--max-lag", self.max_lag_s),
        ):
            if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
                raise UsageError(f"{name} is {seconds} seconds; use 0 or more")
        for name, rate in (
            ("--max-rows-per-s", self.max_rows_per_s),
            ("--max-bytes-per-s", self.max_bytes_per_s),
        ):
            if rate is not None and not (math.isfinite(rate) and rate >= 1):
                raise UsageError(f"{name} is {rate:g}; use 1 or more, or leave it out")
        if self.ranges_per_region is not None and not 1 <= self.ranges_per_region <= MOST_RANGES:
            raise UsageError(
                f"--ranges-per-region is {self.ranges_per_region}; use 1 to {MOST_RANGES}, or auto"
            )
        for table, words in self.table_options.items():
            setting_attributes(table, words)

    def grace_on(self, *, follows_omid: bool) -> float:
        """Return the grace, in seconds, on a store that Omid's oracle did or did not serve."""
        if self.grace_s is not None:
            return self.grace_s
        return seconds_in(GRACE_BESIDE_OMID if follows_omid else DEFAULT_GRACE, name="--grace")

    def pacing(self, *, now_ms: int) -> Pacing:
        """Return what a run may take that starts at `now_ms`, by wall time."""
        ends_ms = None if self.until is None else self.until.ends_ms(now_ms)
        return Pacing(self.max_rows_per_s, self.max_bytes_per_s, ends_ms)

    def scans(self, table: str) -> bool:
        """Say whether this run scans a table of ours."""
        if table in self.exclude or table in self.resting:
            return False
        return self.tables is None or table in self.tables


def parse_rate(text: str, *, name: str) -> float:
    """Return the bytes in `50MB`.

    Raises:
        UsageError: naming the option and the text.
    """
    found = sizes.size_bytes(text)
    if found is None:
        raise UsageError(
            f"{name} is {text!r}; write the bytes of a second and a unit, as in {sizes.EXAMPLES}"
        )
    return found


def parse_ranges(text: str) -> int | None:
    """Return the number in `8`; None for `auto`.

    Raises:
        UsageError: it is neither.
    """
    if text.strip().lower() == AUTO:
        return None
    if not text.strip().isdecimal() or len(text) > len(str(MOST_RANGES)):
        raise UsageError(
            f"--ranges-per-region is {text[:80]!r}; write a number from 1 to {MOST_RANGES}, or "
            f"{AUTO}"
        )
    return int(text)


def parse_table_options(words: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return settings by table, from `accounts:retention=30d,priority=5` and others like it.

    Raises:
        UsageError: naming the words.
    """
    found: dict[str, dict[str, str]] = {}
    for word in words:
        # A namespace ends with a colon, too.
        table, colon, rest = word.rpartition(":")
        pairs = [pair.partition("=") for pair in rest.split(",")]
        if not (table and colon and all(key and value for key, _, value in pairs)):
            raise UsageError(
                f"--table-option is {word!r}; write a table and its settings, as in "
                "accounts:retention=30d,priority=5"
            )
        found.setdefault(table, {}).update({key.strip(): value for key, _, value in pairs})
    return found


def parse_names(text: str, *, name: str) -> frozenset[str]:
    """Return the table names in `A,B`.

    Raises:
        UsageError: the list names nothing.
    """
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise UsageError(f"{name} is {text!r}; name at least one table, as in A,B")
    return names


def options_from_words(**given: Any) -> Options:
    """Return the options that a command line asks for, by the keys of `COMPACTION`.

    What is not given is as it is by default.
    """
    words = words_of(COMPACTION, given)

    def seconds(key: str) -> float | None:
        text = words[key]
        name = f"--{key.replace('_', '-')}"
        return None if text is None else seconds_in(text, name=name, may_be_zero=True)

    def named(key: str) -> frozenset[str] | None:
        return None if words[key] is None else parse_names(words[key], name=f"--{key}")

    rate, until = words["max_bytes_per_s"], words["until"]
    return Options(
        tables=named("tables"),
        exclude=named("exclude") or frozenset(),
        grace_s=seconds("grace"),
        invalidation_grace_s=(
            None if words["invalidation_grace"] == NEVER else seconds("invalidation_grace")
        ),
        retention_s=seconds("retention") or 0.0,
        keep_keys_s=None if words["keep_keys"] == NEVER else seconds("keep_keys"),
        should_wait=words["wait"],
        is_dry_run=words["dry_run"],
        max_lag_s=seconds("max_lag"),
        metrics=words["metrics"],
        max_rows_per_s=words["max_rows_per_s"],
        max_bytes_per_s=None if rate is None else parse_rate(rate, name="--max-bytes-per-s"),
        until=None if until is None else parse_window(until, name="--until"),
        ranges_per_region=parse_ranges(words["ranges_per_region"]),
        table_options=parse_table_options(words["table_option"] or ()),
        should_collect=words["collect"],
        should_collect_foreign=words["collect_foreign"],
        collect_every=words["collect_every"],
        hbase_root=words["hbase_root"] or None,
        should_resume=words["resume"],
    )
