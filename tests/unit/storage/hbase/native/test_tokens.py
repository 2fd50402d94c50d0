"""Tokens: asked for, read, shown to nobody, handed on, and of no use once they ended."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.storage.handed import HandedStore, handed
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.calling.calls import Calls
from omidpy.storage.hbase.native.faults import Garbled, NoTicket
from omidpy.storage.hbase.native.security import kerberos, tokens
from omidpy.storage.hbase.native.security.sasl import DIGEST, KERBEROS
from omidpy.storage.hbase.native.security.settings import security_of
from omidpy.storage.hbase.native.security.tokens import Source, Token, read_token, token_request
from omidpy.storage.memory import MemoryStore
from omidpy.wire.protobuf import put_bytes, put_uint64
from tests.machines.fake_hbase import FakeHBase, Reply, client_of, fault
from tests.machines.hbase_messages import message
from tests.machines.waiting import wait_for

URL = "hbase+rpc://localhost:1?sasl=gssapi"


def issued(issued_ms: int, ends_ms: int, *, is_framed: bool = True) -> Token:
    """Return a token of some time."""
    body = bytearray()
    put_bytes(body, 0x12, b"alice@HERE")
    put_uint64(body, 0x20, issued_ms)
    put_uint64(body, 0x28, ends_ms)
    length = len(body).to_bytes(4) if is_framed else b""
    return Token(length + bytes(body), b"hidden word", "an-hbase")


@pytest.fixture(name="token")
def handed_token() -> Iterator[Token]:
    """Return a token for `URL`, which is forgotten behind the test."""
    yield issued(1000, 2**50)
    tokens._held.clear()


def test_the_catalogues_region_is_asked_for_one() -> None:
    """As the protocol's own library reads it."""
    asked = message("CoprocessorServiceRequest")
    asked.ParseFromString(token_request())
    assert (asked.region.type, asked.region.value) == (1, b"hbase:meta,,1")
    assert asked.call.service_name == "AuthenticationService"
    assert asked.call.method_name == "GetAuthenticationToken"
    assert (asked.call.row, asked.call.request) == (b"", b"")


def _answer(token: bytes) -> bytes:
    value, pair, out = bytearray(), bytearray(), bytearray()
    put_bytes(value, 0x0A, token)
    put_bytes(pair, 0x12, value)
    put_bytes(out, 0x12, pair)
    return bytes(out)


def test_a_token_is_read_and_anything_else_refused() -> None:
    """Nobody goes on with half of one."""
    assert read_token(_answer(b"\x0a\x01i\x12\x01p\x1a\x01s")) == Token(b"i", b"p", "s")
    for body in (b"", b"\xff", _answer(b"\x0a\x01i"), _answer(b"\x12\x01p")):
        with pytest.raises(Garbled):
            read_token(body)


@pytest.mark.parametrize("is_framed", [True, False])
def test_a_token_says_when_it_ends(*, is_framed: bool) -> None:
    """By HBase 2.6 with its length before it."""
    token = issued(1000, 3000, is_framed=is_framed)
    assert (token.issued_ms, token.ends_ms) == (1000, 3000)
    assert token.is_good_for_long(1999)
    assert not token.is_good_for_long(2000)
    token.check(2999)
    with pytest.raises(
        NoTicket, match=r"has ended, by the date of this machine; .* start the job again"
    ):
        token.check(3000)
    Token(b"\xff\xff", b"p").check(3000)  # it does not say; the server does


def test_a_token_is_shown_to_nobody(token: Token) -> None:
    """Whatever is logged of what carries it."""
    sent = HandedStore(URL, token)
    for text in (repr(token), str(sent), f"{sent!r}"):
        assert "hidden" not in text
        assert "alice" not in text
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_a_token_is_fetched_again_when_half_of_its_time_is_over() -> None:
    """So that a task has it for days, and a job of many steps asks once."""
    now_ms, fetched = [1000], []
    of_hbase_ms = 3 * 365 * 86_400_000  # its date is another, and that counts for nothing

    def fetch() -> Token:
        fetched.append(now_ms[0])
        return issued(of_hbase_ms + now_ms[0], of_hbase_ms + now_ms[0] + 1000)

    source = Source(fetch, lambda: now_ms[0] / 1000)
    for now in (1000, 1400, 1600, 1601, 2101):
        now_ms[0] = now
        source.token()
    assert fetched == [1000, 1600, 2101]


def test_a_process_uses_what_it_was_handed(token: Token, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library of Kerberos, and hands it on in its turn."""
    monkeypatch.setattr(kerberos, "load_gssapi", lambda url: pytest.fail(f"asked for {url}"))
    store = NativeStore(HandedStore(URL, token).accept())
    assert handed(store) == HandedStore(URL, token)
    store.close()
    assert security_of(parse_native(URL)).mechanism("localhost").code == DIGEST
    tokens._held.clear()
    tokens.hold(URL, issued(1, 2))
    with pytest.raises(NoTicket, match="has ended"):
        security_of(parse_native(URL)).mechanism("localhost")


def test_the_younger_of_two_tokens_is_used(token: Token) -> None:
    """Tasks that were sent early run in the same process as those that were sent late."""
    younger = issued(2000, token.ends_ms + 1)
    for one in (token, younger, token):
        HandedStore(URL, one).accept()
    assert tokens.held(URL) == younger
    silent = Token(b"i", b"p")
    tokens.hold(URL, silent)
    assert tokens.held(URL) == silent, "it does not say when it ends"


@pytest.mark.parametrize("has_ticket", [True, False])
def test_a_process_of_the_driver_fetches_another_in_time(
    token: Token, monkeypatch: pytest.MonkeyPatch, *, has_ticket: bool
) -> None:
    """It was handed the token of a job that it ended; what it sends next must go on for long."""
    now_ms = SystemClock().wall_ms()
    old = issued(now_ms - 2000, now_ms + 1000)
    fresh = issued(now_ms, now_ms + 1000)
    monkeypatch.setattr(kerberos, "has_ticket", lambda: has_ticket)
    store = NativeStore(HandedStore(URL, old).accept())
    monkeypatch.setattr(store._tokens, "_fetch", lambda: fresh)
    assert store.token_to_hand_on() == (fresh if has_ticket else old)
    tokens.hold(URL, token)
    assert store.token_to_hand_on() == token, "it is good for long"
    store.close()


def test_a_child_of_a_process_that_fetches_a_token_fetches_its_own() -> None:
    """The thread that fetches is not in the child, and would be waited for there for ever."""
    gate = threading.Event()
    source = Source(lambda: issued(gate.wait(20), 2**50))
    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(source.token)
        wait_for(fetched.running, 20)
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            try:
                gate.set()
                source.token()
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        gate.set()
        assert fetched.result(20).ends_ms == 2**50


def test_another_token_is_fetched_by_a_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token gets no other token."""
    tokens.hold(URL, issued(1000, 2**50))
    shown: list[str] = []

    def show(gssapi: object, principal: str, protection: str) -> Any:
        shown.append(principal)
        raise NoTicket("none today")

    monkeypatch.setattr(kerberos, "load_gssapi", lambda _: None)
    monkeypatch.setattr(kerberos, "Gssapi", show)
    with FakeHBase(lambda _: Reply()) as fake:
        address = parse_native(f"hbase+rpc://127.0.0.1:{fake.port}?sasl=gssapi&retry_s=0")
        tokens.hold(address.url, issued(1000, 2**50))
        calls = Calls(address)
        with pytest.raises(StorageUnavailable, match="none today"):
            calls.fetch_token()
        calls.close()
    assert shown == ["hbase/127.0.0.1"]
    tokens._held.clear()


def test_behind_the_end_of_its_token_a_process_shows_its_ticket(
    token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it has one."""
    del token
    tokens.hold(URL, issued(1, 2))
    monkeypatch.setattr(kerberos, "load_gssapi", lambda _: None)
    monkeypatch.setattr(kerberos, "Gssapi", lambda *_: SimpleNamespace(code=KERBEROS))
    security = security_of(parse_native(URL))
    monkeypatch.setattr(kerberos, "has_ticket", lambda: True)
    assert security.mechanism("localhost").code == KERBEROS
    monkeypatch.setattr(kerberos, "has_ticket", lambda: False)
    with pytest.raises(NoTicket, match="has ended"):
        security.mechanism("localhost")


class _Failure(Exception):
    """What the library raises."""


@pytest.mark.parametrize(
    ("lifetime", "expected"), [(0, False), (60, True), (None, True), (_Failure(), False)]
)
def test_a_ticket_counts_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, lifetime: object, *, expected: bool
) -> None:
    """And without the library there is none."""

    def credentials(usage: str) -> SimpleNamespace:
        assert usage == "initiate"
        if isinstance(lifetime, Exception):
            raise lifetime
        return SimpleNamespace(lifetime=lifetime)

    library = SimpleNamespace(
        Credentials=credentials, exceptions=SimpleNamespace(GSSError=_Failure)
    )
    monkeypatch.setitem(sys.modules, "gssapi", library)
    assert kerberos.has_ticket() is expected
    monkeypatch.setitem(sys.modules, "gssapi", None)
    assert not kerberos.has_ticket()


def test_other_stores_are_handed_on_by_their_address() -> None:
    """Nothing is secret about it."""
    store = MemoryStore()
    assert handed(store) == HandedStore("memory:")
    assert handed(store, "elsewhere").accept() == "elsewhere"
    plain = NativeStore("hbase+rpc://localhost:1")
    assert handed(plain).token is None
    plain.close()


def test_an_hbase_that_gives_no_tokens_out_is_named() -> None:
    """With the setting that makes it; one that does is believed."""
    text = "No registered coprocessor service found for AuthenticationService in region hbase:meta"
    refusal = fault("exceptions.UnknownProtocolException", text)
    answers = [refusal, Reply(_answer(b"\x0a\x01i\x12\x01p"))]
    with FakeHBase(lambda _: answers[0]) as fake:
        client = client_of(fake, options="retry_s=0")
        with pytest.raises(ConfigError, match=r"region\.classes has .*TokenProvider"):
            client.calls.fetch_token()
        answers.pop(0)
        assert client.calls.fetch_token() == Token(b"i", b"p")
        client.close()
