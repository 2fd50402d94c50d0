"""What a compaction may be asked, by the Spark job and by `omidpy compact` alike."""

from __future__ import annotations

from typing import Final

from omidpy.base.schema.table_settings import ATTRIBUTES
from omidpy.base.words.choices import Choice

DEFAULT_GRACE: Final = "1h"
GRACE_BESIDE_OMID: Final = "24h"
"""Default where Omid's oracle served the store before ours, so that Java clients may be about."""
DEFAULT_INVALIDATION_GRACE: Final = "24h"
DEFAULT_RETENTION: Final = "24h"
DEFAULT_KEEP_KEYS: Final = "7d"
AUTO: Final = "auto"
NEVER: Final = "never"
DEFAULT_COLLECT_EVERY: Final = 7
"""A nightly job looks at every cell once a week."""

COMPACTION: Final = (
    Choice("tables", "Scan these tables alone.", "A,B"),
    Choice("exclude", "Scan every table but these.", "A,B"),
    Choice(
        "grace",
        "Age of a claim before entries below it go. Default: "
        f"{DEFAULT_GRACE}, {GRACE_BESIDE_OMID} where Omid's oracle served the store before.",
        "TIME",
    ),
    Choice(
        "invalidation-grace",
        f"The same for invalidations; `{NEVER}` keeps them.",
        "TIME",
        DEFAULT_INVALIDATION_GRACE,
    ),
    Choice("retention", "How far back snapshots stay readable.", "TIME", DEFAULT_RETENTION),
    Choice(
        "keep-keys",
        f"Age of a commit before its idempotency key is forgotten; `{NEVER}` keeps them.",
        "TIME",
        DEFAULT_KEEP_KEYS,
    ),
    Choice("wait", "Sleep until this run's claims count."),
    Choice("collect", "Read every version, not only those behind the last claims."),
    Choice(
        "collect-foreign",
        "The same, and judge cells from before the oracle by their shadow cells.",
    ),
    Choice(
        "collect-every",
        "Each how many-th pass over a range does so by itself; 0 for none.",
        "N",
        DEFAULT_COLLECT_EVERY,
        kind=int,
    ),
    Choice("dry-run", "Count, and write nothing."),
    Choice("max-lag", "Exit with 4 if rows are behind for longer than this.", "TIME"),
    Choice(
        "metrics",
        "Write the run's numbers there for Prometheus: a text file, or a Pushgateway.",
        "FILE|URL",
    ),
    Choice(
        "max-rows-per-s",
        "Rows and entries that all tasks together read a second, at most.",
        "N",
        kind=int,
    ),
    Choice("max-bytes-per-s", "The same in bytes, as in 50MB or 1GiB.", "SIZE"),
    Choice(
        "until",
        "Begin nothing after so long, as in 4h, or after that time of day, as in 06:00 or 06:00Z.",
        "TIME",
    ),
    Choice(
        "ranges-per-region",
        f"Cut regions into so many ranges, at sampled keys; {AUTO} goes by the rows that the last "
        "runs read.",
        f"N|{AUTO}",
        AUTO,
    ),
    Choice(
        "table-option",
        f"{', '.join(ATTRIBUTES)} of one table in this run; may be given again.",
        "TABLE:NAME=VALUE,...",
        is_many=True,
    ),
    Choice(
        "hbase-root",
        "HBase's root folder, as this machine has it, such as hdfs://nn/hbase: keep what its "
        "snapshots would need. Default: the one that an earlier run was told of; `none` to look no "
        "more.",
        "FOLDER",
        envvar="OMIDPY_HBASE_ROOT",
    ),
    Choice(
        "resume",
        "Go on with the run that was killed, from where it was; without one, a new run.",
    ),
)
"""In the order in which they are listed."""
