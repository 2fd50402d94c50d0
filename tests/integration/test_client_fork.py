"""A client on both sides of a fork: what is inherited does nothing, what may go on goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def run_script(script: str, *arguments: object) -> str:
    """Run a script in a Python of its own, where it may fork; return what it printed."""
    finished = subprocess.run(
        [
            *(sys.executable, "-W", "error"),
            # Newer Pythons warn of the very thing that is tested: a fork beside other threads.
            *("-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(script)),
            *map(str, arguments),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


FORK = """
    import os, sys
    from omidpy.errors import TransactionClosed
    from tests.machines.clients import TABLE, Client

    client = Client(post_commit="async")
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        table.put(b"flushed", {b"cf:q": b"v"})
        tx.flush()
        table.put(b"buffered", {b"cf:q": b"v"})
        raw = client.raw()
        child = os.fork()
        if child == 0:
            for use in (tx.commit, tx.rollback, tx.flush, lambda: table.row(b"r"),
                        lambda: table.put(b"r", {b"cf:q": b"v"}), tx.__enter__,
                        lambda: tx.__exit__(None, None, None)):
                try:
                    use()
                except TransactionClosed as error:
                    assert "before fork" in str(error)
                else:
                    os._exit(3)
            tx.__exit__(KeyError, KeyError("x"), None)
            os._exit(0 if client.raw() == raw and tx.status == "running" else 4)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    assert client.read(b"buffered") == {b"cf:q": b"v"}
    print("committed in the parent")
"""


def test_a_transaction_inherited_by_fork_does_nothing() -> None:
    """Two processes that end one transaction would tear it; the parent's goes on."""
    assert run_script(FORK) == "committed in the parent\n"


FORKED_HOLD = """
    import os
    from omidpy.errors import TransactionClosed
    from omidpy.facts.watermarks import HOLD_PREFIX
    from tests.machines.clients import Client

    client = Client()
    with client.tm.hold(client.tm.begin(), for_s=60) as held:
        child = os.fork()
        if child == 0:
            try:
                held.release()
            except TransactionClosed as error:
                assert "before fork" in str(error)
            else:
                os._exit(3)
            held.__exit__(None, None, None)
            os._exit(0 if list(client.tm.session.control.scan(HOLD_PREFIX)) else 4)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    assert not list(client.tm.session.control.scan(HOLD_PREFIX))
    print("released by its owner")
"""


def test_a_hold_inherited_by_fork_stays() -> None:
    """A child that leaves the block would take the parent's versions away from under it."""
    assert run_script(FORKED_HOLD) == "released by its owner\n"


FORKED_MANAGER = """
    import os, threading
    from tests.machines.clients import Client

    client = Client(post_commit="async")
    client.write(b"before")
    client.tm.session.post_committer.drain()
    locks = (client.tm.session.reader.resolver.cache._lock, client.tm._close_lock)
    held, forked = threading.Event(), threading.Event()

    def hold_everything():
        with locks[0], locks[1]:
            held.set()
            forked.wait(60)

    holder = threading.Thread(target=hold_everything)
    holder.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        client.write(b"after")
        assert client.read(b"after") == client.read(b"before") == {b"cf:q": b"v"}
        client.tm.close()
        os._exit(0)
    forked.set()
    holder.join()
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    print("went on")
"""


def test_a_manager_goes_on_in_a_forked_child() -> None:
    """Locks held by threads that are not there are left behind; the parent's queue is its own."""
    assert run_script(FORKED_MANAGER) == "went on\n"


EMBEDDED = """
    import os, sys
    import omidpy
    from omidpy.errors import ConfigError

    with omidpy.connect("sqlite:///" + sys.argv[1]) as tm:
        tm.create_table("t", ["cf"])
        child = os.fork()
        if child == 0:
            for use in (tm.begin, tm.tables, tm.low_watermark, tm.attempts, tm.snapshot,
                        lambda: tm.create_table("u", ["cf"]), lambda: tm.drop_table("t"),
                        lambda: tm.fence("t"), lambda: tm.outcome(100)):
                try:
                    use()
                except ConfigError as error:
                    if "tso-server" not in str(error):
                        os._exit(4)
                else:
                    os._exit(3)
            tm.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"v"})
        print("the parent goes on")
"""


def test_an_embedded_oracle_refuses_use_in_a_child(tmp_path: Path) -> None:
    """Two oracles on one store would hand out the same timestamps; the error says how to share."""
    assert run_script(EMBEDDED, tmp_path / "x.db") == "the parent goes on\n"


FORKED_JOB = """
    import os
    from unittest.mock import Mock
    from omidpy.committers.hadoop.staging import _StagedFile
    from omidpy.committers.jobs import Job
    from omidpy.committers.protocol import Attempt
    from omidpy.errors import CommitterError

    sent = []
    upload = Mock(write=sent.append)
    committer = Mock(commits_tasks_at_once=True)
    committer.recover_job.return_value = []
    committer.setup_task = lambda of: Attempt(of, "job", lambda path: _StagedFile(upload, path))

    with Job(committer) as job:
        with job.task() as task:
            file = task.open("part")
            file.write(b"once")
            calls = list(committer.mock_calls)
            child = os.fork()
            if child == 0:
                for use in (job.commit, job.abort, job.task, job.__enter__, task.commit, task.abort,
                            lambda: task.open("x"), lambda: task.write(None),
                            lambda: task.__exit__(None, None, None),
                            lambda: job.__exit__(None, None, None)):
                    try:
                        use()
                    except CommitterError as error:
                        assert "before fork" in str(error)
                    else:
                        os._exit(3)
                assert committer.mock_calls == calls
                raise SystemExit(0)  # through both blocks, and the end of a whole interpreter
            _, status = os.waitpid(child, 0)
            assert status == 0, status
            file.close()
            attempt, = job._open.values()
            attempt.files["part"].send()
        assert not committer.abort_task.called
    assert committer.commit_job.called and not committer.abort_job.called
    print(b"".join(sent).decode())
"""


def test_a_job_inherited_by_fork_does_nothing() -> None:
    """A child that ended within its block took back what the parent had written, or published it.

    And what the parent had staged was in its file twice, once from the child's copy of a buffer.
    """
    assert run_script(FORKED_JOB) == "once\n"


FORKED_AIO = """
    import asyncio, os, signal
    from omidpy import aio
    from tests.machines.clients import TABLE, Client

    client = Client()
    tm = aio.TransactionManager(client.tm)

    async def write(row):
        async with tm.begin() as tx:
            await tx.table(TABLE).put(row, {b"cf:q": b"v"})

    asyncio.run(write(b"before"))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        asyncio.run(write(b"after"))
        assert client.read(b"after") == client.read(b"before") == {b"cf:q": b"v"}
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    asyncio.run(write(b"parent"))
    print("went on")
"""


def test_a_manager_of_asyncio_goes_on_in_a_forked_child() -> None:
    """Its threads are the parent's; a call that waits for them can not even be cancelled."""
    assert run_script(FORKED_AIO) == "went on\n"


FORKED_QUEUE = """
    import os, signal, threading
    from omidpy.recipes.export_queue import ExportQueue
    from omidpy.recipes.export_queue.entries.bell import BELL
    from omidpy.recipes.export_queue.entries.stored.state import DEFINITION_AGE_S
    from tests.machines.clients import Client

    client = Client()
    queue = ExportQueue.create(client.tm, "q")
    runner = queue.runner(lambda batch: None)
    taken, go_on = threading.Event(), threading.Event()

    def hold():
        with queue._lock, BELL._lock, runner._lock:
            taken.set()
            go_on.wait()

    BELL.listen(queue._heard_as(), runner)
    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        client.clock.advance(2 * DEFINITION_AGE_S)
        with client.tm.begin() as tx:
            queue.add(tx, b"k", 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    go_on.set()
    thread.join()
    print("went on")
"""


def test_a_child_adds_to_a_queue_whatever_threads_of_its_parent_hold() -> None:
    """They export the queue, or read its definition at this moment, and do not exist there."""
    assert run_script(FORKED_QUEUE) == "went on\n"
