"""Who takes turns at a session of ZooKeeper gives his turn back, wherever a ^C comes."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.fate.zookeeper import session as module
from omidpy.fate.zookeeper.session import Check, Create, Delete, Write, ZooKeeperSession
from omidpy.oracle.zookeeper import ZooKeeperAddress
from tests.machines.interrupts.lines import Interrupt, Interrupter

pytest.importorskip("kazoo")

DEADLINE_S: Final = 20.0

CALLS: Final[dict[str, Callable[[ZooKeeperSession], object]]] = {
    "sync": lambda session: session.sync(),
    "read": lambda session: session.read("/a"),
    "read_each": lambda session: session.read_each(["/a", "/b"]),
    "children": lambda session: session.children("/a"),
    "change": lambda session: session.change(
        [Create("/a", b""), Write("/a", b""), Delete("/a"), Check("/a", 1)]
    ),
    "make": lambda session: session.make("/a"),
    "create": lambda session: session.create("/a", b""),
    "owner_of": lambda session: session.owner_of("/a"),
}


class Answering:
    """A client of kazoo's whose calls are all answered at once."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Answer a call as the ensemble does."""
        stat = SimpleNamespace(version=1, owner_session_id=7)
        answers = {"get_async": (b"", stat), "exists_async": stat}
        found = answers.get(name, [])
        return lambda *_, **__: SimpleNamespace(get=lambda timeout: found)

    def transaction(self) -> Any:
        """Begin a change."""
        return self.Transaction()

    class Transaction:
        """A change, of which each part succeeds."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            """Take a part, or end it."""
            return lambda *_: SimpleNamespace(get=lambda timeout: [True])


class Silent(Exception):
    """Nobody answers."""


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> ZooKeeperSession:
    """Return a session in which callers take turns, as over TLS."""
    monkeypatch.setattr(module, "start_client", lambda _: (Answering(), (Silent,)))
    address = ZooKeeperAddress(hosts="zk:2281", namespace="n", client_options={"use_ssl": True})
    assert not address.is_pipelined
    return ZooKeeperSession(address)


def goes_on_elsewhere(session: ZooKeeperSession) -> bool:
    """Say whether another thread gets its turn."""
    done = threading.Event()

    def ask() -> None:
        session.sync()
        done.set()

    threading.Thread(target=ask, daemon=True).start()
    return done.wait(DEADLINE_S)


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_leaves_no_turn_taken(session: ZooKeeperSession, name: str) -> None:
    """Every other thread that runs operations would wait for ever."""
    interrupter = Interrupter()

    def call() -> object:
        return CALLS[name](session)

    numbers = interrupter.places(call)
    assert len(numbers) > 5
    for number in numbers:
        with pytest.raises(Interrupt):
            interrupter.interrupt(call, number, Interrupt())
        assert goes_on_elsewhere(session), interrupter.where


def test_all_calls_are_interrupted() -> None:
    """A new one is noticed."""
    public = {
        name for name, what in vars(ZooKeeperSession).items() if callable(what) and name[0] != "_"
    }
    assert public - {"close"} == CALLS.keys()


def test_a_silent_ensemble_is_told_in_our_words(session: ZooKeeperSession) -> None:
    """And the turn is given back."""

    def silent(_: object) -> None:
        raise Silent

    with pytest.raises(StorageUnavailable, match="zk:2281 gave no answer: Silent"):
        session._call(silent)
    assert goes_on_elsewhere(session)


def test_a_child_takes_no_turns_with_its_parent(
    session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a thread of the parent had at the fork is never given back in the child."""
    with session._turn():
        child = os.getpid() + 1
        monkeypatch.setattr(os, "getpid", lambda: child)
        assert goes_on_elsewhere(session)


def test_the_threads_of_a_child_begin_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them makes for as long as its session lives would be another session's."""
    begun: list[Answering] = []
    both = threading.Barrier(2)

    def start(_: object) -> tuple[Answering, tuple[type[Exception]]]:
        if begun:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.5)  # until another one begins, too, if it does
        begun.append(Answering())
        return begun[-1], (Silent,)

    monkeypatch.setattr(module, "start_client", start)
    session = ZooKeeperSession(ZooKeeperAddress(hosts="zk:2181", namespace="n"))
    assert session.address.is_pipelined
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    used: list[object] = []
    threads = [
        threading.Thread(target=session._call, args=(used.append,), daemon=True) for _ in range(2)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(DEADLINE_S)
    assert len(begun) == 2, "the parent's, and one of the child's"
    assert used == [begun[1]] * 2
