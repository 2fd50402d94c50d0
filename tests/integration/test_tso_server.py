"""A real `tso-server` process: bytes on its socket, its life, its standby, and hostile clients."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import re
import resource
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import omidpy
from omidpy.base.commit_facts import INVALID
from omidpy.base.timing.clock import SystemClock
from omidpy.connect import connect
from omidpy.errors import ConfigError, OmidError, OracleUnavailable, UsageError
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import lease_address, read_lease
from omidpy.facts.watermarks import Watermarks
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.address import parse_address
from omidpy.oracle.base import (
    AbortReason,
    Begun,
    CommitGranted,
    CommitRefused,
    InvalidationVerdict,
)
from omidpy.oracle.tcp import TcpOracle
from omidpy.spark.frames.writes import jobs
from omidpy.spark.frames.writes.streaming import batch_writer_of
from omidpy.spark.frames.writes.writing import PartMessage, writer_of
from omidpy.storage.sqlite import SqliteStore
from omidpy.wire.frames import MAX_REQUEST_FRAME_BYTES, decode_response, encode_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    CommitResponse,
    HandshakeRequest,
    InvalidateRequest,
    PeerCapabilities,
    Request,
)
from tests.machines.processes import LONGEST_S, ROOT, ServerProcess, tso_server
from tests.machines.waiting import wait_for
from tso.cli import RESERVED_DESCRIPTOR_COUNT, allowed_connection_count
from tso.embedded import EmbeddedOracle
from tso.serving.server import DRAIN_S, MAX_CONNECTION_COUNT

pytestmark = pytest.mark.integration

HANDSHAKE = bytes.fromhex("1a020a00")
HANDSHAKE_ANSWER = bytes.fromhex("1a06080112001800")
BEGIN = bytes.fromhex("0a00")


class Raw:
    """A bare socket that speaks frames."""

    def __init__(self, address: str) -> None:
        """Connect."""
        self.socket = socket.create_connection(parse_address(address), timeout=30)

    def send(self, *payloads: bytes) -> None:
        """Send frames in one write."""
        self.socket.sendall(b"".join(struct.pack(">I", len(p)) + p for p in payloads))

    def receive(self) -> bytes:
        """Return the next payload; empty if the connection was closed."""
        head = self._exactly(4)
        return self._exactly(struct.unpack(">I", head)[0]) if head else b""

    def is_closed(self) -> bool:
        """Say whether the server has ended the connection, without having said anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                return b""
            data += part
        return data


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store that does not exist yet."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def server(url: str) -> Iterator[ServerProcess]:
    """Run a server whose timestamps are easy to foretell."""
    with tso_server(url, "--timestamps", "incremental") as server:
        yield server


@pytest.fixture
def raw(server: ServerProcess) -> Iterator[Raw]:
    """Connect a bare socket."""
    connection = Raw(server.address)
    yield connection
    connection.socket.close()


def open_store(url: str) -> SqliteStore:
    """Open the server's store beside it."""
    return SqliteStore(url.removeprefix("sqlite:///"), must_exist=True)


# -- Java's conversation, byte for byte ------------------------------------------------------------


def test_a_java_session_is_answered_byte_for_byte(raw: Raw, url: str) -> None:
    """Nothing of our extensions appears to a client that announced none."""
    raw.send(HANDSHAKE)
    assert raw.receive() == HANDSHAKE_ANSWER
    raw.send(BEGIN)
    assert raw.receive().hex() == "0a02" + "0832"
    raw.send(BEGIN)
    assert raw.receive().hex() == "0a02" + "0864"
    cells = "18fbf1aae4e29fd187a001" + "1801"
    tables = "209dc3f7a5c799cabeac01"
    raw.send(bytes.fromhex("121a" + "0832" + cells + tables))
    assert raw.receive().hex() == "1207" + "0800" + "1032" + "189601"
    raw.send(bytes.fromhex("121a" + "0864" + cells + tables))
    assert raw.receive().hex() == "1204" + "0801" + "1064"
    raw.send(bytes.fromhex("121c" + "0832" + "1001" + cells + tables))
    assert raw.receive().hex() == "1207" + "0800" + "1032" + "189601"
    raw.send(bytes.fromhex("220b089dc3f7a5c799cabeac01"))
    assert raw.receive().hex() == "220e" + "089dc3f7a5c799cabeac01" + "10c801"
    store = open_store(url)
    cells_found = store.get("OMID_COMMIT_TABLE", [bytes.fromhex("020000000000000032")])[0]
    assert [cell[1:] for cell in cells_found] == [(b"F", b"C", 50, b"\x64")]
    store.close()


def test_requests_in_one_packet_are_answered_in_order(raw: Raw) -> None:
    """A client may pipeline from its first byte."""
    raw.send(HANDSHAKE, BEGIN, BEGIN)
    assert [raw.receive().hex() for _ in range(3)] == [
        HANDSHAKE_ANSWER.hex(),
        "0a020832",
        "0a020864",
    ]


def test_requests_may_come_byte_by_byte(raw: Raw) -> None:
    """TCP promises no more."""
    for byte in b"".join(struct.pack(">I", len(p)) + p for p in (HANDSHAKE, BEGIN)):
        raw.socket.sendall(bytes((byte,)))
    assert raw.receive() == HANDSHAKE_ANSWER
    assert raw.receive().hex() == "0a020832"


# -- hostile clients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payloads", "reason"),
    [
        ([BEGIN], "the first message is no handshake"),
        ([HANDSHAKE, HANDSHAKE], "a second handshake"),
        ([HANDSHAKE, b""], "holds 0 messages"),
        ([HANDSHAKE, b"\xff\xff\xff"], ""),
        ([HANDSHAKE, bytes.fromhex("12040833" + "1801")], "start_ts 51 was never issued"),
        ([HANDSHAKE, bytes.fromhex("12050880f104")], ""),
        ([HANDSHAKE, bytes.fromhex("ca3e020832")], "did not announce"),
    ],
)
def test_whoever_breaks_the_protocol_is_closed_with_a_reason(
    server: ServerProcess, payloads: list[bytes], reason: str
) -> None:
    """In Java a request before the handshake is executed although its channel is closed."""
    raw = Raw(server.address)
    raw.send(*payloads)
    if payloads[0] == HANDSHAKE and raw.receive() == HANDSHAKE_ANSWER:
        pass
    assert raw.is_closed()
    line = server.wait_for("connection-closed.*reason")
    assert reason in line
    assert server.log.count("connection-closed") == 1
    raw.socket.close()
    fine = TcpOracle(server.address)
    assert fine.begin().start_ts == 50
    fine.close()


@pytest.mark.parametrize(
    "request_of",
    [
        InvalidateRequest,
        lambda start_ts: CommitRequest(start_ts, (CellId(1),), (TableId(1),)),
        lambda start_ts: CommitRequest(start_ts, (CellId(1),), (TableId(1),), is_retry=True),
    ],
    ids=["invalidation", "commit", "repetition"],
)
def test_no_start_timestamp_of_a_request_ends_the_oracle(
    url: str, request_of: Callable[[Timestamp], Request]
) -> None:
    """Above the first timestamps, below the low watermark, and between two steps: one message did.

    The low watermark is far above 0, since the store had an oracle before.
    """
    with tso_server(url) as server:
        begun = begin(server)
    odd = [1, 49, begun - 49, begun + 1, 9 * 10**18, 2**62, 2**63 - 1, -1, -50, -(2**63)]
    with tso_server(url) as server:
        for start_ts in [begun, *odd]:
            raw = Raw(server.address)
            shake = HandshakeRequest(PeerCapabilities(int(ALL_FEATURES), client=7))
            raw.send(encode_request(shake), encode_request(request_of(Timestamp(start_ts))))
            assert raw.receive()
            if start_ts != begun:
                assert raw.is_closed()
            raw.socket.close()
        assert begin(server) > begun
        assert "invariant" not in server.log


def begin(server: ServerProcess) -> int:
    """Return a start timestamp."""
    oracle = TcpOracle(server.address)
    try:
        return oracle.begin().start_ts
    finally:
        oracle.close()


def test_a_frame_longer_than_the_limit_is_refused_unread(raw: Raw, server: ServerProcess) -> None:
    """The length alone decides; nothing is buffered for it."""
    raw.socket.sendall(struct.pack(">I", MAX_REQUEST_FRAME_BYTES - 3))
    assert raw.is_closed()
    assert "10485761 bytes is announced" in server.wait_for("connection-closed")


def test_a_client_without_capabilities_is_told_so(raw: Raw) -> None:
    """Java's answer: not compatible.  Afterwards nothing is executed for it."""
    raw.send(bytes.fromhex("1a00"))
    assert raw.receive().hex() == "1a0408001800"
    raw.send(BEGIN)
    assert raw.is_closed()


@pytest.mark.parametrize("cell", [-(2**63), 0, 2**63 - 1])
def test_no_cell_id_hurts_the_server(server: ServerProcess, cell: int) -> None:
    """In Java -2**63 kills the oracle."""
    oracle = TcpOracle(server.address)
    first, second = oracle.begin().start_ts, oracle.begin().start_ts
    assert isinstance(oracle.commit(first, [CellId(cell)], []), CommitGranted)
    assert oracle.commit(second, [CellId(cell)], []) == CommitRefused(
        AbortReason.CONFLICT, (CellId(cell),)
    )
    oracle.close()


def test_a_client_that_does_not_read_is_dropped(server: ServerProcess) -> None:
    """Its answers are bounded; the others do not notice."""
    raw = Raw(server.address)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.send(HANDSHAKE)
    stop = threading.Event()

    def flood() -> None:
        frames = (struct.pack(">I", len(BEGIN)) + BEGIN) * 10_000
        try:
            while not stop.is_set():
                raw.socket.sendall(frames)
        except OSError:
            return

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        assert "are unread" in server.wait_for("connection-closed")
    finally:
        stop.set()
        raw.socket.close()
        thread.join(60)
    fine = TcpOracle(server.address)
    assert fine.begin().start_ts > 0
    fine.close()


# -- our own clients -------------------------------------------------------------------------------


def test_our_clients_see_the_extensions(server: ServerProcess, url: str) -> None:
    """Store id, epoch, watermark, reasons and invalidations."""
    store = open_store(url) if server.address else None
    assert store is not None
    oracle = TcpOracle(server.address, store_id=store.store_id)
    begun = oracle.begin(hold_s=5)
    assert begun == Begun(Timestamp(50), newest_fence=Timestamp(0))
    assert oracle.max_transaction_age_s == 900
    assert oracle.invalidate(begun.start_ts) is InvalidationVerdict.INVALIDATED
    assert CommitTable(store).read((begun.start_ts,)) == {begun.start_ts: INVALID}
    refused = oracle.commit(begun.start_ts, [CellId(1)], [TableId(1)])
    assert refused == CommitRefused(AbortReason.INVALIDATED)
    oracle.close()
    store.close()


def test_the_log_names_whoever_holds_the_low_watermark_back(url: str) -> None:
    """By where it is: the number that it says of itself would let others commit in its place."""
    with tso_server(url, "--timestamps", "incremental", "--max-transaction-age", "1s") as server:
        oracle = TcpOracle(server.address)
        begun = oracle.begin(hold_s=60)
        line = server.wait_for("low-watermark-held")
        assert f"start_ts={begun.start_ts} by=127.0.0.1:" in line
        oracle.close()


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_write_of_spark_may_take_as_long_as_it_says(url: str, *, is_stream: bool) -> None:
    """Spark ends the process that has begun it at once, and another one commits much later.

    It was aborted once it was as old as any transaction may become, when all of it was written.
    """
    with tso_server(url, "--max-transaction-age", "1s") as server:
        with connect(url, tso=server.address) as tm:
            tm.create_table("t", ["cf"])
        options = {"store": url, "tso": server.address, "table": "t", "key": "row", "hold": "1h"}
        options["columns"] = "n=cf:n"
        schema = pa.schema([("row", pa.binary()), ("n", pa.int64())])
        rows = [pa.record_batch({"row": [b"a"], "n": [1]})]
        if is_stream:
            sent = pickle.dumps(batch_writer_of(options, schema, overwrite=False))
        else:
            sent = pickle.dumps(writer_of(options, schema, overwrite=False))
        line = server.wait_for("low-watermark-held")
        assert int(line.partition("left_s=")[2]) > 3000
        writer = pickle.loads(sent)
        if is_stream:
            writer.commit([writer.written(iter(rows), 0, "query", 0)], 0)
        else:
            writer.commit([PartMessage(jobs.run(writer.job, rows, 0))])
        with connect(url, tso=server.address) as tm:
            assert dict(tm.begin().table("t").scan()).keys() == {b"a"}


def test_a_transaction_belongs_to_the_client_that_began_it(server: ServerProcess) -> None:
    """Also when that one had to connect again meanwhile."""
    ours, stranger = TcpOracle(server.address), TcpOracle(server.address)
    start_ts = ours.begin().start_ts
    with pytest.raises(OracleUnavailable):
        stranger.commit(start_ts, [CellId(1)], [])
    assert ours._links.current is not None
    ours._links.current.kill("the connection breaks")
    assert isinstance(ours.commit(start_ts, [CellId(1)], []), CommitGranted)
    ours.close()
    stranger.close()


def test_a_million_begins_lose_no_update(server: ServerProcess, raw: Raw) -> None:
    """They made the victim's transaction everybody's; a stranger committed it with no cells."""
    with closing(TcpOracle(server.address)) as victim, closing(TcpOracle(server.address)) as other:
        start_ts = victim.begin().start_ts
        raw.send(HANDSHAKE)
        assert raw.receive() == HANDSHAKE_ANSWER
        for _ in range(1050):
            raw.send(*[BEGIN] * 1000)
            answers = [raw.receive() for _ in range(1000)]
        assert answers[-1].startswith(bytes.fromhex("0a"))
        ours = CommitRequest(start_ts, ())
        raw.send(encode_request(ours))
        answer = decode_response(raw.receive())
        assert answer == CommitResponse(start_ts, None)
        assert isinstance(other.commit(other.begin().start_ts, [CellId(1)], []), CommitGranted)
        verdict = victim.commit(start_ts, [CellId(1)], [])
        assert verdict == CommitRefused(AbortReason.CONFLICT, (CellId(1),))


def test_an_oracle_of_another_store_is_refused(server: ServerProcess) -> None:
    """Timestamps of one store mean nothing in another."""
    oracle = TcpOracle(server.address, store_id="another")
    with pytest.raises(ConfigError, match="another"):
        oracle.begin()
    oracle.close()


def test_the_server_is_found_through_the_store(server: ServerProcess, url: str) -> None:
    """`tso="store:"` needs no address."""
    address = server.address
    store = open_store(url)
    host, port = lease_address(store)
    assert f"{host}:{port}" == address
    oracle = TcpOracle(resolve=lambda: lease_address(store), store_id=store.store_id)
    assert oracle.begin().start_ts == 50
    oracle.close()
    store.close()


# -- life ------------------------------------------------------------------------------------------


def test_sigterm_drains_and_gives_everything_back(server: ServerProcess, url: str) -> None:
    """Exit 0, the ceiling at the last timestamp, the lease free, and a sample of its time."""
    oracle = TcpOracle(server.address, reconnect_budget_s=0)
    start_ts = oracle.begin().start_ts
    verdict = oracle.commit(start_ts, [CellId(1)], [])
    assert isinstance(verdict, CommitGranted)
    assert server.terminate() == 0
    with pytest.raises(OracleUnavailable):
        oracle.begin()
    oracle.close()
    store = open_store(url)
    assert read_lease(store) is None
    boots = {sample.boot for sample in Watermarks(ControlTable(store)).samples()}
    assert boots == {SystemClock().boot}
    with EmbeddedOracleFor(store) as embedded:
        assert embedded.begin().start_ts == verdict.commit_ts + 50
    store.close()


class EmbeddedOracleFor:
    """An embedded oracle for the length of a block."""

    def __init__(self, store: SqliteStore) -> None:
        """Remember the store."""
        self._oracle = EmbeddedOracle(store, timestamps="incremental")

    def __enter__(self) -> EmbeddedOracle:
        """Return the oracle."""
        return self._oracle

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._oracle.close()


def test_a_standby_takes_over_the_moment_its_predecessor_dies(
    server: ServerProcess, url: str
) -> None:
    """The lock dies with its process; nobody waits for a lease to run out."""
    oracle = TcpOracle(server.address)
    before = oracle.begin()
    undecided = oracle.begin().start_ts
    committed = oracle.commit(before.start_ts, [CellId(1)], [])
    oracle.close()
    with tso_server(url, "--timestamps", "incremental") as standby:
        assert str(server.pid) in standby.wait_for("^standby")
        server.kill()
        successor = TcpOracle(standby.address)
        after = successor.begin()
        assert after.start_ts > after.epoch > before.start_ts
        assert successor.commit(before.start_ts, [CellId(1)], [], is_retry=True) == committed
        assert successor.commit(undecided, [CellId(2)], []) == CommitRefused(
            AbortReason.LOW_WATERMARK
        )
        told = re.findall(r"^standby .*$", standby.log, re.MULTILINE)
        holders = [line.partition("holder=")[2] for line in told]
        assert len(holders) == len(set(holders)), "each holder once"
        successor.close()


def test_a_server_without_standard_streams_answers(url: str) -> None:
    """It ended before it began, and nobody was told why; its store had the number of stderr."""
    words = [sys.executable, "-m", "tso.cli", "--store", url, "--listen", "127.0.0.1:0"]
    command = f"exec {shlex.join(words)} <&- >&- 2>&-"
    with subprocess.Popen(["sh", "-c", command], cwd=ROOT) as process:
        try:
            wait_for(lambda: process.poll() is not None or _answers(url), LONGEST_S)
            for number in range(3):
                assert Path(f"/proc/{process.pid}/fd/{number}").readlink() == Path(os.devnull)
        finally:
            process.terminate()
        assert process.wait(LONGEST_S) == 0


def _answers(url: str) -> bool:
    """Say whether clients find an oracle by the store."""
    try:
        omidpy.connect(url, tso="store:").close()
    except OmidError:
        return False
    return True


def test_a_standby_can_be_stopped(server: ServerProcess, url: str) -> None:
    """It has nothing to drain."""
    assert server.address
    with tso_server(url) as standby:
        standby.wait_for("^standby")
        assert standby.terminate() == 0


def test_an_embedded_oracle_is_refused_beside_a_server(server: ServerProcess, url: str) -> None:
    """The message says how to share."""
    assert server.address
    store = open_store(url)
    with pytest.raises(ConfigError, match=f"(?s){server.pid}.*tso="):
        EmbeddedOracle(store)
    store.close()


def test_a_second_sigterm_ends_the_process_at_once(url: str) -> None:
    """Whatever the drain waits for: here a store whose lock another process holds."""
    with tso_server(url) as server:
        oracle = TcpOracle(server.address, reconnect_budget_s=0)
        start_ts = oracle.begin().start_ts
        store = open_store(url)
        lock = os.open(url.removeprefix("sqlite:///") + "-lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        oracle._request_timeout_s = 0.2
        with pytest.raises(OracleUnavailable):
            oracle.commit(start_ts, [CellId(1)], [])
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("^stopping")
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM
        os.close(lock)
        oracle.close()
        store.close()


def test_floods_that_read_nothing_do_not_put_off_the_end(server: ServerProcess) -> None:
    """SIGTERM is heard between turns, and answers that nobody reads are not waited for."""
    flood = (struct.pack(">I", len(BEGIN)) + BEGIN) * 20_000
    is_flooded = threading.Event()

    def attack() -> None:
        while True:
            try:
                raw = Raw(server.address)
            except OSError:
                return
            with contextlib.suppress(OSError):
                raw.send(HANDSHAKE)
                while True:
                    raw.socket.sendall(flood)
                    is_flooded.set()
            raw.socket.close()

    attackers = [threading.Thread(target=attack) for _ in range(5)]
    for attacker in attackers:
        attacker.start()
    assert is_flooded.wait(30)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(5 * DRAIN_S) == 0
    for attacker in attackers:
        attacker.join(30)


def test_what_it_may_take_of_memory_is_said_at_the_start(url: str) -> None:
    """In MiB, of what grows with clients and with the map."""
    with tso_server(url) as server:
        line = server.wait_for("^memory ")
    words = dict(word.split("=") for word in line.split()[1:])
    assert int(words["conflict_map_mib"]) == (21 * 16_000_001 + 4 * 2**22) // 2**20 + 1
    assert int(words["requests_mib"]) == int(words["unread_answers_mib"]) == 64
    assert int(words["begins_mib"]) == int(words["decisions_mib"]) == 26


def test_a_million_cells_are_committed_at_once(url: str) -> None:
    """They were, then a quarter of the map became the limit, and the default map was too small."""
    with tso_server(url) as server, closing(TcpOracle(server.address)) as oracle:
        start_ts = oracle.begin().start_ts
        assert oracle.max_commit_cells is not None
        assert oracle.max_commit_cells > 1_000_000
        cells = [CellId(-number) for number in range(1, oracle.max_commit_cells)]
        assert isinstance(oracle.commit(start_ts, cells, [TableId(-1)]), CommitGranted)
        # One more fits into no request, as it stands, and is not sent.
        start_ts = oracle.begin().start_ts
        with pytest.raises(UsageError, match="write set of"):
            oracle.commit(start_ts, [*cells, *map(CellId, range(-2_000_000, -1_999_980))], [])


def test_an_address_in_use_is_a_configuration_error(server: ServerProcess, tmp_path: Path) -> None:
    """Exit 2, naming the address."""
    address = server.address
    with tso_server(f"sqlite:///{tmp_path}/other.db", listen=address) as other:
        assert other.wait() == 2
        assert address in other.wait_for("cannot listen")


def test_health_and_metrics_are_served_where_asked(url: str) -> None:
    """For those who watch it; off by default."""
    with tso_server(url, "--metrics", "127.0.0.1:0") as server:
        oracle = TcpOracle(server.address)
        oracle.begin()
        # One address from start to end: a scraper must not lose a standby that takes over.
        (line,) = [line for line in server.lines if line.startswith("metrics ")]
        base = "http://" + line.split("address=")[1].split()[0]
        with urllib.request.urlopen(f"{base}/healthz", timeout=30) as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(f"{base}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        assert "tso_timestamp_allocation_total 1.0" in page
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(f"{base}/secrets", timeout=30)
        caught.value.close()
        oracle.close()


def test_neither_bad_clients_nor_an_unread_log_stop_the_server() -> None:
    """At 256 descriptors either hung it, or filled the log with sockets it could not accept."""
    limited = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    without_uvloop = (
        "import sys; sys.modules['uvloop'] = None; import tso.cli; sys.exit(tso.cli.main())"
    )
    program = (sys.executable, "-c", without_uvloop)
    server = subprocess.Popen(
        [*limited, *program, "--store", "null:", "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        line = next(line for line in server.stderr if line.startswith("listening on "))
        address = line.split()[-1]
        oracle = TcpOracle(address)
        assert oracle.begin().start_ts > 0
        server.send_signal(signal.SIGSTOP)
        held = [Raw(address) for _ in range(300)]
        server.send_signal(signal.SIGCONT)
        assert oracle.begin().start_ts > 0
        for _ in range(1500):
            bad = Raw(address)
            with contextlib.suppress(OSError):
                bad.send(b"no handshake")
            bad.socket.close()
        assert oracle.begin().start_ts > 0
        for raw in held:
            raw.socket.close()
        oracle.close()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        rest = server.stderr.read()
        assert "connection-closed" in rest
        assert "accept" not in rest
    finally:
        server.kill()
        server.wait(60)
        server.stderr.close()


def test_the_limit_of_descriptors_bounds_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client too many is refused; a socket too many cannot even be accepted."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 300))
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    assert allowed_connection_count() == 300 - RESERVED_DESCRIPTOR_COUNT
    assert set_to == [(300, 300)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**20, 2**20))
    assert allowed_connection_count() == MAX_CONNECTION_COUNT
