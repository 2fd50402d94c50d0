"""Which batches of a stream are published, and by which run of its query?

Spark repeats no batch but the newest, and that as the first of a run.  What the newest one is, and
which run has published it and which the one before, its manifest says, which each batch replaces:

    _omidpy/streams/<query>.json           the manifest; `stream_run` and `stream_run_before` in it
    _omidpy/streams/<query>.passed.json    {"batch", "run"}: which run has passed over a batch that
                                           another had published, and the newest such batch

A batch older than the newest is of a checkpoint that was put back, and is refused.  So is one that
another run has published, when this run has published the batch before, or has passed over an
earlier one: both go on from copies of one checkpoint, and each would pass over what the other has
published under a number that is not of the same rows.

A driver that stands still behind this look, while another run publishes its batch, is refused where
it is decided about its job (`heads/deciding.py`): the destination's head knows the newest batches.

Lacks a digest of the rows: what a repetition reads may have changed for good reasons.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from omidpy.committers.objects.answers import Gone
from omidpy.committers.places import PLANS, batch_of
from omidpy.committers.publishing import success
from omidpy.committers.s3 import S3Committer
from omidpy.errors import CommitterError

RUN: Final = "stream_run"
RUN_BEFORE: Final = "stream_run_before"


class Newest(NamedTuple):
    """The newest batch of a stream that is published."""

    number: int = -1
    run: str = ""
    """Which run has published it; empty where an earlier version has, or nobody."""
    run_before: str = ""
    """Which run had published the one before."""


class StreamBatch:
    """One batch of a stream, in the process that commits it."""

    def __init__(self, made: S3Committer, job_id: str, run: str) -> None:
        """Look at nothing yet.

        Args:
            made: The committer of its job.
            job_id: `<query>-b<number>`.
            run: Which start of the query it is; empty where that is not known.
        """
        self._made = made
        self._query, self._number = batch_of(job_id)
        self._run = run if " " not in run else ""  # else somebody has named a group of jobs
        # Of its own, so that no other job's manifest hides that a batch was published.
        made.success_path = f"{PLANS}streams/{self._query}.json"
        # Also without `_SUCCESS`: by nothing else a batch that is run again is known.
        made.marks_success = True

    def begin(self) -> None:
        """Let the manifest of this batch say who publishes it.

        Raises:
            CommitterError: a later batch is published.

        Cost: 1 request.
        """
        newest = self._newest()
        if self._number < newest.number:
            raise CommitterError(
                f"batch {self._number} of the stream {self._query} comes behind batch "
                f"{newest.number}, which is published at {self._made.folder.url}: "
                f"{self._replaced_by(newest)}its checkpoint was put back, and nobody knows what of "
                "it is published; go on with a new checkpoint"
            )
        self._made.facts = {RUN: self._run, RUN_BEFORE: newest.run}

    def pass_over(self) -> None:
        """Take note that this batch was published before.

        Raises:
            CommitterError: by another run, while this one goes on.

        Cost: 1 request; 3 where another run has published it.
        """
        newest = self._newest()
        is_anothers = newest.number == self._number and newest.run not in {"", self._run}
        if not self._run or not is_anothers:
            return
        if newest.run_before == self._run or self._has_passed():
            raise CommitterError(
                f"batch {self._number} of the stream {self._query} was published at "
                f"{self._made.folder.url} by another run of the query, {newest.run}, while this "
                f"one, {self._run}, goes on: {self._replaced_by(newest)}the two have copies of one "
                "checkpoint, and rows that only one of them has read may be missing or be there "
                "twice; stop both, and go on with a new checkpoint"
            )
        note = {"batch": self._number, "run": self._run}
        self._made.store.put(self._made.folder.bucket, self._passed, json.dumps(note).encode())

    def _replaced_by(self, newest: Newest) -> str:
        """Say that nothing is wrong where this run stood still; no fact tells that from a copy."""
        if newest.run in {"", self._run}:
            return ""
        return (
            f"if run {newest.run} has taken this one's place, which stood still, with its very "
            "checkpoint, all is well, and that one goes on alone; else "
        )

    def _newest(self) -> Newest:
        document = self._read(self._made.folder.key(self._made.success_path))
        query, number = batch_of(str(document.get("jobId", "")))
        if query != self._query or number < 0:
            return Newest()
        said = document.get("omidpy")
        said = said if isinstance(said, dict) else {}
        return Newest(number, str(said.get(RUN, "")), str(said.get(RUN_BEFORE, "")))

    @property
    def _passed(self) -> str:
        return self._made.folder.key(f"{PLANS}streams/{self._query}.passed.json")

    def _has_passed(self) -> bool:
        """Say whether this run has passed over an earlier batch that another had published.

        Raises:
            CommitterError: the note of it cannot be read.
        """
        bucket = self._made.folder.bucket
        try:
            found = json.loads(self._made.store.get(bucket, self._passed)[0])
            return bool(found["run"] == self._run and int(found["batch"]) < self._number)
        except Gone:
            return False
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CommitterError(
                f"s3://{bucket}/{self._passed} cannot be read: {error}; remove it if no other "
                "query has a copy of this one's checkpoint"
            ) from error

    def _read(self, key: str) -> dict[str, Any]:
        bucket = self._made.folder.bucket
        try:
            return success.decode(self._made.store.get(bucket, key)[0], f"s3://{bucket}/{key}")
        except Gone:
            return {}
