"""Operations of several steps on a world that can be compared: files in a folder.

Every kind of write that an executor makes is among them: a lock, a loop, a step that is tried
again, a pivot, one that fails for good, and one that can be undone only the second time.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omidpy.fate.locks import Locks
from omidpy.fate.operation import FINISHED, Operation, Status
from omidpy.fate.step import Answer, Defer, Done, Retry, Step, StepContext, step
from omidpy.fate.store import FateStore

NAMESPACE: Final = "fate-crashes"
ROWS: Final = 3
_OFTEN: Final = Retry(max=100, first_s=0.001, longest_s=0.001)
_ONCE: Final = Retry(first_s=0.001, longest_s=0.001)


class World:
    """A folder, and the locks of operations."""

    def __init__(self, folder: Path, locks: Locks) -> None:
        """Change the files of a folder."""
        self.folder = folder
        self.locks = locks

    def put(self, name: str, text: str) -> None:
        """Write a file; doing so twice is doing so once."""
        (self.folder / name).write_text(text)

    def drop(self, name: str) -> None:
        """Remove a file; one that is gone is gone."""
        (self.folder / name).unlink(missing_ok=True)

    def stumbles(self, name: str) -> bool:
        """Say whether this is the first time, over all lives."""
        mark = self.folder / f"stumbled-{name}"
        if mark.exists():
            return False
        mark.touch()
        return True


@step(version=1, namespace=NAMESPACE)
class Begin(Step):
    """Takes a lock and chooses what all the others carry."""

    ends_well: bool

    def ready(self, tx: StepContext, env: World) -> Defer | None:
        """Take the lock."""
        return env.locks.write("t", tx.id)

    def call(self, tx: StepContext, env: World) -> Answer:
        """Choose."""
        return Fill(self.ends_well, secrets.token_hex(8), 0)

    def undo(self, tx: StepContext, env: World) -> None:
        """Give the lock back."""
        env.locks.release(tx.id, "t")


@step(version=1, namespace=NAMESPACE, retry=_OFTEN)
class Fill(Step):
    """Writes some files, one in each round, and stumbles once."""

    ends_well: bool
    token: str
    number: int

    def call(self, tx: StepContext, env: World) -> Answer:
        """Write one."""
        env.put(f"row-{self.number}", self.token)
        tx.progress(f"{self.number} of {ROWS}")
        if self.number == 1 and env.stumbles("call"):
            raise OSError("not yet")
        if self.number < ROWS - 1:
            return self.again(number=self.number + 1)
        return Publish(self.token) if self.ends_well else Doomed(self.token)

    def undo(self, tx: StepContext, env: World) -> None:
        """Remove all that any round may have written."""
        for number in range(ROWS):
            env.drop(f"row-{number}")


@step(version=1, namespace=NAMESPACE, pivot=True, retry=_ONCE)
class Publish(Step):
    """Does what cannot be undone, and stumbles once."""

    token: str

    def call(self, tx: StepContext, env: World) -> Answer:
        """Do it."""
        env.put("published", self.token)
        if env.stumbles("publish"):
            raise OSError("not yet")
        return Report(self.token)


@step(version=1, namespace=NAMESPACE)
class Report(Step):
    """Ends well."""

    token: str

    def call(self, tx: StepContext, env: World) -> Answer:
        """Say what was chosen."""
        return Done(self.token)


@step(version=1, namespace=NAMESPACE, retry=_ONCE)
class Doomed(Step):
    """Fails for good, half done, and can be undone the second time only."""

    token: str

    def call(self, tx: StepContext, env: World) -> Answer:
        """Do half of it, and raise what is not worth another try."""
        env.put("half", self.token)
        return "no step"  # type: ignore[return-value]  # a final failure

    def undo(self, tx: StepContext, env: World) -> None:
        """Remove the half."""
        if env.stumbles("undo"):
            raise OSError("not yet")
        env.drop("half")


@dataclass(frozen=True)
class End:
    """What is left when all is over."""

    files: tuple[str, ...]
    operations: tuple[tuple[str, bool], ...]
    """Status, and whether something was not undone."""
    locks: int
    workers: int


_STUMBLED: Final = "stumbled-call"
ENDS: Final = {
    True: End(
        ("published", *(f"row-{number}" for number in range(ROWS)), _STUMBLED, "stumbled-publish"),
        ((Status.SUCCESSFUL, False),),
        locks=0,
        workers=0,
    ),
    False: End((_STUMBLED, "stumbled-undo"), ((Status.FAILED, False),), locks=0, workers=0),
}
"""What an operation leaves that ends well, and one that does not, whoever died meanwhile."""


def end_of(folder: Path, fates: FateStore) -> End:
    """Look at everything that an operation leaves."""
    files = {path.name: path.read_text() for path in sorted(folder.iterdir())}
    operations = [one for one in fates.scan() if isinstance(one, Operation)]
    tokens = {text for text in files.values() if text}
    tokens |= {one.result for one in operations if one.status is Status.SUCCESSFUL}
    assert len(tokens) <= 1, f"of several lives: {files}, {operations}"
    check_sound(fates)
    return End(
        tuple(files),
        tuple((one.status, bool(one.undo_errors)) for one in operations),
        len(Locks(fates).states()),
        len(fates.worker_names()),
    )


def check_sound(fates: FateStore) -> None:
    """Say what is true of every record after every write, whatever comes next."""
    for one in fates.scan():
        assert isinstance(one, Operation), one
        is_over = one.status in FINISHED
        turned = one.status in (Status.FAILED_IN_PROGRESS, Status.FAILED)
        assert (one.exception is not None) == turned, one
        assert bool(one.stack) == (not is_over), one
        assert (one.finished_ms is not None) == is_over, one
        assert one.reservation is None or not is_over, one
        assert one.result is None or one.status is Status.SUCCESSFUL, one
        assert not (one.is_past_pivot and turned), one
