"""What the errors of gateways mean: the texts are those that HBase 2.6 was seen to send."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TTransportException

from omidpy.errors import (
    ConfigError,
    NoSuchFamily,
    NoSuchTable,
    OmidError,
    StorageError,
    StorageUnavailable,
    TableExists,
    UsageError,
)
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.idl import thrift1, thrift2
from omidpy.storage.hbase.rpc.translate import is_declared, is_transient, translate

ADDRESS = parse_address("hbase+thrift2://gw:9091")
STACK = "\n\tat org.apache.hadoop.hbase.master.HMaster.secret(HMaster.java:1)\n\tat ..."


def said(text: str, *, can_retry: bool | None = False) -> Exception:
    """Return an error of the gateway with a text."""
    error: Exception = thrift2.TIOError(message=text, canRetry=can_retry)
    return error


def meant(error: Exception, **kwargs: Any) -> OmidError:
    """Return what an error means for a put to the table t."""
    settings = {"address": ADDRESS, "table": "t", "what": "put", "gateway": ("gw", 9091), **kwargs}
    return translate(error, **settings)


FAMILY = (
    "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException: Column family zz does not "
    "exist in region t,,17.3e5. in table 't', {NAME => 'f', TTL => 'FOREVER'}" + STACK
)

TOO_MANY = (
    "The table small:b cannot be created as it would exceed maximum number of tables allowed  in "
    "the namespace.  The total number of tables permitted is 1"
)
SPACE = "org.apache.hadoop.hbase.quotas.SpaceLimitingException: NO_WRITES Puts are disallowed"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (said("t"), NoSuchTable),
        (
            said("Failed 2 actions: t: 2 times, servers with issues: null", can_retry=True),
            NoSuchTable,
        ),
        (
            said("Failed 1 action: t: 1 time, servers with issues: null", can_retry=True),
            NoSuchTable,
        ),
        (said("org.apache.hadoop.hbase.TableNotFoundException: t" + STACK), NoSuchTable),
        (said("org.apache.hadoop.hbase.NamespaceNotFoundException: ns" + STACK), NoSuchTable),
        (said(FAMILY), NoSuchFamily),
        (said("Failed 1 action: " + FAMILY, can_retry=True), NoSuchFamily),
        (said("org.apache.hadoop.hbase.TableExistsException: t" + STACK), TableExists),
        (said("t is disabled."), StorageUnavailable),
        (said("Failed 1 action: t is disabled.: 1 time", can_retry=True), StorageUnavailable),
        (said("org.apache.hadoop.hbase.security.AccessDeniedException: no" + STACK), StorageError),
        (said("org.apache.hadoop.hbase.quotas.QuotaExceededException: t" + STACK), StorageError),
        (said(TOO_MANY), StorageError),
        (said(f"Failed 1 action: {SPACE}: 1 time", can_retry=True), StorageError),
        (said("a.DoNotRetryIOException: x. Set hbase.table.sanity.checks to false"), UsageError),
        (said("java.lang.IllegalArgumentException: Timestamp cannot be negative"), UsageError),
        (thrift2.TIllegalArgument(message="Invalid scanner Id"), UsageError),
        (TApplicationException(6, "Internal error processing put"), UsageError),
        (
            thrift1.IOError(message=b"org.apache.hadoop.hbase.TableNotFoundException: t"),
            NoSuchTable,
        ),
        (
            thrift1.IOError(
                message=b"org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException: "
                b"Failed 1 action: t: 1 time, servers with issues: null" + STACK.encode()
            ),
            NoSuchTable,
        ),
    ],
)
def test_a_refusal_for_good_has_its_own_error(error: Exception, kind: type[OmidError]) -> None:
    """Callers tell these apart by class; and none of them is tried again."""
    found = meant(error, is_outcome_unknown=False)
    assert type(found) is kind
    assert not found.retryable
    assert not is_transient(error)
    assert is_declared(error)
    assert "gw:9091" in str(found)
    assert "'t'" in str(found)
    assert "HMaster.java" not in str(found), "a stack is for HBase's own logs"
    assert len(str(found)) < 700


@pytest.mark.parametrize(
    "text",
    [
        "Failed 1 action: org.apache.hadoop.hbase.NotServingRegionException: t,,1: 1 time",
        "org.apache.hadoop.hbase.RegionTooBusyException: Over memstore limit",
        "Call to rs1 failed on local exception: org.apache.hadoop.hbase.ipc.CallTimeoutException",
        "org.apache.hadoop.hbase.PleaseHoldException: Master is initializing",
        "org.apache.hadoop.hbase.client.RetriesExhaustedException: Failed after attempts=16",
        "java.net.SocketTimeoutException: callTimeout=30000",
        "org.apache.zookeeper.KeeperException$ConnectionLossException: KeeperErrorCode",
    ],
)
def test_what_hbase_is_about_to_mend_may_be_tried_again(text: str) -> None:
    """Regions move and servers start while clients run; that is no reason to fail them."""
    error = said(text, can_retry=True)
    assert is_transient(error)
    found = meant(error)
    assert type(found) is StorageUnavailable
    assert found.retryable


IN_VAIN = " could not be completed in 10000 ms"
TWICE = " locations.: 2 times, servers with issues: null"


@pytest.mark.parametrize(
    ("text", "can_retry"),
    [
        ("Zookeeper LIST" + IN_VAIN, False),
        ("org.apache.hadoop.hbase.DoNotRetryIOException: Zookeeper GET" + IN_VAIN, False),
        ("time out before the actionsInProgress changed to zero", True),
        ("Failed 2 actions: Operation timeout exceeded during resolution of region" + TWICE, True),
        ("Failed 2 actions: Operation timeout exceeded during re-resolution of" + TWICE, True),
        ("Failed 5 actions: Backoff time of 2016ms would exceed operation timeout: 5 times", True),
        ("callTimeout=30000, callDuration=31792: Server rs1,1,2 aborting row '537'", True),
    ],
)
def test_an_outage_of_hbase_may_be_waited_out(text: str, can_retry: bool) -> None:  # noqa: FBT001
    """What its gateways were heard to say while no region server answered; most name no class.

    Who is told that it passes begins again, and who is told that it does not gives up.
    """
    error = said(text, can_retry=can_retry)
    assert is_transient(error)
    found = meant(error)
    assert type(found) is StorageUnavailable
    assert found.retryable
    assert "HBase cannot serve it now" in str(found)


def test_a_call_that_timed_out_over_a_missing_family_is_refused_for_good() -> None:
    """What cannot be mended is looked for first."""
    error = said(f"callTimeout=30000, callDuration=31792: {FAMILY}", can_retry=True)
    assert not is_transient(error)
    assert type(meant(error)) is NoSuchFamily


def test_a_failure_that_nobody_knows_is_no_reason_to_try_again() -> None:
    """Nor to hide it: the text of HBase comes along."""
    error = said("Something new happened", can_retry=True)
    assert not is_transient(error)
    with pytest.raises(StorageUnavailable, match="Something new happened"):
        raise meant(error)


def test_a_table_named_like_the_text_of_another_is_not_missing() -> None:
    """Only the table that was asked about can be the one that is missing."""
    assert type(meant(said("other"))) is StorageUnavailable


def test_a_gateway_of_the_other_kind_is_named() -> None:
    """The same port might speak Thrift1; the message says what to write."""
    found = meant(
        TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid method name")
    )
    assert isinstance(found, ConfigError)
    assert "hbase+thrift1://gw:9091" in str(found)
    assert "omidpy doctor gw:9091" in str(found)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "nobody listens"),
        (socket.gaierror(-2, "Name or service not known"), "name is unknown"),
        (TimeoutError("timed out"), "no answer within 60 s"),
        (TTransportException(4, "TSocket read 0 bytes"), "the connection broke"),
        (BrokenPipeError(32, "Broken pipe"), "the connection broke"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), "could not be read"),
    ],
)
def test_a_broken_connection_is_a_store_that_cannot_be_reached(error: Exception, says: str) -> None:
    """Each with what its reader can do about it."""
    found = meant(error)
    assert type(found) is StorageUnavailable
    assert says in str(found)
    assert not is_declared(error)


def test_a_framed_gateway_that_hangs_up_may_have_been_sent_too_much() -> None:
    """It says nothing about its limit, and every repetition meets it again."""
    hung_up = BrokenPipeError(32, "Broken pipe")
    framed = parse_address("hbase+thrift2://gw?transport=framed")
    assert "max_frame_size_in_mb" in str(meant(hung_up, address=framed))
    assert "max_frame_size_in_mb" not in str(meant(hung_up))


def test_a_missing_ticket_points_to_kinit() -> None:
    """A transport that did not open says "SASL" and little else."""
    address = parse_address("hbase+thrift2://gw?sasl=gssapi&sasl_host=gw.example")
    error = TTransportException(1, "Could not start SASL: No Kerberos credentials available")
    with pytest.raises(StorageUnavailable, match=r"kinit.*principal hbase/gw\.example") as caught:
        raise meant(error, address=address, is_first_contact=True)
    assert not caught.value.retryable
    assert meant(error, address=address).retryable, "it was let in once"


def test_a_certificate_that_is_not_trusted_is_a_mistake_where_none_was_before() -> None:
    """Else it has ended, or another one was put in its place: that may be mended soon."""
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "certificate has expired"
    with pytest.raises(ConfigError, match=r"certificate has expired; .*tls_ca=FILE"):
        raise meant(error, is_first_contact=True)
    with pytest.raises(StorageUnavailable, match=r"certificate has expired") as caught:
        raise meant(error)
    assert caught.value.retryable


def test_an_unknown_outcome_is_said() -> None:
    """Whether it happened is the first question after a failure."""
    found = meant(TimeoutError("timed out"), is_outcome_unknown=True)
    assert str(found).endswith("whether it was applied is not known")
    for text in ("callTimeout=1, callDuration=2: Server rs1 aborting", "Something new happened"):
        assert str(meant(said(text), is_outcome_unknown=True)).endswith("is not known")
    for text in ("t", "t is disabled.", FAMILY):
        assert "not known" not in str(meant(said(text), is_outcome_unknown=True))


def test_our_own_errors_pass_unchanged() -> None:
    """What was translated once is not wrapped again."""
    error = NoSuchTable("t")
    assert meant(error) is error


def test_a_missing_gateway_lists_those_that_were_tried() -> None:
    """With several, each refused."""
    address = parse_address("hbase+thrift2://gw1,gw2:9191")
    found = meant(ConnectionRefusedError(), address=address, gateway=None)
    assert "gw1:9090, gw2:9191" in str(found)


def test_of_many_attempts_the_last_is_told() -> None:
    """The first line of what HBase's own client says of them is how many there were."""
    attempt = (
        "2026-05-01T06:41:0{0}.431Z, RpcRetryingCaller{{globalStartTime=2026-05-01T06:40:37.638Z, "
        "pause=20, maxAttempts=2}}, org.apache.hadoop.hbase.{1}\n"
    )
    text = "Failed after attempts=2, exceptions:\n"
    text += attempt.format(1, "NotServingRegionException: t,,1. is not online\n\tat a.b(C.java:1)")
    text += attempt.format(2, "exceptions.RegionMovedException: Region moved to: hostname=rs2")
    found = meant(said(text, can_retry=True))
    assert isinstance(found, StorageUnavailable)
    assert found.retryable
    assert "attempts=2, the last: org.apache.hadoop.hbase.exceptions.RegionMoved" in str(found)
    assert "Region moved to: hostname=rs2" in str(found)
