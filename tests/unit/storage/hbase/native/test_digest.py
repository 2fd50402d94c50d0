"""DIGEST-MD5: the examples of RFC 2831, what both sides prove, and messages that were changed."""

from __future__ import annotations

import base64
import re

import pytest

from omidpy.storage.hbase.native.faults import Disagreed, Garbled, NoTicket
from omidpy.storage.hbase.native.security import digest
from omidpy.storage.hbase.native.security.digest import DigestMd5, Keys, directives, layer_of

CHALLENGE = (
    b'realm="default",nonce="n\\"1",qop="auth,auth-int,auth-conf",charset=utf-8,'
    b'cipher="3des,rc4,des,rc4-56,rc4-40",algorithm=md5-sess'
)


@pytest.mark.parametrize(
    ("uri", "nonce", "cnonce", "response", "servers"),
    [
        (
            "imap/elwood.innosoft.com",
            "OA6MG9tEQGm2hh",
            "OA6MHXh6VqTrRk",
            "d388dad90d4bbd760a152321f2143af7",
            "ea40f60335c427b5527b84dbabcdfffd",
        ),
        (
            "acap/elwood.innosoft.com",
            "OA9BSXrbuRhWay",
            "OA9BSuZWMSpW8m",
            "6084c6db3fede7352c551284490fd0fc",
            "2f0b3d7c3c2e486600ef710726aa2eae",
        ),
    ],
)
def test_the_examples_of_the_rfc(
    uri: str, nonce: str, cnonce: str, response: str, servers: str
) -> None:
    """Chapter 4: chris and his secret, by IMAP and by ACAP."""
    realm = "elwood.innosoft.com"
    keys = Keys("chris", "secret", realm=realm, nonce=nonce, cnonce=cnonce, uri=uri, qop="auth")
    assert keys.response() == response
    assert keys.servers_response() == servers


def begun(protection: str = "auth") -> tuple[DigestMd5, Keys, dict[str, str]]:
    """Return a client that has answered a challenge, the server's keys, and the answer."""
    client = DigestMd5(b"id", b"password", protection, make_nonce=lambda: "c1")  # type: ignore[arg-type] # a parameter of tests
    assert client.first() == b""
    answer = client.answer(CHALLENGE)
    assert answer is not None
    keys = Keys(
        base64.b64encode(b"id").decode(),
        base64.b64encode(b"password").decode(),
        realm="default",
        nonce='n"1',
        cnonce="c1",
        uri="null/default",
        qop=protection,
    )
    return client, keys, directives(answer)


@pytest.mark.parametrize("protection", ["auth", "auth-int", "auth-conf"])
def test_both_sides_prove_that_they_know_the_token(protection: str) -> None:
    """The token itself is not sent, and a server that does not know it is left."""
    client, keys, said = begun(protection)
    assert said["response"] == keys.response()
    assert (said["username"], said["nonce"]) == (base64.b64encode(b"id").decode(), 'n"1')
    assert (said["qop"], said.get("cipher")) == (
        protection,
        "rc4" if protection == "auth-conf" else None,
    )
    assert not any(base64.b64encode(b"password").decode() in one for one in said.values())
    assert not client.is_done
    assert client.answer(f"rspauth={keys.servers_response()}".encode()) is None
    assert client.is_done
    assert (client.layer() is None) == (protection == "auth")
    for proof in (b"rspauth=" + b"0" * 32, b"", 'rspauth="\u00e9"'.encode(), b"rspauth=\xff"):
        client, _, _ = begun(protection)
        with pytest.raises(Disagreed, match="does not know our token"):
            client.answer(proof)
        assert not client.is_done


@pytest.mark.parametrize("protection", ["auth-int", "auth-conf"])
def test_what_was_changed_or_repeated_on_its_way_is_noticed(protection: str) -> None:
    """Both ways, over several messages; what is secret is not seen."""
    cipher = digest._load_cipher() if protection == "auth-conf" else None
    client, keys, _ = begun(protection)
    ours, theirs = client.layer(), layer_of(keys, part_bytes=1000, cipher=cipher, is_client=False)
    assert ours is not None
    for number in range(5):
        said = b"%d" % number * 70_000
        sealed = ours.seal(said)
        assert (said[:100] in sealed) == (protection == "auth-int")
        assert theirs.open(sealed) == said
        assert ours.open(theirs.seal(said)) == said
    sealed = theirs.seal(b"message")
    with pytest.raises(Garbled, match="changed on its way"):
        ours.open(sealed[:6] + bytes((sealed[6] ^ 1,)) + sealed[7:])
    client, keys, _ = begun(protection)
    ours = client.layer()
    assert ours is not None
    once = layer_of(keys, part_bytes=1000, cipher=cipher, is_client=False).seal(b"message")
    assert ours.open(once) == b"message"
    with pytest.raises(Garbled, match="not the one that is next"):
        ours.open(once)


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"realm", "challenge of DIGEST-MD5 has 'realm'"),
        (b"\xff\x00=", "challenge of DIGEST-MD5"),
        (b'nonce="open,algorithm=md5-sess', "challenge of DIGEST-MD5"),
        (b"algorithm=md5-sess", "no nonce"),
        (b'nonce="n"', "another algorithm"),
        (CHALLENGE + b",maxbuf=-1", "maxbuf='-1'"),
        (CHALLENGE + b",maxbuf=" + b"9" * 5000, "maxbuf='9{40}'"),
    ],
)
def test_a_challenge_that_is_none_is_refused(challenge: bytes, message: str) -> None:
    """Whatever a server sends, it costs one line."""
    with pytest.raises(Garbled, match=re.escape(message).replace(r"9\{40\}", "9{40}")):
        DigestMd5(b"id", b"password", "auth").answer(challenge)


def test_a_protection_that_is_not_offered_is_named() -> None:
    """With those that are."""
    offered = CHALLENGE.replace(b"auth,auth-int,auth-conf", b"auth-conf")
    with pytest.raises(Disagreed, match=r"takes sasl_qop=auth-conf in the address, not auth \("):
        DigestMd5(b"id", b"password", "auth").answer(offered)
    with pytest.raises(Disagreed, match="no cipher that is spoken here"):
        DigestMd5(b"id", b"password", "auth-conf").answer(CHALLENGE.replace(b"rc4", b"x"))
    client = DigestMd5(b"id", b"password", "auth-int")
    client.answer(CHALLENGE + b",maxbuf=100")
    with pytest.raises(Disagreed, match="no longer messages than 100 bytes"):
        client.layer()


def test_a_token_that_has_ended_is_told_apart() -> None:
    """The driver fetches another; a token of somebody else's HBase is another matter."""
    client = DigestMd5(b"id", b"password", "auth")
    ended = client.refused("InvalidToken", "Token has expired")
    assert isinstance(ended, NoTicket)
    assert "start the job again" in str(ended)
    assert isinstance(client.refused("InvalidToken", "unknown"), Disagreed)
    starting = client.refused("AccessDeniedException", "Server is not configured to do DIGEST")
    assert isinstance(starting, NoTicket), "it has the keys soon"
