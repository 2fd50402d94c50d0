"""What an S3-compatible store answers, as errors that say what was tried and what would help.

An answer that says how things stand (there is no such object, there is one already, ask again) has
an error of its own, which the callers tell apart; every other is a `CommitterError`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from omidpy.base.timing.pauses import Pauses
from omidpy.committers.objects.client import missing_extra
from omidpy.errors import CommitterError, ConfigError

CONFLICT_TRIES: Final = 8
CONFLICT_PAUSE_S: Final = 0.05
"""After the first; each is twice as long."""

_MISSING_CODES: Final = frozenset({"NoSuchUpload", "NoSuchKey", "404", "NotFound"})
OCCUPIED_CODES: Final = frozenset({"PreconditionFailed", "412"})
EXPIRED_CODES: Final = frozenset({"ExpiredToken", "InvalidAccessKeyId", "InvalidToken"})
"""Of credentials that were others once, and may be by now."""
_SPOILT_CODES: Final = frozenset({"InvalidPart", "InvalidPartOrder", "EntityTooSmall"})
_CONFLICT_CODES: Final = frozenset({"ConditionalRequestConflict", "409", "OperationAborted"})
_FILE_CODES: Final = frozenset(
    {"ObjectParentIsFile", "ExistingObjectIsDirectory", "ExistingObjectIsFile"}
)


class Gone(CommitterError):
    """The upload or object is not there (any more)."""


class Spoilt(CommitterError):
    """The upload's parts are not those that were sent, and it can never be completed."""


class Occupied(CommitterError):
    """There is an object already where none must be, or another one than was expected."""


class Conflicting(CommitterError):
    """Another request for the key was under way; the store asks to try again."""


class Unconditional(CommitterError):
    """The store has no writes of this condition."""


class NoBucket(CommitterError):
    """There is no such bucket, and so nothing in it."""


class Refused(CommitterError):
    """The store does not take an argument of the request."""


class _Untold(Exception):
    """An answer lacks what it must say; `translated` says of which request."""


def again_after_conflicts(send: Callable[[], Any]) -> Any:
    """Send a request again while the store asks for that: 409 says nothing of what is there.

    Raises:
        Conflicting: It asked to the end.
    """
    pauses = Pauses(CONFLICT_PAUSE_S, math.inf, at_least=1)
    for _ in range(CONFLICT_TRIES - 1):
        try:
            return send()
        except Conflicting:
            time.sleep(pauses.next_s())
    return send()


def told(answer: Mapping[str, Any], name: str) -> Any:
    """Return what every answer of its kind says.

    Without its word that it is one, what a proxy in between has answered would be an empty list.

    Raises:
        _Untold: This one does not.
    """
    if name not in answer:
        raise _Untold(
            f"the answer does not say {name}, as those of stores do: something in between may have "
            "answered"
        )
    return answer[name]


@contextmanager
def translated(address: str, action: str, *, is_conditional: bool = False) -> Iterator[None]:
    """Turn errors of boto3 into ours: what was tried on which address, and what would help."""
    try:
        from botocore.exceptions import (  # noqa: PLC0415 - an extra
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
        )
    except ImportError as error:
        raise ConfigError(missing_extra()) from error
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ConfigError(
            f"could not {action} {address}: {error}; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws/config"
        ) from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        what = f"could not {action} {address}: {error}"
        if code in _MISSING_CODES:
            raise Gone(what) from error
        if code in _SPOILT_CODES:
            raise Spoilt(what) from error
        if code in OCCUPIED_CODES:
            raise Occupied(what) from error
        if code in _CONFLICT_CODES:
            raise Conflicting(what, retryable=True) from error
        if code == "InvalidArgument":
            raise Refused(what) from error
        if code in _FILE_CODES:
            raise CommitterError(
                f"{what}; a file is where a folder would have to be, or the other way round"
            ) from error
        if code == "NoSuchBucket":
            raise NoBucket(f"{what}; make the bucket, or check its name") from error
        if code in {"NotImplemented", "501", "MethodNotAllowed"}:
            kind = Unconditional if is_conditional else CommitterError
            raise kind(
                f"{what}; committers need multipart uploads and conditional writes of the store"
            ) from error
        is_passing = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500
        raise CommitterError(what, retryable=is_passing) from error
    except (BotoCoreError, _Untold) as error:
        raise CommitterError(f"could not {action} {address}: {error}", retryable=True) from error
    except RecursionError as error:
        # boto3 asks whither it is redirected, is redirected, and asks again.
        raise CommitterError(
            f"could not {action} {address}: the endpoint redirects to another place; name that one "
            "(as https:// where it is http://)"
        ) from error
