"""What may be asked of a queue that is made: the numbers and names that it can have."""

from __future__ import annotations

from omidpy.base.words.arguments import check_count
from omidpy.base.words.durations import check_seconds
from omidpy.errors import UsageError
from omidpy.recipes.export_queue.entries.stored.codecs import codec_named
from omidpy.recipes.export_queue.entries.stored.layout import BY_KEY, BY_TIME, LAYOUTS, MAX_BUCKETS
from omidpy.recipes.export_queue.entries.stored.state import Definition


def check_buckets(buckets: int) -> None:
    """Refuse a number of buckets that no queue can have."""
    check_count("buckets", buckets)
    if buckets is None or buckets > MAX_BUCKETS:
        raise UsageError(f"buckets={buckets} must be 1 to {MAX_BUCKETS}")


def definition_of(
    buckets: int,
    codec: str,
    layout: str,
    keep_s: float | None,
    max_entries: int | None,
    max_lag_s: float | None,
) -> Definition:
    """Return what is asked for as a definition; refuse a setting that makes no sense."""
    check_buckets(buckets)
    check_count("max_entries", max_entries)
    # What is stored as JSON has no infinity: it would come back as None.
    check_seconds(or_none=True, keep_s=keep_s, max_lag_s=max_lag_s)
    if layout not in LAYOUTS:
        raise UsageError(f"layout={layout!r} is none of {', '.join(LAYOUTS)}")
    if layout == BY_KEY and keep_s is not None:
        raise UsageError(
            f"a queue of the layout {BY_KEY!r} keeps nothing that was delivered: give it no "
            f"keep_s, or layout={BY_TIME!r}"
        )
    return Definition(
        number=0,
        is_open=True,
        buckets=buckets,
        codec=codec_named(codec).name,
        layout=layout,
        keep_s=None if keep_s is None else float(keep_s),
        max_entries=max_entries,
        max_lag_s=None if max_lag_s is None else float(max_lag_s),
    )
