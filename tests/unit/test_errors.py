"""The error tree: what every error says, and that it survives a trip between processes."""

from __future__ import annotations

import inspect
import pickle

import pytest

import omidpy
from omidpy import errors
from omidpy.model import Cell, CellName, Timestamp

CELL = CellName("t", b"r", b"f", b"q")


def all_errors() -> list[type[errors.OmidError]]:
    """Return every error that the tree defines."""
    return [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.OmidError)
    ]


def made(kind: type[errors.OmidError]) -> errors.OmidError:
    """Return an instance with everything it can carry."""
    if issubclass(kind, errors.CommitOutcomeUnknown):
        witness = ("t", Cell(b"r", b"f", b"q", 100, b"v"))
        return kind("what happened", start_ts=Timestamp(100), witness=witness)
    if issubclass(kind, errors.AlreadyCommitted):
        moments = {"start_ts": Timestamp(100), "commit_ts": Timestamp(150)}
        return kind("what happened", key=b"k", **moments)
    if issubclass(kind, errors.WriteConflict):
        return kind("what happened", cells=[CELL], retryable=False)
    return kind("what happened", retryable=True)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_with_all_it_carries(kind: type[errors.OmidError]) -> None:
    """Spark and multiprocessing pickle the errors of their tasks; one that cannot be hides them."""
    error = made(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "what happened"
    assert copy.retryable == error.retryable
    assert vars(copy) == vars(error)


def test_advice_ends_the_message_and_can_be_taken_back() -> None:
    """Whoever has tried in vain is told how that ended instead."""
    error = errors.WriteConflict("two wrote it", advice="try again", cells=[CELL])
    assert (str(error), error.event) == ("two wrote it; try again", "two wrote it")
    assert pickle.loads(pickle.dumps(error)).event == "two wrote it"
    error.give_up("tried twice")
    assert (str(error), error.event, error.advice) == (
        "two wrote it; tried twice",
        "two wrote it; tried twice",
        "",
    )


def test_every_error_is_importable_from_the_package() -> None:
    """`except omidpy.NoSuchTable` is what one writes without looking anything up."""
    for kind in all_errors():
        assert getattr(omidpy, kind.__name__) is kind
        assert kind.__name__ in omidpy.__all__


def test_only_what_has_not_committed_is_retryable() -> None:
    """A retry after an unknown outcome could apply a transaction twice."""
    retryable = {kind for kind in all_errors() if kind.retryable}
    aborted = {kind for kind in all_errors() if issubclass(kind, errors.TransactionAborted)}
    assert retryable == aborted | {errors.OracleUnavailable, errors.QueueFull}
