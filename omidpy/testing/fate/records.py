"""What a store keeps of operations, and that a write lands only on what its writer saw."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from omidpy.errors import FateError, ReservationLost, UsageError
from omidpy.fate.operation import MAX_STACK, Operation, Status
from omidpy.fate.store import FateStore
from omidpy.testing.fate.basics import (
    Chapter,
    a_full_operation,
    an_operation,
    leaf,
    losing_answers,
)


class Records(Chapter):
    """Inserted, swapped, removed, read and listed."""

    def test_an_empty_store_has_no_operation(self, fates: FateStore) -> None:
        """Whoever looks before anything was submitted gets an answer and no error."""
        absent = an_operation()
        assert fates.read(absent.id) is None
        assert list(fates.scan()) == []
        assert fates.runnable() == []
        assert not fates.remove(absent)
        assert not fates.swap(absent, replace(absent, version=2))

    @pytest.mark.parametrize("made", [an_operation(), a_full_operation()], ids=["new", "full"])
    def test_what_is_inserted_is_read_by_whoever_opens_the_store(
        self, fates: FateStore, made: Operation
    ) -> None:
        """Nothing of an operation lives in a process."""
        assert fates.insert(made)
        other = self.reopen(fates)
        try:
            assert other.read(made.id) == made
            assert list(other.scan()) == [made]
        finally:
            other.close()

    def test_an_id_is_taken_once(self, fates: FateStore) -> None:
        """Two operations in one record would be none."""
        first = an_operation()
        assert fates.insert(first)
        assert not fates.insert(replace(first, name="OTHER"))
        assert fates.read(first.id) == first

    def test_every_field_can_change_and_change_back(self, fates: FateStore) -> None:
        """Fields are written where they differ, and one that was forgotten would show here."""
        new = an_operation()
        full = replace(a_full_operation(), id=new.id, version=2, write_id="full")
        back = replace(new, version=3, write_id="back")
        assert fates.insert(new)
        assert fates.swap(new, full)
        assert fates.read(new.id) == full
        assert fates.swap(full, back)
        assert fates.read(new.id) == back

    def test_a_swap_needs_the_version_that_was_read(self, fates: FateStore) -> None:
        """The one guard that there is: a paused executor has an old version in its hand."""
        first = an_operation()
        second = replace(first, version=2, progress="second")
        fates.insert(first)
        assert fates.swap(first, second)
        assert not fates.swap(first, replace(first, version=2, progress="late"))
        assert fates.read(first.id) == second

    def test_steps_are_pushed_replaced_and_taken_away(self, fates: FateStore) -> None:
        """The top is the last one of the stack, however it came there."""
        was = an_operation()
        fates.insert(was)
        for stack in (
            (leaf(), leaf(1)),
            (leaf(), leaf(1), leaf(2)),
            (leaf(), leaf(1), leaf(3, "again")),
            (leaf(), leaf(1)),
            (leaf(),),
            (),
        ):
            is_now = replace(was, version=was.version + 1, stack=stack)
            assert fates.swap(was, is_now)
            assert fates.read(was.id) == is_now
            was = is_now

    def test_the_highest_stack_is_kept_and_emptied_at_once(self, fates: FateStore) -> None:
        """The end of an operation is one write, however many steps it had."""
        high = an_operation(stack=tuple(leaf(number) for number in range(MAX_STACK)))
        assert fates.insert(high)
        assert fates.read(high.id) == high
        flat = replace(high, version=2, status=Status.SUCCESSFUL, stack=())
        assert fates.swap(high, flat)
        assert fates.read(high.id) == flat

    def test_what_changed_meanwhile_is_not_removed(self, fates: FateStore) -> None:
        """Who decides that an operation may go must have seen all of it."""
        first = an_operation()
        second = replace(first, version=2, status=Status.SUBMITTED)
        fates.insert(first)
        fates.swap(first, second)
        assert not fates.remove(first)
        assert fates.read(first.id) == second
        assert fates.remove(second)
        assert fates.read(first.id) is None
        assert list(fates.scan()) == []

    def test_nothing_is_written_to_what_was_removed(self, fates: FateStore) -> None:
        """A late write of its last executor must not bring half of it back."""
        first = an_operation()
        fates.insert(first)
        fates.remove(first)
        assert not fates.swap(first, replace(first, version=2, progress="late"))
        assert not fates.remove(first)
        assert fates.read(first.id) is None
        assert list(fates.scan()) == []

    def test_a_scan_yields_each_operation_once(self, fates: FateStore) -> None:
        """However many there are."""
        made = [an_operation(stack=(leaf(number), leaf(number + 1))) for number in range(30)]
        for operation in made:
            fates.insert(operation)
        found = list(fates.scan())
        assert sorted(found, key=str) == sorted(made, key=str)

    def test_a_scan_leaves_out_what_it_is_told(self, fates: FateStore) -> None:
        """And shows it as it is, when it is asked for again."""
        left_out, other = an_operation(), an_operation()
        for operation in (left_out, other):
            fates.insert(operation)
        assert len(list(fates.scan())) == 2
        changed = fates.write(left_out, replace(left_out, progress="on"))
        assert list(fates.scan(but={left_out.id})) == [other]
        assert fates.in_order(but={other.id}) == [changed]
        assert sorted(fates.scan(), key=str) == sorted([changed, other], key=str)

    # -- what is finished ----------------------------------------------------------------------

    def test_the_search_does_not_read_what_is_finished(self, fates: FateStore) -> None:
        """Else each look for work would cost as much as everything that was ever done."""
        made = [fates.submit(an_operation(stack=(leaf(1), leaf(2)))) for _ in range(3)]
        ended = [
            fates.write(one, _ended(one, status))
            for one, status in zip(made, (Status.SUCCESSFUL, Status.FAILED), strict=False)
        ]
        assert list(fates.scan_live()) == made[2:]
        assert sorted(fates.scan_finished(), key=str) == sorted(ended, key=str)
        assert sorted(fates.scan(), key=str) == sorted([*ended, made[2]], key=str)
        assert [fates.read(one.id) for one in ended] == ended
        assert fates.runnable() == made[2:]

    def test_what_is_finished_is_guarded_as_it_was(self, fates: FateStore) -> None:
        """An administrator reserves it before he removes it."""
        made = fates.submit(an_operation(key='["k"]'))
        ended = fates.write(made, _ended(made, Status.FAILED))
        again = fates.write(ended, replace(ended, progress="seen"))
        assert (again.version, fates.read(made.id)) == (ended.version + 1, again)
        for late in (made, ended):
            with pytest.raises(ReservationLost):
                fates.write(late, replace(late, progress="late"))
            assert not fates.remove(late)
        assert fates.submit(an_operation(key='["k"]')).id != made.id
        found = fates.read(made.id)
        assert found is not None
        assert fates.delete(found)
        assert fates.read(made.id) is None
        assert made.id not in {one.id for one in fates.scan()}

    def test_an_end_whose_answer_was_lost_is_recognised(self, fates: FateStore) -> None:
        """Though it is in another place by then."""
        made = fates.submit(an_operation())
        with losing_answers(fates, "swap") as lost:
            ended = fates.write(made, _ended(made, Status.SUCCESSFUL))
        assert lost == ["swap"]
        assert fates.read(made.id) == ended

    def test_what_an_earlier_version_left_among_the_live_is_moved(self, fates: FateStore) -> None:
        """It is read where it is, and guarded there, too."""
        old = an_operation(status=Status.SUCCESSFUL, finished_ms=1, stack=())
        live = an_operation()
        for one in (old, live):
            fates.insert(one)
        assert list(fates.scan()) == [live, old]
        changed = fates.write(old, replace(old, progress="seen"))
        assert fates.read(old.id) == changed
        assert not fates.archive(old) or fates.read(old.id) == changed
        fates.archive(changed)
        assert list(fates.scan_live()) == [live]
        assert list(fates.scan_finished()) == [changed]
        assert fates.read(old.id) == changed
        assert not fates.archive(changed)
        assert fates.delete(changed)
        assert list(fates.scan()) == [live]

    # -- lost answers --------------------------------------------------------------------------

    def test_a_write_whose_answer_was_lost_is_recognised(self, fates: FateStore) -> None:
        """Else its step would be called again, and its successor refused."""
        first = fates.create(an_operation())
        with losing_answers(fates, "swap") as lost:
            second = fates.write(first, replace(first, progress="done"))
        assert lost == ["swap"]
        assert second.version == 2
        assert fates.read(first.id) == second

    def test_a_write_that_somebody_overtook_is_refused(self, fates: FateStore) -> None:
        """Also if its answer was lost: what was written by the other stays."""
        first = fates.create(an_operation())
        other = fates.write(first, replace(first, progress="other"))
        with pytest.raises(ReservationLost, match=first.id):
            fates.write(first, replace(first, progress="late"))
        with losing_answers(fates, "swap"), pytest.raises(ReservationLost):
            fates.write(first, replace(first, progress="late"))
        assert fates.read(first.id) == other

    def test_an_insertion_whose_answer_was_lost_is_recognised(self, fates: FateStore) -> None:
        """Else a client would believe that nothing was submitted."""
        with losing_answers(fates, "insert") as lost:
            made = fates.submit(an_operation())
        assert lost == ["insert"]
        assert fates.read(made.id) == made
        assert made.status is Status.SUBMITTED

    def test_a_removal_whose_answer_was_lost_is_recognised(self, fates: FateStore) -> None:
        """Whoever asked for it is told that it is gone."""
        made = fates.create(an_operation())
        with losing_answers(fates, "remove"):
            assert fates.delete(made)
        assert fates.read(made.id) is None

    # -- limits and mistakes -------------------------------------------------------------------

    def test_a_step_that_is_too_large_is_refused_before_anything_is_written(
        self, fates: FateStore
    ) -> None:
        """The message names both sizes, and what to do instead."""
        fits = an_operation(stack=(_sized(fates.max_step_bytes),))
        assert fates.create(fits).id == fits.id
        found = fates.read(fits.id)
        assert found is not None
        assert found.stack == fits.stack
        large = an_operation(stack=(_sized(fates.max_step_bytes + 1),))
        with pytest.raises(UsageError, match=str(fates.max_step_bytes + 1)):
            fates.create(large)
        assert fates.read(large.id) is None

    def test_what_is_not_there_cannot_be_seeded(self, fates: FateStore) -> None:
        """The message says how to see what there is."""
        with pytest.raises(FateError, match="omidpy fate list"):
            fates.seed(an_operation().id)


def _ended(operation: Operation, status: Status) -> Operation:
    return replace(operation, status=status, stack=(), finished_ms=5_000, result="over")


def _sized(size: int) -> bytes:
    """Return a stored step of so many bytes."""
    return leaf(0, "x" * (size - len(leaf())))
