"""What does a failed call mean to a user?  From HBase's exceptions to our own.

Pure: a failure and what was being done, in; one of `omidpy.errors` out.  A message names the
server, the call, the table and the remedy, and the first line of what HBase said.
"""

from __future__ import annotations

import re
import socket
from typing import Final

from omidpy.errors import (
    ConfigError,
    OmidError,
    StorageUnavailable,
    UsageError,
)
from omidpy.storage.hbase.meanings import CHECKED_TABLES, OURS, REFUSED_TABLE, Meaning
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.faults import (
    CallFailed,
    Disagreed,
    Fault,
    Garbled,
    Kind,
    Lost,
    NotSent,
    TooLarge,
    Unanswered,
)

NAME_A_SNAPSHOT: Final = "name one that is there (`list_snapshots` in the `hbase shell`)"

_PERMANENT: Final[dict[str, Meaning]] = {
    **OURS,
    "RequestTooBigException": Meaning(
        UsageError, "write less at a time (hbase.ipc.max.request.size of HBase)"
    ),
    "TableNotDisabledException": Meaning(
        UsageError, "disable it first (`disable` in the `hbase shell`)"
    ),
    "SnapshotExistsException": Meaning(
        UsageError, "choose another name, or delete that one (`delete_snapshot`)"
    ),
    "SnapshotDoesNotExistException": Meaning(UsageError, NAME_A_SNAPSHOT),
    "BadAuthException": Meaning(
        ConfigError,
        "HBase demands authentication of another kind; add sasl=gssapi to the address for "
        "Kerberos, or leave sasl out",
    ),
    "WrongVersionException": Meaning(
        ConfigError, "this version of HBase speaks another protocol; 2.5 and 2.6 are supported"
    ),
}

_ARGUMENT: Final = re.compile(
    r"KeyValue size too large|Cell with size|\bwith size \d+ exceeds limit of \d+|Row length"
    r"|Illegal (?:character|first)"
)
_NO_NUMBER: Final = "Field is not a long"
NEEDS_AUTHENTICATION: Final = "it wants Kerberos; add sasl=gssapi to the address, and run `kinit`"

_DISABLED: Final = re.compile(r"\bis disabled\b")


def translate(
    error: Exception,
    *,
    address: NativeAddress,
    what: str,
    where: str | None,
    table: str | None,
    is_outcome_unknown: bool = False,
    was_answered: bool = False,
) -> OmidError:
    """Return what to raise in place of a failed call.

    Args:
        error: What was raised.
        address: What was opened.
        what: The call, in words, or its name.
        where: The server that was asked; None if none was found.
        table: The table that the call was about, if any.
        is_outcome_unknown: The call changes something, and may have been executed.
        was_answered: A server has answered before, so that the address says what it should.
    """
    if isinstance(error, OmidError):
        return error
    subject = what
    if table is not None and not re.search(rf"(?<!\w){re.escape(table)}(?!\w)", what):
        subject = f"{what} of table {table!r}"
    subject += f" at the HBase server {where}" if where else f" at {address.url}"
    if isinstance(error, Disagreed) and not is_outcome_unknown and not was_answered:
        return ConfigError(f"{subject}: {error}")
    if isinstance(error, TooLarge):
        return UsageError(f"{subject}: {error}; write less at a time")
    meant = _meant(error, address, subject)
    if is_outcome_unknown and isinstance(meant, StorageUnavailable):
        return StorageUnavailable(f"{meant}; whether it was applied is not known")
    return meant


def _meant(error: Exception, address: NativeAddress, subject: str) -> OmidError:
    if isinstance(error, Fault):
        return _refused(error, subject)
    if isinstance(error, NotSent):
        return _unsent(error, subject)
    if isinstance(error, Unanswered):
        return StorageUnavailable(
            f"{subject}: no answer within {address.timeout_s:g} s; HBase may be moving regions, or "
            "be overloaded; timeout_s in the address waits longer",
            retryable=True,
        )
    if isinstance(error, Garbled):
        return StorageUnavailable(
            f"{subject}: the answer could not be read ({error}); run `omidpy doctor --store "
            f"'{address.url}'`, which finds out what answers there",
            retryable=True,
        )
    if isinstance(error, Lost):
        return StorageUnavailable(
            f"{subject}: {error}; is the server up, and not taken for a client that HBase refuses?",
            retryable=True,
        )
    return StorageUnavailable(f"{subject}: {error}", retryable=isinstance(error, CallFailed))


def _refused(fault: Fault, subject: str) -> OmidError:
    if fault.is_about_authentication:
        return ConfigError(f"{subject}: {NEEDS_AUTHENTICATION} ({fault.gist})")
    found = _PERMANENT.get(fault.class_name)
    if found is None:
        found = next((one for name, one in _PERMANENT.items() if name in fault.gist), None)
    if found is not None:
        return found.kind(f"{subject}: {found.remedy} ({fault.gist})")
    if CHECKED_TABLES in fault.text:
        return UsageError(f"{subject}: {REFUSED_TABLE} ({fault.gist})")
    # A cell that is too large is quoted with its key, behind which the reason stands.
    if _ARGUMENT.search(fault.text.partition("\n")[0]):
        return UsageError(
            f"{subject}: HBase refuses it: a row key has 1 to 32,767 bytes, a cell at most "
            f"hbase.server.keyvalue.maxsize (10 MiB), and names of tables have letters, digits and "
            f"._- only ({fault.gist})"
        )
    if _NO_NUMBER in fault.gist:
        return UsageError(
            f"{subject}: what is there is no number of 8 bytes, to which alone can be added "
            f"({fault.gist})"
        )
    if fault.is_certain and fault.kind is Kind.PERMANENT:
        return StorageUnavailable(f"{subject}: HBase refuses it, and would again ({fault.gist})")
    if fault.is_certain:
        return StorageUnavailable(
            f"{subject}: HBase cannot serve it now; a region may be moving or a server down, see "
            f"`status` in the `hbase shell` ({fault.gist})",
            retryable=True,
        )
    return StorageUnavailable(
        f"{subject}: HBase failed; see the logs of its servers ({fault.gist})", retryable=True
    )


def _unsent(error: NotSent, subject: str) -> OmidError:
    cause = error.__cause__
    if isinstance(cause, socket.gaierror):
        return StorageUnavailable(
            f"{subject}: the host's name is unknown here ({cause}); servers of HBase are reached "
            "by the names that they give themselves (hbase.regionserver.hostname): let this "
            "machine resolve them, or go through a gateway, hbase+thrift2://HOST:PORT",
            retryable=True,
        )
    if isinstance(cause, ConnectionRefusedError):
        return StorageUnavailable(
            f"{subject}: nobody listens there; is the server up?", retryable=True
        )
    return StorageUnavailable(f"{subject}: {error}", retryable=True)


def is_disabled(error: Exception) -> bool:
    """Say whether an error is that a table is disabled."""
    return isinstance(error, Fault) and (
        error.class_name == "TableNotEnabledException" or bool(_DISABLED.search(error.gist))
    )
