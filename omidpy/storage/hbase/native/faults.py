"""How can a call fail, and what is certain about its outcome then?

HBase says what went wrong by the name of a Java class.  Three things follow from it: whether the
call has certainly done nothing, whether the region is elsewhere, and whether the same call may
succeed in a moment.  A class that is not known here is taken for a failure of unknown outcome that
may pass, unless the server says not to repeat the call.

Where it was raised counts, too: a coprocessor may raise any of them behind the change, and what is
told of all changes of a batch is told of those that were made before.

Source: the classes of HBase 2.6.4, what its own client does about them, and where its
`HRegion.batchMutate` and `RSRpcServices.multi` raise them.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


class Kind(Enum):
    """What to do about a fault."""

    MISPLACED = "the region is elsewhere: look it up, and make the call again"
    BUSY = "make the call again after a pause"
    LEFT = "nothing was done: make the call again at once, a scan from its last whole row on"
    PERMANENT = "making the call again cannot help"
    UNKNOWN = "it may pass, and the call may have been executed"


_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(
        (
            "NotServingRegionException",
            "RegionMovedException",
            "RegionOpeningException",
            "ServerNotRunningYetException",
            "WrongRegionException",
        ),
        Kind.MISPLACED,
    ),
    **dict.fromkeys(
        (
            "CallDroppedException",
            "CallQueueTooBigException",
            "MasterNotRunningException",
            "MasterStoppedException",
            "PleaseHoldException",
            "RegionInRecoveryException",
            "RegionTooBusyException",
            "RpcThrottlingException",
            "ServerTooBusyException",
        ),
        Kind.BUSY,
    ),
    **dict.fromkeys(
        (
            "LeaseException",
            "MultiActionResultTooLarge",
            "OutOfOrderScannerNextException",
            "ScannerResetException",
            "UnknownScannerException",
        ),
        Kind.LEFT,
    ),
    **dict.fromkeys(
        (
            "AccessDeniedException",
            "BadAuthException",
            "ConstraintException",
            "DoNotRetryIOException",
            "FailedSanityCheckException",
            "FatalConnectionException",
            "IllegalArgumentException",
            "InvalidFamilyOperationException",
            "NamespaceNotFoundException",
            "NoSuchColumnFamilyException",
            "QuotaExceededException",
            "RequestTooBigException",
            "SpaceLimitingException",
            "TableExistsException",
            "TableNotDisabledException",
            "TableNotEnabledException",
            "TableNotFoundException",
            "UnsupportedOperationException",
            "WrongVersionException",
        ),
        Kind.PERMANENT,
    ),
}
"""By the last part of a class's name."""

_STOPPING: Final = frozenset({"RegionServerStoppedException", "RegionServerAbortedException"})
"""The region is about to be elsewhere, and a call that was under way may have been executed."""

_BETWEEN_PARTS: Final = frozenset({"NotServingRegionException", "RegionTooBusyException"})
_OF_ONE_CHANGE: Final = "StoreTooBusy,"
_BEHIND_THE_CHANGE: Final = re.compile(
    r"CoprocessorHost\.post(?!StartRegionOperation\b|\w+BeforeWAL\b)\w+\("
)
"""Where a coprocessor is called once the change is made, in a Java stack."""

_UNPROVEN: Final = frozenset({"AccessDeniedException", "AccessControlException"})
_UNPROVEN_TEXT: Final = "Authentication is required"

_OUT_OF_RANGE: Final = re.compile(r"\bout of range\b|\bnot in region\b|\bWrongRegionException\b")
_MOVED_TO: Final = re.compile(
    r"Region moved to: hostname=(\S{1,255}) port=(\d{1,5}) startCode=(\d{1,19})\b", re.ASCII
)
_WAIT: Final = re.compile(r"\bwait (?=\d)([^\n]*)")
_SPAN: Final = re.compile(r"(?<!\d)(\d{1,9})\s*(hrs|mins|sec|ms)\b")
_SPAN_S: Final = {"hrs": 3600.0, "mins": 60.0, "sec": 1.0, "ms": 0.001}
LONGEST_QUOTE: Final = 300
"""Characters of HBase's own text in a message."""


class CallFailed(Exception):
    """A call has not succeeded."""

    is_certain = False
    """Whether the call has certainly not been executed."""


class NotSent(CallFailed):
    """The server has certainly not executed the call: it was not sent whole."""

    is_certain = True


class TooLarge(NotSent):
    """The request is longer than any that HBase takes."""


class Disagreed(NotSent):
    """The client and the server do not speak alike, in TLS or Kerberos."""


class NoTicket(NotSent):
    """We cannot prove who we are now: a ticket has ended, or none was fetched yet."""


class Lost(CallFailed):
    """The connection ended before the answer came."""


class GivenUp(Lost):
    """The connection was ended here, and not by the server."""


class Unanswered(CallFailed):
    """No answer came in time; the call may go on."""


class Forgotten(CallFailed):
    """An earlier attempt may have been executed, and HBase would not know this one again."""


class Garbled(CallFailed):
    """What came is no answer."""


class Fault(CallFailed):
    """The server answered with an exception."""

    def __init__(
        self,
        class_name: str,
        text: str,
        *,
        host: str = "",
        port: int = 0,
        do_not_retry: bool = False,
    ) -> None:
        """Take what the answer says; `text` is the Java stack, its message first."""
        super().__init__(f"{class_name}: {first_line(text)}")
        self.class_name = class_name.rpartition(".")[2].rpartition("$")[2]
        self.text = text
        self._moved = (host, port)
        self._do_not_retry = do_not_retry
        self.is_of_many = False
        """Whether it was told of a change beside others; see `of_many`."""

    def copy(self) -> Fault:
        """Return one that says the same, for another thread to raise."""
        host, port = self._moved
        return Fault(
            self.class_name, self.text, host=host, port=port, do_not_retry=self._do_not_retry
        )

    def of_many(self) -> Fault:
        """Return it as told of a change in one region with others, that are no one change.

        Where HBase does not get the locks of all their rows it makes some, and looks anew whether
        it may make the rest.  If not, it tells the same of all of them, also of those it has made.
        """
        found = self.copy()
        found.is_of_many = True
        return found

    @property
    def gist(self) -> str:
        """The class and the first line of what it says."""
        line = first_line(self.text)
        return line if self.class_name in line else f"{self.class_name}: {line}"

    @property
    def is_about_authentication(self) -> bool:
        """Whether the server refuses a client that only says who it is, and does not prove it."""
        return self.class_name in _UNPROVEN and _UNPROVEN_TEXT in self.text

    @property
    def is_about_tokens(self) -> bool:
        """Whether the server gives no tokens out."""
        return "AuthenticationService" in self.text or "UnknownProtocol" in self.class_name

    @property
    def kind(self) -> Kind:
        """What to do about it."""
        if self.class_name == "FailedSanityCheckException" and _OUT_OF_RANGE.search(self.text):
            return Kind.MISPLACED
        if self.class_name in _STOPPING:
            return Kind.UNKNOWN
        found = _KINDS.get(self.class_name)
        if found is not None:
            return found
        return Kind.PERMANENT if self._do_not_retry else Kind.UNKNOWN

    @property
    def is_elsewhere(self) -> bool:
        """Whether the place of the region is to be looked up."""
        return self.kind is Kind.MISPLACED or self.class_name in _STOPPING

    @property
    def is_certain(self) -> bool:  # type: ignore[override] # it depends on the class here
        """Whether the call has certainly not been executed."""
        if self.kind is Kind.UNKNOWN or self.is_behind_change:
            return False
        is_of_all = self.is_of_many and self.class_name in _BETWEEN_PARTS
        return not is_of_all or _OF_ONE_CHANGE in self.text

    @property
    def is_behind_change(self) -> bool:
        """Whether a coprocessor failed that is called once a change is made."""
        return _BEHIND_THE_CHANGE.search(self.text) is not None

    @property
    def moved_to(self) -> tuple[str, int, int] | None:
        """Host, port and start code of the server that has the region now, if it says so."""
        if self.class_name != "RegionMovedException":
            return None
        found = _MOVED_TO.search(self.text)
        return (found[1], int(found[2]), int(found[3])) if found else None

    @property
    def wait_s(self) -> float:
        """How long the server says to wait; 0 where it does not say."""
        if self.class_name != "RpcThrottlingException":
            return 0.0
        found = _WAIT.search(self.text)
        if found is None:
            return 0.0
        return sum(int(count) * _SPAN_S[unit] for count, unit in _SPAN.findall(found[1]))


def first_line(text: str) -> str:
    """Return the first line of a Java stack, not too long."""
    return text.partition("\n")[0].strip()[:LONGEST_QUOTE]
