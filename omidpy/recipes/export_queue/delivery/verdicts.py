"""What does a failure of an exporter say: of an entry, of the receiver, or of the settings?  Pure.

    an answer about what was sent (HTTP 400, 409, 422 and the like), or an error of any library:
        an entry's, perhaps; it is found by halves
    no answer, or one of "not now" (`OSError`, `Retry`, HTTP 429 and 5xx): nobody's; and so is what
        this process lacks (`MemoryError`, a thread that cannot be started)
    an answer to any request (HTTP 401, 403, 404, `ConfigError`, no such table, `Refused`): that of
        the settings; and so is "there was a later owner" (`Deposed`) where the bucket is ours

HTTP 409 and 412 may speak of an older fence than the receiver has seen, as `Deposed` does: before
anybody is blamed for them the row of the bucket is asked whose it is.

An error of a library may be any of the three: a wrong column fails for each entry alone, as a bad
value does for one.  So no entry is condemned by repetition while the receiver takes nothing at all:
`Trust` counts those that failed alone since it last took something.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from omidpy.base.callers.pools import says_no_thread
from omidpy.errors import (
    CommitOutcomeUnknown,
    ConfigError,
    NoSuchFamily,
    NoSuchTable,
    NotTransactional,
    OmidError,
    OracleError,
    StorageUnavailable,
)
from omidpy.recipes.export_queue.entries.ordering import Position
from omidpy.recipes.export_queue.exporter import Deposed, Refused, Retry

MOST_UNPROVEN: Final = 3
"""So many entries in a row that fail alone, while the receiver takes nothing, are no poison."""

_OF_SETTINGS: Final = frozenset({401, 402, 403, 404, 405, 407, 410, 451})
_OF_FENCES: Final = frozenset({409, 412})
_LATER: Final = frozenset({408, 421, 423, 424, 425, 429})
_FIRST_OF_CLIENT, _FIRST_OF_SERVER, _END = 400, 500, 600


class Blame(Enum):
    """Whose fault a failure is."""

    ENTRY = "an entry of the batch, perhaps"
    NOBODY = "nobody's: it may go well later"
    SETTINGS = "of the settings: it goes well once somebody has changed them"


def blame(error: Exception) -> Blame:
    """Say whose fault an exporter's error is; `Poison` is for the caller to see."""
    if isinstance(
        error, Refused | Deposed | ConfigError | NoSuchTable | NoSuchFamily | NotTransactional
    ):
        return Blame.SETTINGS
    if isinstance(error, Retry | CommitOutcomeUnknown | StorageUnavailable | OracleError):
        return Blame.NOBODY
    if isinstance(error, OmidError):
        return Blame.NOBODY if error.retryable else Blame.ENTRY
    if (status := http_status(error)) is not None:
        # urllib's and requests' errors are an `OSError` as well, and yet the receiver has answered.
        if status in _OF_SETTINGS:
            return Blame.SETTINGS
        return Blame.NOBODY if status in _LATER or status >= _FIRST_OF_SERVER else Blame.ENTRY
    return Blame.NOBODY if isinstance(error, OSError) or _lacks(error) else Blame.ENTRY


def _lacks(error: Exception) -> bool:
    """Say whether this process, or the machine, lacks what any entry needs."""
    return isinstance(error, MemoryError) or says_no_thread(error)


def may_speak_of_an_owner(error: Exception) -> bool:
    """Say whether an exporter's error may mean that the bucket has a later owner."""
    return isinstance(error, Deposed) or http_status(error) in _OF_FENCES


def http_status(error: Exception) -> int | None:
    """Return the status of an answer by which an HTTP client explains an error; None: no answer.

    As urllib, requests, httpx and aiohttp name it.
    """
    response = getattr(error, "response", None)
    for found in (
        getattr(error, "code", None),
        getattr(response, "status_code", None),
        getattr(error, "status", None),
    ):
        if isinstance(found, int) and _FIRST_OF_CLIENT <= found < _END:
            return int(found)
    return None


class Trust:
    """Whether a receiver takes anything at all.  Safe to share among threads: each use is one step.

    One object serves all buckets of an exporter: what one of them delivers speaks for all.
    """

    def __init__(self) -> None:
        """Begin with no entry under suspicion."""
        self._suspects: set[tuple[int, Position]] = set()

    def taken(self) -> None:
        """Note that something was taken: whatever failed alone until now was at fault itself."""
        self._suspects.clear()

    def suspect(self, bucket: int, position: Position) -> bool:
        """Note that an entry has failed alone, too often; say whether all of them do."""
        self._suspects.add((bucket, position))
        return len(self._suspects) >= MOST_UNPROVEN
