"""What Spark's UI shows of jobs: its own records of them, which are there without the UI, too."""

from __future__ import annotations

from typing import Any


def shown_jobs(context: Any) -> list[tuple[str, str]]:
    """Return description and group of every job of a context that is remembered; empty: none."""
    jobs = context._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(number) for number in range(jobs.size())]
    return [(_text(one.description()), _text(one.jobGroup())) for one in found]


def _text(option: Any) -> str:
    return str(option.get()) if option.isDefined() else ""
