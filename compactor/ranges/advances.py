"""How far are the passes that workers on Spark are at?  Rows that live as long as a pass.

Spark hands over what a task has counted when the task ends, so that a run of few long ranges would
show "0 rows" for minutes.  So a worker writes a row of the control table while it reads a range, at
most every `TELL_EVERY_S`, and the driver adds up those of the tasks that have not ended.

    progress/<run>/<call>/<task>/<attempt>      rows, cells, bytes and healed cells up to now

Nothing is judged by them: a row that cannot be written, read or removed is logged, and that is all.
Each has a name that none had before, because on HBase what was deleted is not seen again when it is
written again, and because another driver may go on with the run while tasks of the first live.

A worker removes its row when its pass ends, the driver those of its call, and the next run those of
the dead.  A dry run writes none, and so shows ranges as they end.

Cost: none for a range that takes less than `TELL_EVERY_S`; else 1 write every so often and 1 at its
end, of about 200 bytes.  In the driver 1 scan every `LOOK_EVERY_S`, over rows of tasks that run or
died, and 1 scan and 1 write at the end of the ranges.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Final

from compactor.ranges.progress import Passed
from compactor.ranges.range_task import RangeResult
from omidpy.base.timing.clock import Clock
from omidpy.errors import StorageError
from omidpy.facts.control import ControlTable, encode_document

log = logging.getLogger(__name__)

PROGRESS_PREFIX: Final = b"progress/"

TELL_EVERY_S: Final = 5.0
LOOK_EVERY_S: Final = 5.0


class Teller:
    """Tells how far one attempt of a task is; in the worker."""

    def __init__(
        self, control: ControlTable, of_task: bytes, clock: Clock, every_s: float = TELL_EVERY_S
    ) -> None:
        """Tell nothing yet.

        Args:
            control: Where it is told.
            of_task: What the rows of the task begin with.
            clock: Measures how long ago that was.
            every_s: How often to tell at most.
        """
        self._control = control
        self._row = of_task + uuid.uuid4().hex.encode()
        self._clock = clock
        self._every_s = every_s
        self._told_s = clock.monotonic_s()
        self._may_be_there = False

    def tell(self, so_far: RangeResult) -> None:
        """Write down what was read, unless that was done just now.  Cost: at most 1 write."""
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s < self._every_s:
            return
        self._told_s = now_s
        # Before: a write of which nothing was heard may have arrived.
        self._may_be_there = True
        try:
            told = encode_document(Passed().with_result(so_far))
            self._control.write(self._row, told, durable=False)
        except StorageError as error:
            log.warning("how far a pass is cannot be told, and it goes on: %s", error)

    def end(self) -> None:
        """Remove the row; the driver counts the task itself.  Cost: 1 write if it may be there."""
        if self._may_be_there:
            _forget(self._control, [self._row])


class Advances:
    """Adds up what the tasks of one call have come to; in the driver.  For one thread."""

    def __init__(
        self,
        control: ControlTable,
        run: str,
        clock: Clock,
        *,
        is_told: bool,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        """Look at nothing yet.

        Args:
            control: Where the workers tell.
            run: Whose passes these are.
            clock: Measures how long ago the rows were looked at.
            is_told: Whether they tell at all.
            look_every_s: How often to look at most.
        """
        self._control = control
        self._prefix = PROGRESS_PREFIX + f"{run}/{uuid.uuid4().hex}/".encode()
        self._clock = clock
        self._is_told = is_told
        self._every_s = look_every_s
        self._looked_s = clock.monotonic_s()
        self._told: dict[int, Passed] = {}
        self._shown = Passed()

    def of_task(self, number: int) -> bytes | None:
        """Return what the rows of a task begin with; None: it shall tell nothing."""
        return self._prefix + b"%d/" % number if self._is_told else None

    def so_far(self, ended: Mapping[int, Passed]) -> Passed:
        """Return what all tasks came to, never less than was said before.

        Args:
            ended: What those came to that have ended, by number; they are not counted again, for
                as long as their rows are remembered here.

        Cost: 1 scan, if none was made just now.
        """
        self._look()
        under_way = (told for number, told in self._told.items() if number not in ended)
        total = Passed(*map(sum, zip(Passed(), *ended.values(), *under_way, strict=True)))
        # What an attempt has read that failed was read all the same; and between the end of a task
        # and Spark's word of it no driver counts it.
        self._shown = Passed(*map(max, self._shown, total))
        return self._shown

    def end(self) -> None:
        """Remove the rows of workers that died.  Cost: 1 scan, 1 write where there are any."""
        if self._is_told:
            forget_progress(self._control, self._prefix)

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        if not self._is_told or now_s - self._looked_s < self._every_s:
            return
        self._looked_s = now_s
        try:
            found, _ = self._control.documents(self._prefix, Passed)
        except StorageError as error:
            log.warning("how far passes are cannot be read, and they go on: %s", error)
            return
        told: dict[int, Passed] = {}
        for row, passed in found.items():
            number = int(row.removeprefix(self._prefix).partition(b"/")[0])
            # Two attempts of one task read the same rows.
            told[number] = max(passed, told.get(number, passed))
        self._told = told


class ByTask:
    """How Spark adds up what tasks came to: by number, so that one that was run twice counts once.

    It is an `AccumulatorParam`, but for the import.
    """

    def zero(self, value: dict[int, Passed]) -> dict[int, Passed]:
        """Return an advance of no work, to which others are added."""
        del value
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, one: dict[int, Passed], other: dict[int, Passed]
    ) -> dict[int, Passed]:
        """Add the tasks of `other` to `one`."""
        one.update(other)
        return one


def forget_progress(control: ControlTable, prefix: bytes = PROGRESS_PREFIX) -> None:
    """Remove what was told, by default in any run: a run that is at work shows a little less.

    Cost: 1 scan, 1 write where there are any.
    """
    try:
        rows = [row for row, _ in control.scan(prefix)]
    except StorageError as error:
        log.warning("what passes told of themselves cannot be listed: %s", error)
        return
    if rows:
        _forget(control, rows)


def _forget(control: ControlTable, rows: list[bytes]) -> None:
    try:
        control.forget(rows)
    except StorageError as error:
        log.warning("what passes told of themselves stays for the next run: %s", error)
