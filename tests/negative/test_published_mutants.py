"""Broken ways to publish files with a transaction, each of which a check must notice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from omidpy.base.timing.ages import Stamp
from omidpy.committers import sweeping
from omidpy.committers.contents import manifests
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending, operation
from omidpy.committers.publishing.ending import Effort
from omidpy.committers.publishing.operation import Operations
from omidpy.committers.transactional import Publisher
from omidpy.committers.values import Manifest
from omidpy.errors import CommitterError
from omidpy.fate.client import Fate
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Cell, Timestamp
from tests.machines.s3 import publishing_checks as checks
from tests.machines.s3 import recoverable
from tests.machines.s3.looking import Bucket
from tests.machines.s3.publishing import World
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration

Break = Callable[[pytest.MonkeyPatch], None]


def names_files_in_a_transaction_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break P1: they are there before the cells are."""
    publish = Publisher.publish

    def apart(self: Publisher, tx: Any, *arguments: Any, **options: Any) -> Any:
        with self._tm.begin() as own:
            return publish(self, own, *arguments, **options)

    monkeypatch.setattr(Publisher, "publish", apart)


def replaces_without_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break P2: what is empty has no row that two could meet at."""
    count = itertools.count()
    monkeypatch.setattr(
        manifests, "head_row", lambda folder: manifests.prefix(folder) + b"h%d" % next(count)
    )


def appends_to_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break P3: the later writer's files are seen alone."""
    row = manifests.portion_row

    def same(folder: Folder, job_id: str, number: int) -> bytes:
        del job_id
        return row(folder, manifests.job_name(50, "0" * 12), number)

    monkeypatch.setattr(manifests, "portion_row", same)


def sweeps_above_the_low_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break P4: a cell may come to name what has gone."""
    monkeypatch.setattr(sweeping, "read_low_watermark", lambda _: Timestamp(2**62))


def sweeps_what_no_new_snapshot_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break P4: older versions of cells name files too."""
    named = sweeping._named

    def visible(tm: TransactionManager, folder: Folder) -> dict[str, Cell]:
        with tm.begin() as tx:
            seen = {one.key for one in tx.published(folder.url).files}  # type: ignore[attr-defined]  # ours
        return {
            job_id: cell
            for job_id, cell in named(tm, folder).items()
            if any(job_id in key for key in seen)
        }

    monkeypatch.setattr(sweeping, "_named", visible)


def takes_a_missing_shadow_cell_for_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break P4: whoever died behind the decision has committed."""
    monkeypatch.setattr(sweeping, "_outcome", lambda *_: Aborted())


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (names_files_in_a_transaction_of_its_own, checks.cells_and_files_appear_at_one_instant),
        (replaces_without_a_head, checks.of_two_who_want_to_be_alone_one_is_aborted),
        (appends_to_one_row, checks.both_who_append_keep_their_files),
        (sweeps_above_the_low_watermark, checks.files_of_running_transactions_are_not_swept),
        (sweeps_what_no_new_snapshot_sees, checks.older_snapshots_see_the_older_state),
        (
            takes_a_missing_shadow_cell_for_an_abort,
            checks.a_commit_that_only_its_entry_tells_of_is_kept,
        ),
    ],
)
def test_a_mutant_is_caught(
    broken: Break,
    check: Callable[[World], None],
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check passes on what is whole, and fails on what is broken."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    bucket = Bucket(s3)
    check(World(s3, bucket))
    broken(monkeypatch)
    with pytest.raises((AssertionError, CommitterError, pytest.fail.Exception)):
        check(World(s3, bucket))


def publishes_its_plan_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break P5: a driver that does not look at how its operation has ended."""

    def alone(self: Operations, store: ObjectStore, plan: Plan, effort: Effort) -> Manifest:
        with self.opened() as operations:
            seen = Stamp(operation.clock.boot, 0)
            first = operation.Begin(plan.folder.url, plan.job_id, store.options, 0, (seen,))
            Fate(None, operations).submit(operation.KIND, first)
            ending.begin(store, plan)
        return ending.publish(store, plan, effort)

    monkeypatch.setattr(Operations, "carry_out", alone)


def test_a_driver_that_does_not_look_is_caught(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It publishes what its operation has given up."""
    bucket = Bucket(s3)
    with monkeypatch.context() as patch:
        check = recoverable.a_driver_that_was_taken_for_dead_publishes_nothing
        check(recoverable.World(s3, bucket), patch)
    publishes_its_plan_itself(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(recoverable.World(s3, bucket), monkeypatch)
