"""How operations are submitted: once for each key, whoever asks, and whenever it is killed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ReservationLost, StorageUnavailable
from omidpy.fate.operation import Operation, Status
from omidpy.fate.store import FateStore
from omidpy.testing.chapters.basics import in_threads
from omidpy.testing.fate.basics import Chapter, an_operation, losing_answers

KEY = '["prune","t1"]'


def keyed(**changes: object) -> Operation:
    """Return an operation with the key of these tests."""
    return an_operation(key=KEY, **changes)


class Submissions(Chapter):
    """Created, seeded and submitted, with a key and without."""

    def test_what_is_created_runs_once_it_is_seeded(self, fates: FateStore) -> None:
        """A client may note the id down in between."""
        made = fates.create(an_operation())
        assert made.status is Status.NEW
        assert fates.runnable() == []
        seeded = fates.seed(made.id)
        assert seeded.status is Status.SUBMITTED
        assert fates.runnable() == [seeded]
        assert fates.seed(made.id) == seeded

    def test_started_operations_come_first_and_then_older_ones(self, fates: FateStore) -> None:
        """What holds locks must end before more is begun."""
        made = [
            an_operation(status=status, created_ms=created_ms)
            for status, created_ms in (
                (Status.SUBMITTED, 3),
                (Status.IN_PROGRESS, 4),
                (Status.FAILED_IN_PROGRESS, 2),
                (Status.IN_PROGRESS, 1),
                (Status.SUCCESSFUL, 0),
                (Status.NEW, 0),
            )
        ]
        for operation in made:
            fates.insert(operation)
        assert [one.created_ms for one in fates.runnable()] == [1, 4, 2, 3]

    def test_a_key_names_one_live_operation(self, fates: FateStore) -> None:
        """A nightly job that is submitted twice runs once."""
        first = fates.submit(keyed())
        assert first.status is Status.SUBMITTED
        assert first.key == KEY
        assert fates.submit(keyed()).id == first.id
        assert fates.submit(an_operation(key='["other"]')).id != first.id
        assert len(list(fates.scan())) == 2

    def test_a_key_is_free_once_its_operation_is_finished(self, fates: FateStore) -> None:
        """The next night's job is another operation, whatever became of the last one."""
        ids = []
        for status in (Status.SUCCESSFUL, Status.FAILED, Status.SUCCESSFUL):
            made = fates.submit(keyed())
            ids.append(made.id)
            fates.write(made, replace(made, status=status, finished_ms=1))
        assert len(set(ids)) == 3
        assert fates.submit(keyed()).id not in ids
        assert fates.submit(keyed()).id not in ids

    def test_a_key_is_free_once_its_operation_is_gone(self, fates: FateStore) -> None:
        """Also where the store hides what is written behind a delete."""
        ids = set()
        for _ in range(3):
            made = fates.submit(keyed())
            ids.add(made.id)
            assert fates.delete(made)
        assert len(ids) == 3
        assert fates.submit(keyed()).id not in ids

    def test_an_old_operation_takes_no_key_away(self, fates: FateStore) -> None:
        """Its record may go long after another operation has got its key."""
        old = fates.submit(keyed())
        old = fates.write(old, replace(old, status=Status.FAILED, finished_ms=1))
        live = fates.submit(keyed())
        assert live.id != old.id
        found = fates.read(old.id)
        assert found is not None
        assert fates.delete(found)
        assert fates.submit(keyed()).id == live.id

    def test_of_many_who_submit_at_once_one_does(self, fates: FateStore) -> None:
        """All are told the same operation, and only that one is there."""
        told: list[str] = []
        in_threads([lambda: told.append(fates.submit(keyed()).id)] * 6)
        assert len(told) == 6
        assert len(set(told)) == 1
        assert [one.id for one in fates.runnable()] == told[:1]
        assert [one.id for one in fates.scan()] == told[:1]

    def test_what_was_created_and_not_seeded_is_seeded_by_the_next_one(
        self, fates: FateStore
    ) -> None:
        """A client that dies in between must not block its key for hours."""
        created = fates.create(keyed())
        submitted = fates.submit(keyed())
        assert submitted.id == created.id
        assert submitted.status is Status.SUBMITTED

    def test_a_submission_that_got_no_answer_can_be_repeated(self, fates: FateStore) -> None:
        """With a key there is one operation in the end, wherever the answers were lost."""
        for name in ("insert", "swap"):
            with losing_answers(fates, name):
                assert fates.submit(keyed()).status is Status.SUBMITTED
        assert len(list(fates.scan())) == 1

    def test_what_has_ended_before_its_submission_is_repeated_is_not_run_again(
        self, fates: FateStore
    ) -> None:
        """The answer was lost, and an executor was quicker than the next try."""
        insert = fates.insert
        ended: list[Operation] = []

        def inserting(operation: Operation) -> bool:
            if ended:
                return insert(operation)
            assert insert(operation)
            made = fates.seed(operation.id)
            end = replace(made, status=Status.SUCCESSFUL, stack=(), finished_ms=1)
            ended.append(fates.write(made, end))
            raise StorageUnavailable("the answer was lost")

        fates.__dict__["insert"] = inserting
        try:
            made = fates.submit(an_operation())
        finally:
            del fates.__dict__["insert"]
        assert made.id == ended[0].id
        assert fates.runnable() == []
        assert list(fates.scan()) == ended

    def test_who_looked_before_it_had_ended_does_not_take_what_is_submitted_again(
        self, fates: FateStore, clock: ManualClock
    ) -> None:
        """He stood still, and finds the very record that he has seen."""
        worker = fates.new_worker(lease_s=10.0, clock=clock)
        seen = fates.submit(an_operation())
        end = replace(seen, status=Status.SUCCESSFUL, stack=(), finished_ms=1)
        ended = fates.write(seen, end)
        fates.insert(seen)
        assert fates.try_reserve(seen, worker) is None
        cancelled = replace(seen, status=Status.FAILED, stack=(), finished_ms=2)
        fates.insert(seen)
        with pytest.raises(ReservationLost):
            fates.write(seen, cancelled)
        assert fates.read(seen.id) == ended
        assert fates.runnable() == []

    def test_a_submission_that_fails_leaves_nothing_that_runs(self, fates: FateStore) -> None:
        """Its client does not know of it; with the key it is found and seeded."""

        def unavailable(*_: object) -> bool:
            raise StorageUnavailable("nobody answers")

        made = fates.create(keyed())
        fates.__dict__["read"] = unavailable
        try:
            fates.seed(made.id)
        except StorageUnavailable:
            pass
        finally:
            del fates.__dict__["read"]
        assert fates.runnable() == []
        assert fates.submit(keyed()).id == made.id

    def test_a_sweep_leaves_keys_of_operations_that_are_there(
        self, fates: FateStore, clock: ManualClock
    ) -> None:
        """And takes away those of operations that are gone, which nobody notices."""
        judge = fates.new_judge(clock)
        fates.sweep(judge)  # before there is anything
        live = fates.submit(keyed())
        gone = fates.submit(an_operation(key='["gone"]'))
        fates.delete(gone)
        fates.sweep(judge)
        fates.sweep(judge)
        assert fates.submit(keyed()).id == live.id
        assert fates.submit(an_operation(key='["gone"]')).id != gone.id
