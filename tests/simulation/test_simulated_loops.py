"""Threads and event loops of the simulator: they wait in virtual time, as their process does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from queue import Empty
from typing import Any, Final

import pytest

from tests.machines.simulator.loops import SimLoop
from tests.machines.simulator.plan import ALONE
from tests.machines.simulator.simulation import simulate
from tests.machines.simulator.threads import SimLock, SimQueue, Threading
from tests.machines.simulator.world import Process, SimClock, World

JUGGLED: Final = ALONE._replace(
    jugglers=(2,),
    juggle_pauses_s=(0.3,),
    juggle_cancel_shares=(0.3,),
    juggle_limit_shares=(0.5,),
    juggle_lives_s=((3.0, 10.0),),
)
"""Tasks that are cancelled and that run out of time, in loops of every end."""


def process(world: World) -> Process:
    """Return a process in which nothing runs yet."""
    return world.process("one", SimClock(world, "here", ahead_ms=0))


def in_a_loop(
    main: Callable[[], Coroutine[Any, Any, None]], *, abandoned_s: float | None = None
) -> tuple[World, list[object]]:
    """Run a coroutine in a loop of its own; return the world, and what it came to."""
    world = World(seed=0)
    came: list[object] = []

    def work() -> None:
        threading = Threading(world)
        loop = SimLoop(world, threading.pool())
        coroutine = main()
        if abandoned_s is not None:
            loop.run_and_abandon(coroutine, after_s=abandoned_s)
        else:
            loop.run(coroutine)
        came.append(world.now_s)
        threading.join()

    program = process(world).start(work)
    assert world.run(lambda: program.is_over, until_s=1000.0)
    world.end()
    return world, came


def test_who_waits_for_a_lock_hands_the_turn_on() -> None:
    """And has it once it is given back, or goes on without it when its time is over."""
    world = World(seed=0)
    lock = SimLock(world)
    came: list[tuple[object, float]] = []
    one = process(world)

    def hold() -> None:
        with lock:
            world.program.sleep(5.0)
        came.append(("held", world.now_s))

    def wait(seconds: float) -> None:
        world.program.sleep(1.0)
        came.append((lock.acquire(timeout=seconds), world.now_s))

    one.start(hold)
    one.start(lambda: wait(2.0))
    one.start(lambda: wait(-1))
    world.run(lambda: False, until_s=20.0)
    assert came == [(False, 3.0), ("held", 5.0), (True, 5.0)]
    assert lock.locked()


def test_who_reads_an_empty_queue_waits_for_what_is_put() -> None:
    """Or for so long as it may."""
    world = World(seed=0)
    queue: SimQueue[str] = SimQueue(world)
    came: list[object] = []

    def read() -> None:
        came.append((queue.get(), world.now_s))
        with pytest.raises(Empty):
            queue.get(timeout=2.0)
        came.append(world.now_s)

    def put() -> None:
        world.program.sleep(1.0)
        queue.put("one")

    one = process(world)
    one.start(read)
    one.start(put)
    world.run(lambda: False, until_s=20.0)
    assert came == [("one", 1.0), 3.0]


def test_a_loop_waits_in_virtual_time() -> None:
    """Ten minutes of asyncio, with its time limits, take no time."""
    seen: list[str] = []

    async def main() -> None:
        try:
            async with asyncio.timeout(600):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append("the time is over")

    _, came = in_a_loop(main)
    assert seen == ["the time is over"]
    assert came == [pytest.approx(600)]


def test_threads_of_a_loop_take_turns_with_it() -> None:
    """A task goes on beside a call of another one, and what was begun ends."""
    seen: list[str] = []
    worlds: list[World] = []

    def block() -> None:
        worlds[0].program.sleep(5.0)
        seen.append("the call")

    async def main() -> None:
        call = asyncio.ensure_future(asyncio.to_thread(block))
        await asyncio.sleep(1.0)
        seen.append("the task")
        await call

    world = World(seed=0)
    worlds.append(world)
    threading = Threading(world)
    program = process(world).start(lambda: SimLoop(world, threading.pool()).run(main()))
    assert world.run(lambda: program.is_over, until_s=100.0)
    world.end()
    assert seen == ["the task", "the call"]


def test_a_loop_that_ends_cancels_what_still_runs() -> None:
    """In the order in which it was begun."""
    seen: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(number)
            raise

    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        tasks.extend(asyncio.ensure_future(wait(number)) for number in range(20))
        await asyncio.sleep(1.0)

    in_a_loop(main)
    assert seen == list(range(20))


def test_no_task_of_an_abandoned_loop_goes_on() -> None:
    """It is unwound, and what it would begin then is not."""
    seen: list[str] = []

    async def late() -> None:
        seen.append("never")

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("unwound")
            await asyncio.ensure_future(late())
            seen.append("never")

    _, came = in_a_loop(main, abandoned_s=2.0)
    assert came == [pytest.approx(2.0)]
    assert seen == ["unwound"]


def test_a_seed_with_loops_gives_the_same_hash_in_another_process() -> None:
    """Whatever the addresses of tasks are there, and whenever the collector comes."""
    seed = 9
    command = (
        "import gc; gc.set_threshold(50, 5, 5); "
        "from tests.simulation.test_simulated_loops import JUGGLED; "
        "from tests.machines.simulator import simulation; "
        f"print(simulation.simulate({seed}, focus=JUGGLED).digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", command],
        env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert simulate(seed, focus=JUGGLED).digest == elsewhere


def test_tasks_that_are_cancelled_find_nothing() -> None:
    """Though they are so wherever they are, and their loops end in every way."""
    counts = sum((simulate_one(seed) for seed in range(2)), start=simulate_one(2))
    for what in ("well", "cancelled", "abandoned"):
        assert counts[f"loops that end {what}"] > 0, what
    for what in ("juggled committed", "tasks cancelled", "savepoints ended by TimeoutError"):
        assert counts[what] > 0, what


def simulate_one(seed: int) -> Counter[str]:
    """Return what was counted in a seed that finds nothing."""
    report = simulate(seed, focus=JUGGLED)
    assert not report.findings, report
    return report.counts
