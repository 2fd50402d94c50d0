"""Who may change something through the console, and is it he who asks?

Somebody is known by the certificate that he shows, or by a token that he has typed in once: then by
a cookie that no page can read and no other site sends.  Either way a form must come from a page of
ours (its address and ours are compared) that was made for him (`proof`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import ConfigError

MIN_TOKEN_CHARACTERS: Final = 24
SESSION_S: Final = 8 * 3600.0
MAX_SESSIONS: Final = 1000
COOKIE: Final = "omidpy-console"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may change something."""

    name: str
    by: str
    """`token` or `certificate`."""
    secret: str
    """What only he and we know of this acquaintance; never shown."""


class Tokens:
    """The tokens of a file: a line each, `NAME TOKEN`."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Keep what is needed to recognise them."""
        self._digests = {name: _digest(token) for name, token in tokens.items()}

    @classmethod
    def read(cls, path: str) -> Tokens:
        """Read a file.

        Raises:
            ConfigError: it cannot be read, or others can, or a line is none.
        """
        try:
            mode = Path(path).stat().st_mode
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise ConfigError(f"--token-file {path!r}: {error}") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"--token-file {path!r}: others can read it; run chmod 600 on it")
        tokens: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or len(words[1]) < MIN_TOKEN_CHARACTERS or words[0] in tokens:
                raise ConfigError(
                    f"--token-file {path!r}, line {number}: write NAME TOKEN, each name once, and "
                    f"a token of at least {MIN_TOKEN_CHARACTERS} characters, as `openssl rand -hex "
                    "24` makes them"
                )
            tokens[words[0]] = words[1]
        if not tokens:
            raise ConfigError(f"--token-file {path!r} names nobody; write a line NAME TOKEN")
        return cls(tokens)

    def owner(self, token: str) -> str | None:
        """Return whose token it is; every one is compared, each in the same time."""
        found = None
        digest = _digest(token.strip())
        for name, known in self._digests.items():
            if hmac.compare_digest(digest, known):
                found = name
        return found


def _digest(token: str) -> bytes:
    # Of one length, whatever was typed in.
    return hashlib.sha256(token.encode()).digest()


class Sessions:
    """Who has typed in a token, and not left since."""

    def __init__(self, clock: Callable[[], float] = SystemClock.monotonic_s) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._people: OrderedDict[str, tuple[Person, float]] = OrderedDict()

    def begin(self, name: str) -> str:
        """Let somebody in; return what his cookie is to hold."""
        number = secrets.token_urlsafe(32)
        with self._lock:
            self._people[_named(number)] = (Person(name, "token", number), self._clock())
            while len(self._people) > MAX_SESSIONS:
                self._people.popitem(last=False)
        return number

    def of(self, number: str) -> Person | None:
        """Return whose a cookie is; None if nobody's, or for too long."""
        with self._lock:
            found = self._people.get(_named(number))
        if found is None or self._clock() - found[1] > SESSION_S:
            return None
        return found[0]

    def end(self, number: str) -> None:
        """Forget a person's session: its cookie opens nothing any more."""
        with self._lock:
            self._people.pop(_named(number), None)


def _named(number: str) -> str:
    # A dictionary compares what it finds in a time that tells of it: it finds digests.
    return hashlib.sha256(number.encode()).hexdigest()


class Proofs:
    """What a form holds that was made for somebody."""

    def __init__(self) -> None:
        """Draw a key, which ends with this process."""
        self._key = secrets.token_bytes(32)

    def of(self, person: Person) -> str:
        """Return what the forms of a person hold."""
        text = f"{person.by} {person.name} {person.secret}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def holds(self, person: Person, proof: str) -> bool:
        """Say whether a form was made for a person."""
        return hmac.compare_digest(self.of(person).encode(), proof.encode())


def is_ours(origin: str | None, host: str) -> bool:
    """Say whether a form comes from a page of ours: browsers tell where each comes from."""
    return bool(origin) and bool(host) and urlsplit(origin or "").netloc == host
