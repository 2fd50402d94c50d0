"""Executors and the processes that are forked from theirs: whose operation is it?"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.machines.scripts import Child

COMMON = """
    import os, signal, sys, threading
    from omidpy.fate import Done, Fate, Status, Step, TableFateStore, step
    from omidpy.storage.sqlite import SqliteStore

    @step(version=1, namespace="test-fork")
    class Count(Step):
        def call(self, tx, env):
            return Done(os.getpid())

    store = SqliteStore(sys.argv[1])
    fates = TableFateStore(store)
    signal.alarm(40)

    def in_child(work):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                work()
            except BaseException:
                import traceback; traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
"""

HELD_LOCKS = """
    fate = Fate(None, fates, poll_s=0.05).start()
    taken, go_on = threading.Event(), threading.Event()

    def hold():
        with fate._executor._lock, fate._mutex:
            taken.set()
            go_on.wait()

    threading.Thread(target=hold, daemon=True).start()
    taken.wait()

    def work():
        handle = fate.submit("TEST", Count())
        assert not fate.close() or True
        again = Fate(None, fates)
        again.run_pending()
        assert handle.wait(timeout=10) is Status.SUCCESSFUL

    in_child(work)
    go_on.set()
    assert fate.submit("TEST", Count()).result(timeout=10) == os.getpid()
    assert fate.close()
"""

OWN_WORKER = """
    fate = Fate(None, fates)
    fate.submit("TEST", Count())
    fate.run_pending()
    worker = fate._executor._worker

    def work():
        handle = fate.submit("TEST", Count())
        fate.run_pending()
        assert handle.result(timeout=10) == os.getpid()
        assert fate._executor._worker.id != worker.id
        fate.close()

    in_child(work)
    assert worker.beat()
    assert worker.is_trusted()
    assert fate.submit("TEST", Count()) and fate.run_pending() is None
"""

FORKING_STEP = """
    @step(version=1, namespace="test-fork")
    class Forks(Step):
        how: str

        def call(self, tx, env):
            child = os.fork()
            if child == 0:
                if self.how == "exits":
                    sys.exit(0)
                if self.how == "confirms":
                    tx.confirm()
                return Done("the child")
            os.waitpid(child, 0)
            found = fates.read(tx.id)
            assert found.reservation is not None, "the child has given it back"
            return Done("the parent")

    parent = os.getpid()
    fate = Fate(None, fates)
    handle = fate.submit("TEST", Forks(sys.argv[2]))
    try:
        fate.run_pending()
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert handle.result(timeout=10) == "the parent"
"""


def run(tmp_path: Path, script: str, *arguments: str) -> None:
    """Run a script over a store, to its good end."""
    whole = dedent(COMMON) + dedent(script) + "\nprint('done', flush=True)\n"
    with Child(whole, tmp_path / "w.db", *arguments) as child:
        assert child.line() == "done"


def test_no_child_waits_for_what_threads_of_its_parent_hold(tmp_path: Path) -> None:
    """They do not exist there, and nothing lets go of it."""
    run(tmp_path, HELD_LOCKS)


def test_a_child_is_another_worker(tmp_path: Path) -> None:
    """Of two processes with one worker each took the other's operations for its own."""
    run(tmp_path, OWN_WORKER)


@pytest.mark.parametrize("how", ["exits", "confirms", "returns"])
def test_a_child_that_a_step_forks_writes_nothing_of_its_operation(
    tmp_path: Path, how: str
) -> None:
    """One that ended by `sys.exit` gave back what its parent was at, and others ran it, too."""
    run(tmp_path, FORKING_STEP, how)
