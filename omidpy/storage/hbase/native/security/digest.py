"""The SASL mechanism DIGEST-MD5: who has a token of HBase's proves it without showing it.  No I/O.

A token is an identifier and a password; both, in base64, are name and password here.  The server
proves that it knows the password, too, and for `auth-int` and `auth-conf` the two derive keys.
Of the ciphers RC4 is spoken alone, which every server of Java's offers.

Source: RFC 2831, and what HBase passes to Java's mechanism: no protocol, and the realm `default`.
"""

from __future__ import annotations

import base64
import hmac
import importlib
import re
import secrets
import struct
from collections.abc import Callable
from hashlib import md5
from typing import Any, Final

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import Protection
from omidpy.storage.hbase.native.faults import CallFailed, Disagreed, Garbled, NoTicket
from omidpy.storage.hbase.native.security.layers import Layer
from omidpy.storage.hbase.native.security.sasl import DIGEST, SaslLayer, quoted

URI: Final = "null/default"
"""What Java makes of no protocol and the host `default`."""
LONGEST_MESSAGE_BYTES: Final = 2**24 - 1
_USUAL_MESSAGE_BYTES: Final = 2**16
_OVERHEAD_BYTES: Final = 64
_CIPHER: Final = "rc4"
_MAC_BYTES: Final = 10
_END: Final = struct.Struct(">HI")
"""Behind each message: 1, and its number."""

_DIRECTIVE: Final = re.compile(r'\s*([a-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?:,|$)')

REMEDY: Final = "start the job again, whose driver then fetches another"


def directives(challenge: bytes) -> dict[str, str]:
    """Return the directives of a challenge; of those that are given twice, the last.

    Raises:
        Garbled: it holds something else.
    """
    text, found, at = challenge.decode("utf-8", errors="replace"), {}, 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None:
            raise Garbled(f"a challenge of DIGEST-MD5 has {text[at : at + 40]!r}")
        if match[2] is not None:
            found[match[1]] = re.sub(r"\\(.)", r"\1", match[2])
        else:
            found[match[1]] = match[3]
        at = match.end()
    return found


class Keys:
    """What name, password and both nonces come to."""

    def __init__(
        self, name: str, password: str, *, realm: str, nonce: str, cnonce: str, uri: str, qop: str
    ) -> None:
        """Compute the session's key."""
        secret = _md5(f"{name}:{realm}:{password}".encode())
        self.session = _md5(secret + f":{nonce}:{cnonce}".encode())
        """H(A1)."""
        self._middle = f"{nonce}:00000001:{cnonce}:{qop}"
        self._uri = uri + ("" if qop == "auth" else ":" + "0" * 32)

    def response(self) -> str:
        """Return what the client proves itself by."""
        return self._proof("AUTHENTICATE:")

    def servers_response(self) -> str:
        """Return what the server must prove itself by."""
        return self._proof(":")

    def _proof(self, what: str) -> str:
        end = _md5(f"{what}{self._uri}".encode()).hex()
        return _md5(f"{self.session.hex()}:{self._middle}:{end}".encode()).hex()

    def signing(self, *, to_server: bool) -> bytes:
        """Return the key of what is sent one way."""
        way = "client-to-server" if to_server else "server-to-client"
        return _md5(
            self.session + f"Digest session key to {way} signing key magic constant".encode()
        )

    def sealing(self, *, to_server: bool) -> bytes:
        """Return the cipher's key of what is sent one way."""
        way = "client-to-server" if to_server else "server-to-client"
        return _md5(self.session + f"Digest H(A1) to {way} sealing key magic constant".encode())


def _md5(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).digest()


class DigestMd5:
    """The steps of a client that has a token."""

    code = DIGEST

    def __init__(
        self,
        identifier: bytes,
        password: bytes,
        protection: Protection,
        *,
        make_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        """Begin with a token; `protection` is asked for after the negotiation.

        Raises:
            ConfigError: `auth-conf` needs a package that is missing.
        """
        self._name = base64.b64encode(identifier).decode()
        self._password = base64.b64encode(password).decode()
        self._protection = protection
        self._make_nonce = make_nonce
        self._cipher = _load_cipher() if protection == "auth-conf" else None
        self._keys: Keys | None = None
        self._server_bytes = _USUAL_MESSAGE_BYTES
        self.is_done = False

    def first(self) -> bytes:
        """Say nothing: the server speaks first."""
        return b""

    def answer(self, challenge: bytes) -> bytes | None:
        """Answer the challenge; then make sure that the server knows the password, too."""
        said = directives(challenge)
        if self._keys is None:
            return self._response(said)
        # As bytes: it may have said anything, of which text is compared in ASCII alone.
        proof = said.get("rspauth", "").encode()
        if not hmac.compare_digest(proof, self._keys.servers_response().encode()):
            raise Disagreed("it does not know our token: it is not the HBase that gave it out")
        self.is_done = True
        return None

    def _response(self, said: dict[str, str]) -> bytes:
        nonce, realm = said.get("nonce"), said.get("realm", "")
        if not nonce or said.get("algorithm") != "md5-sess":
            raise Garbled("a challenge of DIGEST-MD5 has no nonce, or another algorithm")
        offered = said.get("qop", "auth").replace(" ", "").split(",")
        if self._protection not in offered:
            raise Disagreed(
                f"it takes sasl_qop={' or '.join(offered)} in the address, not {self._protection} "
                "(hbase.rpc.protection)"
            )
        if self._cipher is not None and _CIPHER not in said.get("cipher", "").split(","):
            raise Disagreed(f"it offers no cipher that is spoken here: {said.get('cipher')!r}")
        longest = said.get("maxbuf", str(_USUAL_MESSAGE_BYTES))
        if not longest.isascii() or not longest.isdigit() or len(longest) > 8:
            raise Garbled(f"a challenge of DIGEST-MD5 has maxbuf={longest[:40]!r}")
        self._server_bytes = int(longest)
        cnonce = self._make_nonce()
        self._keys = Keys(
            self._name,
            self._password,
            realm=realm,
            nonce=nonce,
            cnonce=cnonce,
            uri=URI,
            qop=self._protection,
        )
        parts = [
            "charset=utf-8",
            f"username={_quoted(self._name)}",
            f"realm={_quoted(realm)}",
            f"nonce={_quoted(nonce)}",
            "nc=00000001",
            f"cnonce={_quoted(cnonce)}",
            f"digest-uri={_quoted(URI)}",
            f"maxbuf={LONGEST_MESSAGE_BYTES}",
            f"response={self._keys.response()}",
            f"qop={self._protection}",
        ]
        if self._cipher is not None:
            parts.append(f"cipher={_quoted(_CIPHER)}")
        return ",".join(parts).encode()

    def refused(self, class_name: str, text: str) -> CallFailed:
        """Return what a refusal of the server means."""
        told = f"{class_name}: {quoted(text)}"
        if "expired" in text:
            return NoTicket(f"our token has ended; {REMEDY} ({told})")
        if class_name == "AccessDeniedException":
            # It listens before it has the keys by which tokens are known.
            return NoTicket(f"it knows no tokens yet, as one that has just started ({told})")
        return Disagreed(f"it does not accept our token; {REMEDY} ({told})")

    def layer(self) -> Layer | None:
        """Return what seals what follows; None for `auth`."""
        if self._protection == "auth":
            return None
        assert self._keys is not None, "it follows a negotiation"
        part = self._server_bytes - _OVERHEAD_BYTES
        if part < _OVERHEAD_BYTES:
            raise Disagreed(f"it takes no longer messages than {self._server_bytes} bytes")
        return layer_of(self._keys, part_bytes=part, cipher=self._cipher)


def layer_of(
    keys: Keys,
    *,
    part_bytes: int,
    cipher: Callable[[bytes], tuple[Any, Any]] | None,
    is_client: bool = True,
) -> SaslLayer:
    """Return what signs, and with a cipher encrypts, what both sides say.

    Args:
        keys: Of the negotiation.
        part_bytes: The longest message that the other side takes.
        cipher: Makes what encrypts, and what decrypts, by a key.
        is_client: Which side this one is.
    """
    signs = keys.signing(to_server=is_client)
    checks = keys.signing(to_server=not is_client)
    encrypt = decrypt = bytes
    if cipher is not None:
        encrypt = cipher(keys.sealing(to_server=is_client))[0]
        decrypt = cipher(keys.sealing(to_server=not is_client))[1]
    counts = [0, 0]
    """Messages that were sent, and that came."""

    def wrap(plain: bytes) -> bytes:
        end = _END.pack(1, counts[0] & 0xFFFFFFFF)
        sealed = encrypt(plain + _mac(signs, end[2:], plain)) + end
        counts[0] += 1
        return sealed

    def unwrap(token: bytes) -> bytes:
        at = len(token) - _END.size
        if at < _MAC_BYTES or token[at:] != _END.pack(1, counts[1] & 0xFFFFFFFF):
            raise Garbled("a message is not the one that is next")
        opened = decrypt(token[:at])
        plain, mac = opened[:-_MAC_BYTES], opened[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(checks, token[at + 2 :], plain)):
            raise Garbled("a message was changed on its way")
        counts[1] += 1
        return plain

    return SaslLayer(wrap, unwrap, part_bytes=part_bytes)


def _mac(key: bytes, number: bytes, plain: bytes) -> bytes:
    return hmac.digest(key, number + plain, "md5")[:_MAC_BYTES]


def _load_cipher() -> Callable[[bytes], tuple[Any, Any]]:
    try:
        ciphers: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers")
        old: Any = importlib.import_module("cryptography.hazmat.decrepit.ciphers.algorithms")
    except ImportError as error:
        raise ConfigError(
            f"sasl_qop=auth-conf with a token needs RC4: {install_hint('kerberos')}"
        ) from error

    def made(key: bytes) -> tuple[Any, Any]:
        cipher = ciphers.Cipher(old.ARC4(key), mode=None)
        return cipher.encryptor().update, cipher.decryptor().update

    return made


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
