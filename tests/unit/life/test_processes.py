"""A process is dead only where the kernel says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from omidpy.life.processes import Process, has_ended, this_process

DESCRIBE = (
    "import msgspec, sys; from omidpy.life.processes import this_process; "
    "print(msgspec.json.encode(this_process()).decode(), flush=True); sys.stdin.read()"
)

pytestmark = pytest.mark.skipif(not this_process().place, reason="the kernel does not tell")


@contextmanager
def another() -> Iterator[tuple[subprocess.Popen[str], Process]]:
    """Start a process that says which one it is, and goes on until it is told to end."""
    child = subprocess.Popen(
        [sys.executable, "-c", DESCRIBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        yield child, msgspec.json.decode(child.stdout.readline(), type=Process)
    finally:
        child.kill()
        child.communicate()


def test_a_process_has_ended_once_it_was_killed_though_nobody_asked_for_it() -> None:
    """A zombie has a number still."""
    with another() as (child, process):
        assert not has_ended(process)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(process), "as a zombie"
        child.wait()
        assert has_ended(process)


def test_a_number_that_was_given_anew_names_another_process() -> None:
    """There are thirty thousand of them, and machines run for years."""
    me = this_process()
    assert not has_ended(me)
    assert has_ended(msgspec.structs.replace(me, begun=me.begun - 1))


@pytest.mark.parametrize("place", ["", "another boot"])
def test_nobody_knows_of_processes_elsewhere(place: str) -> None:
    """Another machine, or another container on this one, has numbers of its own."""
    with another() as (child, process):
        child.kill()
        child.wait()
        assert not has_ended(msgspec.structs.replace(process, place=place))


def test_a_forked_child_is_another_process() -> None:
    """What was found out about its parent does not hold for it."""
    reader, writer = os.pipe()
    this_process()
    if not (pid := os.fork()):
        os.write(writer, msgspec.json.encode(this_process()))
        os._exit(0)
    os.waitpid(pid, 0)
    child = msgspec.json.decode(os.read(reader, 1000), type=Process)
    os.close(reader)
    os.close(writer)
    assert child.pid == pid
    assert has_ended(child)
