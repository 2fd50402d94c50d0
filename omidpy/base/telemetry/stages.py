"""What does Spark's UI call a job, and its stages?  What they do for the store, in a line.

Pure but for the words that it says to Spark.  Who gave the jobs of a thread a description
keeps it; Spark Connect has no such words, and shows its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

DESCRIPTION: Final = "spark.job.description"
GROUP: Final = "spark.jobGroup.id"


@contextmanager
def described(spark: Any, text: str, *, group: str | None = None) -> Iterator[None]:
    """Let the UI show the jobs that this thread begins within a block as `text`.

    Args:
        spark: The context, or a session.
        text: What they do, and to what.
        group: What belongs together, for a person that looks for it, or cancels it.
    """
    with told(spark, {DESCRIPTION: text, GROUP: group}):
        yield


@contextmanager
def told(spark: Any, words: Mapping[str, str | None]) -> Iterator[None]:
    """Let the tasks of the jobs that this thread begins within a block read words.

    What the thread says already stands; a word of None or of no letters is not said.

    Args:
        spark: The context, or a session.
        words: By the name of the local property that a task reads.
    """
    context = _context(spark)
    wanted = {} if context is None else words
    said = {
        name: value
        for name, value in wanted.items()
        if value and context.getLocalProperty(name) is None
    }
    for name, value in said.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name in said:
            context.setLocalProperty(name, None)


def _context(spark: Any) -> Any:
    """Return the context of a session, or itself; None where there is none, as with Connect."""
    if hasattr(spark, "getLocalProperty"):
        return spark
    try:
        return spark.sparkContext
    except Exception:  # noqa: BLE001 - whatever another Spark raises, the job runs unnamed
        return None
