"""The steps of GSSAPI over a scripted library: what is offered, chosen, refused and told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from omidpy.storage.hbase.addresses.gateways import Protection
from omidpy.storage.hbase.native.faults import CallFailed, Disagreed, Garbled, NoTicket
from omidpy.storage.hbase.native.security.kerberos import Gssapi, principal_of


class Failure(Exception):
    """What the library raises."""


class Context:
    """A security context that is complete after two steps, and wraps by a mark."""

    def __init__(self, flags: int) -> None:
        self.flags = flags
        self.complete = False
        self.failure: str | None = None
        self.encrypts = True

    def step(self, token: bytes | None) -> bytes | None:
        """Greet, and then be content."""
        if self.failure is not None:
            raise Failure(self.failure)
        self.complete = token is not None
        return None if self.complete else b"ticket"

    def wrap(self, plain: bytes, encrypt: bool) -> SimpleNamespace:  # noqa: FBT001 - the library's
        """Mark it."""
        return SimpleNamespace(message=(b"E" if encrypt else b"S") + plain)

    def unwrap(self, token: bytes) -> SimpleNamespace:
        """Take the mark off."""
        if token[:1] not in (b"E", b"S"):
            raise Failure("token was invalid")
        return SimpleNamespace(message=token[1:], encrypted=token[:1] == b"E")

    def get_wrap_size_limit(self, size: int, encrypt: bool) -> int:  # noqa: FBT001 - the same
        """Leave room for the mark."""
        return max(0, size - 1)


def library() -> Any:
    """Return what stands in for the package."""

    def name(text: str, _: object) -> str:
        if "@" in text[1:-1] and text.count("@") > 1:
            raise Failure("malformed")
        return text

    return SimpleNamespace(
        RequirementFlag=SimpleNamespace(
            mutual_authentication=1, out_of_sequence_detection=2, integrity=4, confidentiality=8
        ),
        NameType=SimpleNamespace(kerberos_principal="principal"),
        Name=name,
        SecurityContext=lambda name, usage, flags: Context(flags),
        exceptions=SimpleNamespace(GSSError=Failure),
    )


def begun(protection: Protection) -> tuple[Gssapi, Context]:
    """Return a client whose context is complete, and that."""
    client = Gssapi(library(), "hbase/rs1@R", protection)
    assert client.first() == b"ticket"
    assert client.answer(b"I am") == b""
    assert not client.is_done
    return client, client._steps.context


@pytest.mark.parametrize(
    ("protection", "flags", "choice"),
    [
        ("auth", 3, b"\x01\x00\x00\x00"),
        ("auth-int", 7, b"\x02\xff\xff\xff"),
        ("auth-conf", 15, b"\x04\xff\xff\xff"),
    ],
)
def test_the_protection_that_was_asked_for_is_chosen(
    protection: Protection, flags: int, choice: bytes
) -> None:
    """With our longest message, and in the ticket's own name."""
    client, context = begun(protection)
    assert context.flags == flags
    assert client.answer(b"S\x07\x00\x10\x00") == b"S" + choice
    assert client.is_done
    assert (client.layer() is None) == (protection == "auth")


def test_what_is_not_offered_is_named() -> None:
    """By the words of the address."""
    client, _ = begun("auth")
    with pytest.raises(Disagreed, match=r"takes sasl_qop=auth-int or auth-conf .*, not auth \("):
        client.answer(b"S\x06\x00\x10\x00")
    for offer in (b"S\x01\x00", b"?\x01\x00\x00\x00"):
        client, _ = begun("auth")
        with pytest.raises(Garbled, match="offer of protections"):
            client.answer(offer)
    client, _ = begun("auth-int")
    client.answer(b"S\x02\x00\x00\x10")
    with pytest.raises(Disagreed, match="no longer messages than 16 bytes"):
        client.layer()


def test_parts_are_as_long_as_the_server_takes_them() -> None:
    """And what is to be secret has to come so."""
    client, _ = begun("auth-conf")
    client.answer(b"S\x04\x00\x01\x2d")
    layer = client.layer()
    assert layer is not None
    sealed = layer.seal(b"x" * 301)
    assert sealed == b"\0\0\x01\x2dE" + b"x" * 300 + b"\0\0\0\x02Ex"
    assert layer.open(sealed) == b"x" * 301
    with pytest.raises(Garbled, match="not encrypted"):
        layer.open(b"\0\0\0\x02Sx")
    layer = client.layer()
    assert layer is not None
    with pytest.raises(Garbled, match="changed on its way: token was invalid"):
        layer.open(b"\0\0\0\x02?x")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("Server a not found in Kerberos database", Disagreed, "knows no hbase/rs1@R; name the"),
        ("Ticket expired", NoTicket, "has ended; run `kinit`"),
        ("No Kerberos credentials\n available", NoTicket, "there is no Kerberos ticket; run"),
        ("Cannot contact any KDC for realm", NoTicket, "no key centre of Kerberos answers"),
        ("Clock skew too great", NoTicket, "our clock and that of Kerberos differ too much; set"),
        ("Something else", NoTicket, r"see `klist` and krb5.conf \(Something else\)"),
    ],
)
def test_failures_of_the_library_are_told_in_one_line(
    text: str, kind: type[CallFailed], message: str
) -> None:
    """With the remedy."""
    client = Gssapi(library(), "hbase/rs1@R", "auth")
    client._steps.context.failure = text
    with pytest.raises(kind, match=f"^[^\n]*{message}[^\n]*$"):
        client.first()


def test_principals_have_the_servers_name_in_small_letters() -> None:
    """As Java has it."""
    assert principal_of(None, "RS1.example") == "hbase/rs1.example"
    assert principal_of("h/_HOST@R", "RS1") == "h/rs1@R"
    assert principal_of("h/fixed@R", "rs1") == "h/fixed@R"
    with pytest.raises(Disagreed, match="'a@b@c' is no principal"):
        Gssapi(library(), "a@b@c", "auth")
