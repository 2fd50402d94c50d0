"""What does a gateway's error mean to a user?  From Thrift and socket errors to our own.

Pure: an error, and what was being done, in; one of `omidpy.errors` out.  Nothing of Thrift leaves
the package.  A message names the gateway, the call, the table and the remedy, and the first line of
what HBase said, or the last of what its client tried.

A gateway sends the text of a Java exception, whose class is mostly in the text alone: behind a
count (`Failed 1 action: nope: 1 time`), before a stack, or missing altogether (a table that does
not exist is an error whose whole text is its name).  `canRetry` is false for what HBase's own
client would not repeat; it is true, though, for a batch with a permanent error inside.
"""

from __future__ import annotations

import re
import socket
import ssl
from typing import Final

from thriftpy2.thrift import TApplicationException, TException
from thriftpy2.transport import TTransportException

from omidpy.errors import (
    ConfigError,
    NoSuchTable,
    OmidError,
    StorageUnavailable,
    TableExists,
    UsageError,
)
from omidpy.storage.hbase.addresses.gateways import Gateway, HBaseAddress
from omidpy.storage.hbase.addresses.spelling import place_text
from omidpy.storage.hbase.meanings import CHECKED_TABLES, GATEWAYS, REFUSED_TABLE

_LONGEST_QUOTE: Final = 300
"""Characters of HBase's own text in a message."""


_TRANSIENT: Final = frozenset(
    {
        "CallDroppedException",
        "CallQueueTooBigException",
        "CallTimeoutException",
        "ConnectException",
        "ConnectionClosedException",
        "ConnectionClosingException",
        "ConnectionLossException",
        "FailedServerException",
        "MasterNotRunningException",
        "MasterStoppedException",
        "NoRouteToHostException",
        "NotServingRegionException",
        "OperationTimeoutExceededException",
        "PleaseHoldException",
        "RegionInRecoveryException",
        "RegionMovedException",
        "RegionOpeningException",
        "RegionServerAbortedException",
        "RegionServerStoppedException",
        "RegionTooBusyException",
        "RetriesExhaustedException",
        "RpcThrottlingException",
        "ServerNotRunningYetException",
        "SessionExpiredException",
        "SocketTimeoutException",
        "StoppedRpcClientException",
    }
)
"""HBase itself is about to mend it: a region moves, a server starts, a queue drains."""

_OUTAGE: Final = re.compile(
    r"\bcallTimeout=\d+, callDuration=\d+"
    r"|\b[Oo]peration timeout exceeded during"
    r"|\bwould exceed operation timeout"
    r"|\btime out before the actionsInProgress changed to zero"
    r"|\bZookeeper [A-Z]+ could not be completed in \d+ ms"
)
"""The same, in texts that come without a class: the gateway waited for servers as long as it may.

Of the last one HBase says `canRetry=false`, although the next call asks ZooKeeper anew.
"""

_QUOTA: Final = re.compile(r"The total number of (?:tables|regions) permitted is")
"""In a namespace; it comes without its class."""

_JAVA_CLASS: Final = re.compile(r"\b(?:[a-z]\w*\.)*([A-Z]\w*Exception)\b")
_RETRIED: Final = re.compile(r"^\S+, RpcRetryingCaller\{[^}]*\}, (.*)$", re.MULTILINE)
"""A line for each attempt of HBase's own client, behind one that says how many there were."""
_FAILED_ACTIONS: Final = re.compile(r"Failed \d+ actions?: (.*?): \d+ times?", re.DOTALL)


def text_of(error: BaseException) -> str:
    """Return what an error says; Thrift1 says it in bytes."""
    message = getattr(error, "message", None)
    if isinstance(message, bytes):
        return message.decode("utf-8", errors="replace")
    return message if isinstance(message, str) and message else str(error)


def is_declared(error: BaseException) -> bool:
    """Say whether HBase answered with an error, so that the connection is in step and usable."""
    if isinstance(error, TApplicationException):
        return error.type not in (
            TApplicationException.INVALID_MESSAGE_TYPE,
            TApplicationException.BAD_SEQUENCE_ID,
            TApplicationException.PROTOCOL_ERROR,
        )
    return type(error).__name__ in ("TIOError", "TIllegalArgument", *_THRIFT1_EXCEPTIONS)


_THRIFT1_EXCEPTIONS: Final = ("IOError", "IllegalArgument", "AlreadyExists")


def is_transient(error: BaseException) -> bool:
    """Say whether the same call may well succeed in a moment."""
    if isinstance(error, TApplicationException):
        return False
    if not is_declared(error):
        # Anything else is bytes that mean nothing, or a mistake of ours: the next try meets it too.
        return isinstance(error, TException | OSError | EOFError)
    text = text_of(error)
    classes = set(_JAVA_CLASS.findall(text))
    if classes & GATEWAYS.keys():
        return False
    if _OUTAGE.search(text):
        return True
    return bool(classes & _TRANSIENT) and getattr(error, "canRetry", None) is not False


def translate(
    error: BaseException,
    *,
    address: HBaseAddress,
    table: str | None,
    what: str,
    gateway: Gateway | None = None,
    is_first_contact: bool = False,
    is_outcome_unknown: bool = False,
) -> OmidError:
    """Return what to raise instead of an error of Thrift or of a socket.

    Args:
        error: What was raised.
        address: Where the call went.
        table: The table that the call was about, if any.
        what: The call, in words, or its name.
        gateway: The gateway that was asked; None if none could be reached.
        is_first_contact: No call has ever been answered there, so that the transport or the
            protocol may be another than the address says.
        is_outcome_unknown: The call changes something, was sent, and may have been executed.
    """
    if isinstance(error, OmidError):
        return error
    where = ", ".join(map(place_text, address.gateways if gateway is None else (gateway,)))
    subject = f"{what} at the HBase gateway {where}"
    if table is not None and not re.search(rf"(?<!\w){re.escape(table)}(?!\w)", what):
        subject = f"{what} of table {table!r} at the HBase gateway {where}"
    if isinstance(error, TApplicationException):
        return _refused_by_gateway(error, address, subject, where)
    if is_declared(error):
        if (refusal := _refused_by_hbase(error, table, subject)) is not None:
            return refusal
        meant: OmidError = _failed_in_hbase(error, subject)
    else:
        meant = _broken(error, address, subject, where, is_first_contact=is_first_contact)
    if is_outcome_unknown and isinstance(meant, StorageUnavailable):
        return StorageUnavailable(f"{meant}; whether it was applied is not known")
    return meant


def _refused_by_gateway(
    error: TApplicationException, address: HBaseAddress, subject: str, where: str
) -> OmidError:
    if error.type == TApplicationException.UNKNOWN_METHOD:
        other = "hbase+thrift1" if address.api == "thrift2" else "hbase+thrift2"
        return ConfigError(
            f"{subject}: it does not know this call, so it is not a {address.api} gateway, or it "
            f"is too old; try {other}://{where}, or run `omidpy doctor {where}`"
        )
    return UsageError(
        f"{subject}: the gateway refused it as invalid and says why only in its own log; a row key "
        "has 1 to 32,767 bytes, a cell at most hbase.client.keyvalue.maxsize (10 MiB), split keys "
        "differ, and names of tables have letters, digits and ._- only"
        f" ({text_of(error)})"
    )


def _refused_by_hbase(error: BaseException, table: str | None, subject: str) -> OmidError | None:
    """Return what a refusal means; None if the call may have been done for all we are told."""
    text = text_of(error)
    quoted = _gist(text)
    classes = _JAVA_CLASS.findall(text)
    for name, (kind, remedy) in GATEWAYS.items():
        if name in classes:
            return kind(f"{subject}: {remedy} ({quoted})")
    if _QUOTA.search(text):
        kind, remedy = GATEWAYS["QuotaExceededException"]
        return kind(f"{subject}: {remedy} ({quoted})")
    if CHECKED_TABLES in text:
        return UsageError(f"{subject}: {REFUSED_TABLE} ({quoted})")
    if table is not None:
        actions = _FAILED_ACTIONS.search(quoted)
        named = actions[1] if actions else text
        if named == table:
            remedy = GATEWAYS["TableNotFoundException"].remedy
            return NoSuchTable(f"{subject}: there is no such table; {remedy}")
        if named == f"{table} is disabled.":
            remedy = GATEWAYS["TableNotEnabledException"].remedy
            return StorageUnavailable(f"{subject}: {remedy}")
    if type(error).__name__ == "AlreadyExists":
        return TableExists(f"{subject}: {GATEWAYS['TableExistsException'].remedy} ({quoted})")
    if type(error).__name__ in ("TIllegalArgument", "IllegalArgument"):
        return UsageError(f"{subject}: {GATEWAYS['IllegalArgumentException'].remedy} ({quoted})")
    return None


def _failed_in_hbase(error: BaseException, subject: str) -> StorageUnavailable:
    quoted = _gist(text_of(error))
    if is_transient(error):
        return StorageUnavailable(
            f"{subject}: HBase cannot serve it now; a region may be moving or a server down, see "
            f"`status` in the `hbase shell` ({quoted})",
            retryable=True,
        )
    return StorageUnavailable(f"{subject}: HBase failed; see the logs of its servers ({quoted})")


def _gist(text: str) -> str:
    """Return the first line of what HBase said; of many attempts, how the last one failed."""
    first = text.partition("\n")[0]
    retried = _RETRIED.findall(text)
    if retried:
        first = f"{first.removesuffix(', exceptions:')}, the last: {retried[-1]}"
    return first[:_LONGEST_QUOTE]


def _broken(
    error: BaseException,
    address: HBaseAddress,
    subject: str,
    where: str,
    *,
    is_first_contact: bool,
) -> OmidError:
    # Without the options for TLS and SASL the doctor would be refused too.
    asked = f"'{address.url}'" if address.tls or address.sasl else where
    doctor = f"run `omidpy doctor {asked}`, which finds out what answers there"
    spoken = f"{address.transport} transport and {address.protocol} protocol"
    if isinstance(error, ssl.SSLCertVerificationError):
        told = (
            f"{subject}: its certificate is not trusted: {error.verify_message}; name the "
            "authority with tls_ca=FILE, and a differing name with tls_name=NAME"
        )
        # One that has answered before may have got another by mistake, or its last one has ended.
        if is_first_contact:
            return ConfigError(told)
        return StorageUnavailable(told, retryable=True)
    if isinstance(error, ssl.SSLError):
        return StorageUnavailable(
            f"{subject}: TLS failed; does the gateway speak TLS? ({error})", retryable=True
        )
    if isinstance(error, socket.gaierror):
        return StorageUnavailable(f"{subject}: the host's name is unknown ({error})")
    if isinstance(error, ConnectionRefusedError):
        return StorageUnavailable(
            f"{subject}: nobody listens there; start the gateway (`hbase thrift2 start`), or check "
            "the address",
            retryable=True,
        )
    if address.sasl is not None and "SASL" in text_of(error):
        return StorageUnavailable(
            f"{subject}: {text_of(error)}; is there a ticket (`klist`, `kinit`), and is the "
            f"gateway's principal {address.sasl_service}/{address.sasl_host or 'HOST'}?",
            retryable=not is_first_contact,
        )
    if is_first_contact and isinstance(error, TException | OSError | EOFError):
        remedy = doctor
        if address.tls and address.tls_cert is None:
            remedy = f"does it want a certificate of ours (tls_cert=FILE)?  Else {doctor}"
        return StorageUnavailable(
            f"{subject}: it does not answer in the {spoken} ({text_of(error)}); {remedy}",
            retryable=True,
        )
    if isinstance(error, TimeoutError):
        return StorageUnavailable(
            f"{subject}: no answer within {address.timeout_s:g} s; HBase may be moving regions, or "
            "be overloaded, or the gateway serve all the connections it can "
            "(hbase.thrift.maxWorkerThreads); timeout_s in the address waits longer",
            retryable=True,
        )
    if isinstance(error, TTransportException | OSError | EOFError):
        remedy = "is the gateway up?"
        if address.transport == "framed":
            remedy = (
                "is the gateway up, and is no row larger than its frames "
                "(hbase.regionserver.thrift.framed.max_frame_size_in_mb, 2 as shipped)?"
            )
        return StorageUnavailable(
            f"{subject}: the connection broke ({text_of(error)}); {remedy}", retryable=True
        )
    return StorageUnavailable(
        f"{subject}: the answer could not be read ({type(error).__name__}: {text_of(error)}); "
        f"{doctor}",
        retryable=True,
    )
