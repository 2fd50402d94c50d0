"""Who may change something: tokens, sessions, proofs, and where a form comes from."""

from __future__ import annotations

import hmac
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import omidpy
from omidpy.base.timing.clock import SystemClock
from omidpy.console import app, deeds, people
from omidpy.console.deeds import Journal
from omidpy.console.people import SESSION_S, Sessions, Tokens, is_ours
from omidpy.errors import ConfigError
from omidpy.fate.operation import FateId, Status
from omidpy.fate.table.store import TableFateStore
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import ExportQueue
from tests.machines.console import Strict, add_operations, ask, over, proof_in, signed_in
from tests.machines.threads import refuse_threads

ALICE: Final = "a" * 24
BOB: Final = "b" * 24


class World:
    """A store with operations and a queue, and a console that may change them."""

    def __init__(self, tm: TransactionManager, folder: Path, **options: Any) -> None:
        self.tm = tm
        self.path = folder / "journal"
        self.journal = Journal(str(self.path))
        self.ids = add_operations(tm.store, now=1_700_000_000_000_000_000)
        self.queue = ExportQueue.create(tm, "q", buckets=1)
        tokens = Tokens({"alice": ALICE, "bob": BOB})
        options = {"tokens": tokens, **options}
        self.console = over(tm, journal=self.journal, **options)

    def status(self, name: str) -> Status | None:
        """Return how an operation is."""
        found = TableFateStore(self.tm.store).read(FateId(self.ids[name]))
        return None if found is None else found.status

    def lines(self) -> list[dict[str, Any]]:
        """Return what is in the journal."""
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Give one with tokens."""
    with omidpy.connect("memory:", post_commit="sync") as tm:
        made = World(tm, tmp_path)
        yield made
        made.journal.close()


def deed(world: World, name: str, form: dict[str, str], **options: Any) -> int:
    """Ask for something with a form; return the status of the answer."""
    return ask(world.console, f"/deeds/{name}", form=form, **options).status


def test_an_operation_is_cancelled_by_whoever_has_a_token(world: World) -> None:
    """And the journal has it twice: before it was done, and what became of it."""
    cookie = signed_in(world.console, ALICE)
    page = ask(world.console, "/operations", cookie=cookie).text
    form = {"id": world.ids["waiting"], "proof": proof_in(page)}
    answered = ask(world.console, "/deeds/cancel", form=form, cookie=cookie)
    assert answered.status == 303
    assert world.status("waiting") is Status.FAILED_IN_PROGRESS
    asked, done = world.lines()
    assert (asked["state"], done["state"]) == ("asked", "done")
    for line in (asked, done):
        assert (line["who"], line["by"], line["peer"]) == ("alice", "token", "127.0.0.1")
        assert (line["deed"], line["about"]) == ("cancel", {"id": world.ids["waiting"]})
    shown = ask(world.console, answered.headers["location"], cookie=cookie).text
    assert f"FaTE transaction {world.ids['waiting']} was cancelled" in shown
    assert "alice, by token" in shown


@pytest.mark.parametrize(
    ("name", "which", "after"),
    [("fail", "going", Status.FAILED_IN_PROGRESS), ("delete", "failed", None)],
)
def test_operations_are_failed_and_deleted(
    world: World, name: str, which: str, after: Status | None
) -> None:
    """As by the command."""
    cookie = signed_in(world.console, ALICE)
    proof = proof_in(ask(world.console, "/operations", cookie=cookie).text)
    assert deed(world, name, {"id": world.ids[which], "proof": proof}, cookie=cookie) == 303
    assert world.status(which) is after


def test_what_is_refused_is_told_and_noted(world: World) -> None:
    """What is under way cannot be cancelled, and what is not there cannot be failed."""
    cookie = signed_in(world.console, ALICE)
    proof = proof_in(ask(world.console, "/operations", cookie=cookie).text)
    assert deed(world, "cancel", {"id": world.ids["going"], "proof": proof}, cookie=cookie) == 303
    assert deed(world, "fail", {"id": "no id", "proof": proof}, cookie=cookie) == 303
    assert [line["state"] for line in world.lines()] == ["asked", "refused", "asked", "failed"]
    assert "was not cancelled" in world.lines()[1]["told"]
    assert world.status("going") is Status.IN_PROGRESS


def test_dead_letters_are_tried_again_by_key(world: World) -> None:
    """Of this key alone."""
    with world.tm.begin() as tx:
        for key in (b"bad-1", b"bad-2"):
            world.queue.add(tx, key, 1)
    world.queue.runner(Strict()).run_once(wait_s=0)
    cookie = signed_in(world.console, BOB)
    page = ask(world.console, "/queues", cookie=cookie).text
    form = {"queue": "q", "key": b"bad-2".hex(), "proof": proof_in(page)}
    assert form["key"] in page
    assert deed(world, "retry", form, cookie=cookie) == 303
    states = {one.key: one.state for one in world.queue.dead_letters()}
    assert states == {b"bad-1": "poison", b"bad-2": "retry"}
    assert world.lines()[-1]["told"] == "1 dead letters of q are tried again"


def test_a_job_is_resumed_or_taken_back_in_a_folder_of_ours_alone(
    tmp_path: Path, moto_bucket: str
) -> None:
    """Whoever may change something here names no folder that the console was not given."""
    from omidpy.console.sources import Addresses
    from tests.machines.s3.crashing import Death, Died
    from tests.machines.s3.jobs import begun, store_of, visible

    addresses = Addresses("memory:", folders=(f"s3://{moto_bucket}/out",))
    with omidpy.connect("memory:") as tm:
        world = World(tm, tmp_path, addresses=addresses)
        cookie = signed_in(world.console, ALICE)
        for name, at in (("resume", 3), ("rollback", 0)):
            job = begun("a", inline_bytes=0)
            Death(at, is_answered=True).watch(store_of(job))
            with pytest.raises(Died):
                job.commit()
            page = ask(world.console, "/jobs", cookie=cookie).text
            plan = f"s3://{moto_bucket}/out/_omidpy/{job.id}/plan.json"
            assert plan in page
            form = {"plan": plan, "proof": proof_in(page)}
            elsewhere = {**form, "plan": plan.replace("/out/", "/other/")}
            assert deed(world, name, elsewhere, cookie=cookie) == 303
            assert "in no folder" in world.lines()[-1]["told"]
            assert deed(world, name, form, cookie=cookie) == 303
            assert world.lines()[-1]["state"] == "done", world.lines()[-1]["told"]
            assert visible(world.console.sources.objects()) == ["a"]
        world.journal.close()


@pytest.mark.parametrize("name", sorted(deeds.DEEDS))
def test_without_a_journal_nothing_can_be_changed(world: World, name: str) -> None:
    """Read-only is the default, whatever somebody sends."""
    console = over(world.tm)
    for cookie in ("", f"{people.COOKIE}=x"):
        answered = ask(console, f"/deeds/{name}", form={"id": world.ids["going"]}, cookie=cookie)
        assert answered.status == 404
    assert ask(console, "/sign-in").status == 404
    assert world.status("going") is Status.IN_PROGRESS


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"cookie": ""}, 403),
        ({"cookie": f"{people.COOKIE}=nonsense"}, 403),
        ({"origin": None}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://stranger.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"proof": ""}, 403),
        ({"proof": "0" * 64}, 403),
        ({"proof": "bob"}, 403),
        ({"proof": "ü"}, 403),
    ],
)
def test_a_form_that_is_not_ours_changes_nothing(
    world: World, changes: dict[str, Any], status: int
) -> None:
    """Another site's page sends forms with the cookies of whoever looks at it."""
    cookie = signed_in(world.console, ALICE)
    proof = proof_in(ask(world.console, "/operations", cookie=cookie).text)
    if changes.get("proof") == "bob":
        bobs = signed_in(world.console, BOB)
        changes = {"proof": proof_in(ask(world.console, "/operations", cookie=bobs).text)}
    form = {"id": world.ids["waiting"], "proof": changes.pop("proof", proof)}
    assert deed(world, "cancel", form, **{"cookie": cookie, **changes}) == status
    assert world.status("waiting") is Status.SUBMITTED
    assert world.lines() == []


def test_a_deed_is_no_page(world: World) -> None:
    """An image of another site's page, or a link that is followed ahead of time, asks by GET."""
    cookie = signed_in(world.console, ALICE)
    assert ask(world.console, "/deeds/cancel?id=x", cookie=cookie).status == 405
    assert ask(world.console, "/sign-out", cookie=cookie).status == 404
    assert "alice" in ask(world.console, "/jobs", cookie=cookie).text


def test_a_form_that_is_too_long_is_not_read(world: World) -> None:
    """Memory is not for whoever sends most."""
    cookie = signed_in(world.console, ALICE)
    assert deed(world, "cancel", {"id": "x" * app.MAX_FORM_BYTES}, cookie=cookie) == 413


def test_nothing_is_done_that_cannot_be_noted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deed without a record of who did it is what the journal is there against."""
    cookie = signed_in(world.console, ALICE)
    proof = proof_in(ask(world.console, "/operations", cookie=cookie).text)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    form = {"id": world.ids["waiting"], "proof": proof}
    assert deed(world, "cancel", form, cookie=cookie) == 503
    assert world.status("waiting") is Status.SUBMITTED


@pytest.mark.parametrize("written", [0, 40])
def test_what_could_not_be_noted_is_not_noted_later_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """It was kept for the next line, and then the journal had a deed that was never begun."""
    person = people.Person("alice", "token", "secret")
    path = tmp_path / "journal"
    journal = Journal(str(path))
    file = journal._file

    class Full:
        """Takes so many bytes, and then no more."""

        left = written
        fileno = staticmethod(file.fileno)

        def write(self, data: bytes) -> int:
            taken, self.left = data[: self.left], 0
            if not taken:
                raise OSError(28, "No space left on device")
            return file.write(taken)

    monkeypatch.setattr(journal, "_file", Full())
    with pytest.raises(OSError, match="No space"):
        journal.begin(person, "::1", "delete", {"id": "refused"})
    monkeypatch.setattr(journal, "_file", file)
    journal.end(journal.begin(person, "::1", "cancel", {"id": "x"}), "done", "it was")
    journal.close()
    lines = path.read_text().splitlines()
    whole = [json.loads(line) for line in lines[bool(written) :]]
    assert [(one["deed"], one["state"]) for one in whole] == [
        ("cancel", "asked"),
        ("cancel", "done"),
    ]
    assert len(journal.entries) == 1


def test_what_a_full_disk_refused_does_not_come_with_the_next_line(tmp_path: Path) -> None:
    """A buffer would keep it for then."""
    person = people.Person("alice", "token", "secret")
    path = tmp_path / "journal"
    journal = Journal(str(path))
    descriptor = journal._file.fileno()
    disk, full = os.dup(descriptor), os.open("/dev/full", os.O_WRONLY)
    try:
        os.dup2(full, descriptor)
        with pytest.raises(OSError, match="No space"):
            journal.begin(person, "::1", "delete", {"id": "refused"})
        os.dup2(disk, descriptor)
    finally:
        os.close(disk)
        os.close(full)
    journal.begin(person, "::1", "cancel", {"id": "x"})
    journal.close()
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["deed"] == "cancel"


def test_a_deed_for_which_no_thread_starts_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for ever, and the console could not end: it waited for what had not begun."""
    cookie = signed_in(world.console, ALICE)
    proof = proof_in(ask(world.console, "/operations", cookie=cookie).text)
    goes_on = refuse_threads(monkeypatch, "console deed")
    form = {"id": world.ids["waiting"], "proof": proof}
    answered = ask(world.console, "/deeds/cancel", form=form, cookie=cookie)
    goes_on()
    page = ask(world.console, answered.headers["location"], cookie=cookie).text
    assert "nothing was done: can&#39;t start new thread" in page
    assert [line["state"] for line in world.lines()] == ["asked", "refused"]
    world.console.finish()


def test_a_deed_that_takes_long_is_noted_when_it_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page does not wait for it for ever."""
    go_on = threading.Event()
    slow = deeds.Deed("cancel", "operations", ("id",), lambda *_: str(go_on.wait(30)))
    monkeypatch.setitem(deeds.DEEDS, "cancel", slow)
    monkeypatch.setattr(app, "DEED_DEADLINE_S", 0.05)
    cookie = signed_in(world.console, ALICE)
    proof = proof_in(ask(world.console, "/operations", cookie=cookie).text)
    answered = ask(world.console, "/deeds/cancel", form={"id": "1", "proof": proof}, cookie=cookie)
    page = ask(world.console, answered.headers["location"], cookie=cookie).text
    assert "It is still at work" in page
    assert [line["state"] for line in world.lines()] == ["asked"]
    go_on.set()
    world.console.finish()
    assert [line["state"] for line in world.lines()] == ["asked", "done"]


def test_a_wrong_token_lets_nobody_in(world: World) -> None:
    """And says nothing of how wrong it is."""
    for token in ("", "a", "a" * 23, "a" * 25, "ü" * 24):
        answered = ask(world.console, "/sign-in", form={"token": token})
        assert answered.status == 403
        assert "set-cookie" not in answered.headers
    assert ask(world.console, "/sign-in", form={"token": ALICE}, origin=None).status == 403


def test_every_token_is_compared_in_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long an answer takes must not say how much of a token was right, nor whose it is."""
    seen: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        seen.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    tokens = Tokens({"alice": ALICE, "bob": BOB})
    for token in (ALICE, BOB, "x"):
        seen.clear()
        assert tokens.owner(token) == {ALICE: "alice", BOB: "bob"}.get(token)
        assert len(seen) == 2
        assert {len(one) for pair in seen for one in pair} == {32}


def test_a_cookie_is_no_pages_and_no_other_sites(world: World) -> None:
    """Nor a token: that is not in it."""
    cookie = ask(world.console, "/sign-in", form={"token": ALICE}).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ALICE not in cookie
    assert "Secure" not in cookie
    with omidpy.connect("memory:") as tm:
        secure = over(tm, journal=world.journal, tokens=Tokens({"a": ALICE}), is_secure=True)
        assert "Secure" in ask(secure, "/sign-in", form={"token": ALICE}).headers["set-cookie"]


def test_whoever_signs_out_is_nobody(world: World) -> None:
    """Also by the cookie that somebody kept."""
    cookie = signed_in(world.console, ALICE)
    assert "alice may change something" in ask(world.console, "/jobs", cookie=cookie).text
    assert ask(world.console, "/sign-out", form={}, cookie=cookie).status == 303
    assert "alice" not in ask(world.console, "/jobs", cookie=cookie).text


def test_the_time_asleep_counts() -> None:
    """A laptop that was closed over night let him in who had it in the morning."""
    assert Sessions()._clock is SystemClock.monotonic_s


def test_a_session_ends_after_a_working_day() -> None:
    """A cookie that was left somewhere is worth nothing the next morning."""
    now_s = 0.0
    sessions = Sessions(lambda: now_s)
    number = sessions.begin("alice")
    now_s = SESSION_S
    assert sessions.of(number) is not None
    now_s = SESSION_S + 1
    assert sessions.of(number) is None


@pytest.mark.parametrize(
    ("name", "may"), [("ops", True), ("etl", False), ("", False), (None, False)]
)
def test_a_certificate_says_who_may(tmp_path: Path, name: str | None, *, may: bool) -> None:
    """By its role, as at the oracle; nobody signs in then."""
    with omidpy.connect("memory:") as tm:
        world = World(tm, tmp_path, tokens=None, is_operator=lambda one: one in ("ops", ""))
        text = ask(world.console, "/operations", peer=name).text
        assert ("<button" in text) is may
        if may:
            form = {"id": world.ids["waiting"], "proof": proof_in(text)}
            assert deed(world, "cancel", form, peer="etl") == 403
            assert deed(world, "cancel", form) == 403
            assert deed(world, "cancel", form, peer=name) == 303
            assert (world.lines()[-1]["who"], world.lines()[-1]["by"]) == ("ops", "certificate")
        world.journal.close()


def test_a_certificate_says_nothing_where_none_was_asked_for(world: World) -> None:
    """A name that nobody has verified is a word."""
    assert "<button" not in ask(world.console, "/operations", peer="alice").text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "names nobody"),
        ("# nobody\n\n", "names nobody"),
        ("alice short\n", "at least 24"),
        (f"alice {ALICE} more\n", "line 1"),
        (f"alice {ALICE}\nalice {BOB}\n", "line 2"),
        (ALICE, "NAME TOKEN"),
    ],
)
def test_a_file_of_tokens_that_does_not_fit_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    """Before anybody is let in by half of it; the error names no token."""
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=problem) as caught:
        Tokens.read(str(path))
    assert ALICE not in str(caught.value)


def test_a_file_of_tokens_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """They could change something in somebody's name."""
    path = tmp_path / "tokens"
    path.write_text(f"# who\nalice {ALICE}\n")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Tokens.read(str(path))
    path.chmod(0o600)
    assert Tokens.read(str(path)).owner(ALICE) == "alice"
    with pytest.raises(ConfigError, match="nowhere"):
        Tokens.read(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        ("http://localhost:8080", "localhost:8080", True),
        ("https://console.example", "console.example", True),
        ("http://localhost:8080", "localhost", False),
        ("null", "null", False),
        ("", "", False),
        (None, "localhost", False),
    ],
)
def test_where_a_form_comes_from(origin: str | None, host: str, *, expected: bool) -> None:
    """Browsers tell it, and scripts cannot say otherwise."""
    assert is_ours(origin, host) is expected


def test_the_journal_is_the_owners_alone_and_goes_on(tmp_path: Path) -> None:
    """A second start appends."""
    path = tmp_path / "journal"
    person = people.Person("alice", "token", "")
    for _ in range(2):
        journal = Journal(str(path))
        journal.end(journal.begin(person, "::1", "cancel", {"id": "\n<x>"}), "done", "it\nwas")
        journal.close()
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["state"] for line in lines] == ["asked", "done"] * 2
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="--journal"):
        Journal(str(tmp_path))
