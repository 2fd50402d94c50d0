"""SASL's framing, by scripted mechanisms: what is sent, and what garbage and refusals cost."""

from __future__ import annotations

import struct

import pytest

from omidpy.storage.hbase.native.faults import CallFailed, Disagreed, Garbled, NotSent
from omidpy.storage.hbase.native.security import sasl
from omidpy.storage.hbase.native.security.layers import Layer
from omidpy.storage.hbase.native.security.sasl import LONGEST_TOKEN_BYTES, Negotiation, SaslLayer


class Scripted:
    """Greets, answers each challenge with itself in capitals, and is done after two."""

    code = 81

    def __init__(self) -> None:
        self.challenges: list[bytes] = []

    @property
    def is_done(self) -> bool:
        """Whether two challenges came."""
        return len(self.challenges) == 2

    def first(self) -> bytes:
        """Greet."""
        return b"hello"

    def answer(self, challenge: bytes) -> bytes | None:
        """Answer in capitals; the last one needs no answer."""
        self.challenges.append(challenge)
        return None if self.is_done else challenge.upper()

    def refused(self, class_name: str, text: str) -> CallFailed:
        """Quote it."""
        return Disagreed(f"{class_name}|{text}")

    def layer(self) -> Layer | None:
        """None."""
        return None


def said(token: bytes, status: int = 0) -> bytes:
    """Return what a server says."""
    return struct.pack(">ii", status, len(token)) + token


def refusal(name: bytes, text: bytes) -> bytes:
    """Return what a server says that is not content."""
    lengths = (struct.pack(">i", len(one)) + one for one in (name, text))
    return struct.pack(">i", 1) + b"".join(lengths)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_tokens_go_to_and_fro_however_they_are_cut(step: int) -> None:
    """Nothing is sent before a token is whole, and then once."""
    mechanism = Scripted()
    negotiation = Negotiation(mechanism)
    assert negotiation.start() == b"HBas\x00\x51\x00\x00\x00\x05hello"
    for token, expected in ((b"one", b"\x00\x00\x00\x03ONE"), (b"", b"")):
        sent = b""
        data = said(token)
        for at in range(0, len(data), step):
            assert not sent
            sent += negotiation.receive(data[at : at + step])
        assert sent == expected
    assert negotiation.is_done
    assert mechanism.challenges == [b"one", b""]


def test_a_refusal_is_the_mechanisms_to_explain() -> None:
    """Cut anywhere; an absent message is none."""
    data = refusal(b"javax.security.sasl.SaslException", b"GSS initiate failed\n\tat x")
    negotiation = Negotiation(Scripted())
    for at in range(len(data) - 1):
        assert negotiation.receive(data[at : at + 1]) == b""
    with pytest.raises(Disagreed, match=r"^SaslException\|GSS initiate failed$"):
        negotiation.receive(data[-1:])
    with pytest.raises(Disagreed, match=r"^X\|$"):
        Negotiation(Scripted()).receive(struct.pack(">ii1si", 1, 1, b"X", -1))


def test_a_server_without_authentication_talks_nobody_out_of_it() -> None:
    """Whoever took its offer would send everything in the open, to anybody."""
    with pytest.raises(Disagreed, match=r"has no authentication .*; leave sasl out"):
        Negotiation(Scripted()).receive(struct.pack(">ii", 0, -88))


def test_an_answer_to_no_call_is_understood() -> None:
    """Servers that know no SASL answer in the form of all other answers."""
    frame = bytes.fromhex("1408ffffffff0f120c0a05612e4261641203776879")
    with pytest.raises(Disagreed, match=r"^Bad\|why$"):
        Negotiation(Scripted()).receive(struct.pack(">i", len(frame)) + frame)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400",
        struct.pack(">i", 65537),
        struct.pack(">ii", 0, LONGEST_TOKEN_BYTES + 1),
        struct.pack(">ii", 0, -1),
        struct.pack(">ii", 1, sasl.LONGEST_TEXT_BYTES + 1),
        struct.pack(">ii", 1, -2),
        struct.pack(">i", 3) + b"\xff\xff\xff",
        said(b"one") + b"more",
    ],
)
def test_garbage_costs_an_error_and_no_memory(data: bytes) -> None:
    """A length that is none is refused before anything behind it is awaited."""
    with pytest.raises(Garbled):
        Negotiation(Scripted()).receive(data)


def reversing(**limits: int) -> SaslLayer:
    """Return a layer that turns each part round."""
    return SaslLayer(lambda part: part[::-1], lambda token: token[::-1], **limits)


@pytest.mark.parametrize("step", [1, 5, 1000])
def test_a_layer_makes_tokens_of_parts_and_parts_of_tokens(step: int) -> None:
    """Whatever HBase's own frames are, and however they arrive."""
    sealed = reversing(part_bytes=4).seal(b"abcdefghij")
    assert sealed == b"\0\0\0\4dcba\0\0\0\4hgfe\0\0\0\2ji"
    layer = reversing(part_bytes=4)
    found = [layer.open(sealed[at : at + step]) for at in range(0, len(sealed), step)]
    assert b"".join(found) == b"abcdefghij"


def test_a_layer_reads_no_token_longer_than_it_may_be() -> None:
    """Its length is enough to see that."""
    with pytest.raises(Garbled, match="more than 100"):
        reversing(part_bytes=4, max_token_bytes=100).open(b"\x00\x00\x00\x65")


def test_the_failures_are_certain() -> None:
    """Nothing was called before the two agreed."""
    assert issubclass(Disagreed, NotSent)
