"""The collector of cycles waits, and goes on as it was."""

from __future__ import annotations

import gc

import pytest

from omidpy.base.collector import paused_collector


def test_it_waits_inside_and_goes_on_behind() -> None:
    """Also where one pause is inside of another, and where what is made fails."""
    assert gc.isenabled(), "otherwise nothing is looked at"
    with paused_collector():
        assert not gc.isenabled()
        with pytest.raises(ZeroDivisionError), paused_collector():
            _ = 1 / 0
        assert not gc.isenabled()
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    """It is its program's to turn on."""
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
