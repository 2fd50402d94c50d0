"""Omid's own `TSOClient` talks to our `tso-server`: the protocol, whole, from Java's side."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omidpy.facts.commit_table import CommitTable
from omidpy.model import Timestamp
from omidpy.storage.sqlite import SqliteStore
from omidpy.wire.frames import MAX_REQUEST_FRAME_BYTES
from tests.machines.java import JavaDriver, JavaError
from tests.machines.maven import java_tool
from tests.machines.processes import ServerProcess, tso_server
from tests.machines.proxy import BEGIN, COMMIT, FENCE, LossyProxy
from tests.machines.tls import Authority, openssl

pytestmark = [pytest.mark.integration, pytest.mark.java]

JAVA_FRAME_BYTES = 8192
A, B = {"cell": 1, "row": 11, "table": 7}, {"cell": -2, "row": 11, "table": 7}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    """Run Omid's classes, without any server."""
    with JavaDriver() as driver:
        yield driver


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
def network(server: ServerProcess) -> Iterator[LossyProxy]:
    """Put a network between the two."""
    with LossyProxy(server.address) as proxy:
        yield proxy


class Client:
    """One of Omid's clients of an oracle."""

    def __init__(self, java: JavaDriver, address: str, **options: Any) -> None:
        """Make it; it connects with its first request."""
        self._java = java
        self._name = f"{address}/{id(self)}"
        self.call("open", connect=address, timeout_ms=5000, **options)

    def call(self, do: str, **arguments: Any) -> Any:
        """Do one thing."""
        return self._java.call(f"tso.{do}", client=self._name, **arguments)

    def begin(self) -> int:
        """Return a start timestamp."""
        start: int = self.call("begin")
        return start

    def commit(self, start: int, *cells: dict[str, int], **arguments: Any) -> int:
        """Return a commit timestamp."""
        commit: int = self.call("commit", start=start, cells=list(cells), **arguments)
        return commit

    def fence(self, table: int) -> int:
        """Return the timestamp of a fence."""
        fence: int = self.call("fence", table=table)
        return fence

    def aborted(self, start: int, *cells: dict[str, int], **arguments: Any) -> None:
        """Try to commit, and be refused."""
        with pytest.raises(JavaError) as caught:
            self.commit(start, *cells, **arguments)
        assert caught.value.type == "AbortException"


@pytest.fixture
def client(java: JavaDriver, network: LossyProxy) -> Iterator[Client]:
    """Connect Omid's client, by way of the network."""
    client = Client(java, network.address, retries=3)
    yield client
    client.call("close")


def committed(url: str, start: int) -> int | None:
    """Return the commit timestamp that stands in the commit table."""
    store = SqliteStore(url.removeprefix("sqlite:///"), must_exist=True)
    entry = CommitTable(store).read((Timestamp(start),))[Timestamp(start)]
    store.close()
    assert entry is None or isinstance(entry, int)
    return entry


# -- what happens every day ------------------------------------------------------------------------


def test_java_begins_and_commits(client: Client, url: str) -> None:
    """The entry is in the commit table before Java hears of it."""
    first = client.begin()
    second = client.begin()
    assert (first, second) == (50, 100)
    commit = client.commit(first, A)
    assert commit == 150
    assert committed(url, first) == commit
    assert committed(url, second) is None
    assert client.call("is_low_latency") is False
    assert client.call("epoch") == -1


def test_of_two_writers_of_a_cell_the_second_is_refused(client: Client) -> None:
    """That is what snapshot isolation promises; other cells do not matter."""
    first, second, third = client.begin(), client.begin(), client.begin()
    client.commit(first, A)
    client.aborted(second, A, B)
    client.commit(third, B)


def test_the_level_decides_what_java_sends(
    java: JavaDriver, network: LossyProxy, server: ServerProcess
) -> None:
    """At row level two cells of one row are one."""
    client = Client(java, network.address, level="ROW")
    first, second = client.begin(), client.begin()
    client.commit(first, A)
    client.aborted(second, B)
    client.call("close")


def test_a_commit_without_cells_is_granted(client: Client) -> None:
    """Java sends one where all its writes are free of conflicts."""
    start = client.begin()
    assert client.commit(start, free=[A]) > start


def test_a_fence_refuses_what_began_before_it(client: Client) -> None:
    """Also writes that are free of conflicts: Omid once forgot those (OMID-72)."""
    before, free_before, elsewhere = client.begin(), client.begin(), client.begin()
    fence = client.fence(7)
    assert fence > elsewhere
    client.aborted(before, A)
    client.aborted(free_before, free=[B])
    client.commit(elsewhere, {"cell": 5, "row": 5, "table": 8})
    client.commit(client.begin(), A)


def test_many_requests_of_many_threads_share_one_connection(
    java: JavaDriver, client: Client, network: LossyProxy
) -> None:
    """Answers carry no number: start timestamps are matched by their order alone."""
    name = client._name
    futures = [
        java.start("tso.begin", client=name, session=f"session-{index % 8}") for index in range(400)
    ]
    starts = [future.result(60) for future in futures]
    assert len(set(starts)) == 400
    for index in range(8):
        mine = starts[index::8]
        assert mine == sorted(mine)
    commits = [
        java.start(
            "tso.commit",
            client=name,
            session=f"session-{index % 8}",
            start=start,
            cells=[{"cell": index, "row": index, "table": 7}],
        )
        for index, start in enumerate(starts)
    ]
    assert all(future.result(60) > start for future, start in zip(commits, starts, strict=True))
    assert len({future.result() for future in commits}) == 400


# -- dropped connections ---------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_is_answered_when_asked_again(
    client: Client, network: LossyProxy, url: str
) -> None:
    """Java repeats it with `isRetry`; deciding again would find it in conflict with itself."""
    start = client.begin()
    network.lose_answer(COMMIT)
    commit = client.commit(start, A)
    assert commit == committed(url, start)
    first, second = network.seen(COMMIT)
    assert b"\x10\x01" not in first[2:8]
    assert second[2:].startswith(b"\x08" + bytes((start,)) + b"\x10\x01")


def test_an_abort_whose_answer_was_lost_is_still_an_abort(
    client: Client, network: LossyProxy, url: str
) -> None:
    """The oracle remembers its refusals as well."""
    first, second = client.begin(), client.begin()
    client.commit(first, A)
    network.lose_answer(COMMIT)
    client.aborted(second, A)
    assert len(network.seen(COMMIT)) == 3
    assert committed(url, second) is None


def test_a_commit_that_never_arrived_is_not_invented(
    client: Client, network: LossyProxy, url: str
) -> None:
    """A repetition of what nobody knows gets no verdict; Java looks into the commit table then.

    Omid's oracle answers "abort", also where it has merely forgotten.
    """
    start = client.begin()
    network.lose_request(COMMIT)
    with pytest.raises(JavaError) as caught:
        client.commit(start, A)
    assert caught.value.type == "ServiceUnavailableException"
    assert committed(url, start) is None
    assert client.begin() > start


def test_start_timestamps_and_fences_survive_dropped_connections(
    client: Client, network: LossyProxy
) -> None:
    """They are harmless to repeat, and every answer is a new one."""
    first = client.begin()
    network.lose_answer(BEGIN)
    second = client.begin()
    network.lose_request(BEGIN)
    third = client.begin()
    assert first < second < third
    network.lose_answer(FENCE)
    fence = client.fence(7)
    assert fence > third
    assert len(network.seen(FENCE)) == 2


def test_java_goes_on_after_the_server_was_killed_and_started_again(
    java: JavaDriver, url: str
) -> None:
    """What was begun before can no longer commit, and what had committed is still known."""
    with tso_server(url) as server:
        address = server.address
        client = Client(java, address, retries=5)
        before, open_before = client.begin(), client.begin()
        commit = client.commit(before, A)
        server.kill()
    with tso_server(url, listen=address) as server:
        assert server.address == address
        until_it_answers(client)
        client.aborted(open_before, B)
        after = client.begin()
        assert after > commit
        assert committed(url, before) == commit
    client.call("close")


def until_it_answers(client: Client) -> None:
    """Ask until Java's client has noticed that the server is back: it pauses for a second."""
    for _ in range(60):
        try:
            client.begin()
        except JavaError as error:
            if error.type not in {"ConnectionException", "ServiceUnavailableException"}:
                raise
        else:
            return
    raise AssertionError("Omid's client does not find the server again")


# -- sizes -----------------------------------------------------------------------------------------


def test_large_write_sets_are_read_unpacked(client: Client, url: str) -> None:
    """Java packs nothing: ten bytes and a tag for half of these cells."""
    start, late = client.begin(), client.begin()
    commit = client.commit(start, cells_count=150_000)
    assert committed(url, start) == commit
    client.aborted(late, cells_count=150_000)


def test_no_answer_to_java_is_longer_than_its_frames(client: Client, network: LossyProxy) -> None:
    """Its client closes the connection on more than 8 KiB; the cells in conflict are for ours."""
    start, late = client.begin(), client.begin()
    client.commit(start, cells_count=5000)
    client.aborted(late, cells_count=5000)
    assert max(len(payload) + 4 for payload in network.answers) <= JAVA_FRAME_BYTES
    assert network.answers[-1].hex() == "1204" + "0801" + "1064"


def test_a_write_set_beyond_the_limit_ends_one_connection_only(
    java: JavaDriver, server: ServerProcess, url: str
) -> None:
    """The transaction did not commit, and the others do not notice."""
    client = Client(java, server.address, retries=1)
    start = client.begin()
    with pytest.raises(JavaError) as caught:
        client.commit(start, cells_count=1_000_000)
    assert caught.value.type == "ServiceUnavailableException"
    assert f"at most {MAX_REQUEST_FRAME_BYTES}" in server.wait_for("connection-closed")
    assert committed(url, start) is None
    assert client.commit(client.begin(), A) > start
    client.call("close")


def java_stores(authority: Authority, name: str, folder: Path) -> dict[str, str]:
    """Return the options of a client with a certificate of `name`, in the stores that Java reads.

    Omid 1.1.3 takes whatever kinds the JVM knows, and PEM is none of them.
    """
    key_store, trust_store = folder / f"{name}.p12", folder / f"{name}-trust.p12"
    password = "changeit"
    options = ("-passout", f"pass:{password}", "-name", name)
    cert = str(authority.issue(name))
    openssl("pkcs12", "-export", "-in", cert, "-out", str(key_store), *options)
    trusts = ("-storetype", "PKCS12", "-storepass", password, "-noprompt", "-alias", "ca")
    subprocess.run(
        [
            *(java_tool("keytool"), "-importcert", "-file", str(authority.ca)),
            *("-keystore", str(trust_store), *trusts),
        ],
        check=True,
        capture_output=True,
    )
    return {
        "key_store": str(key_store),
        "trust_store": str(trust_store),
        "password": password,
    }


def test_java_speaks_tls_and_is_told_apart_by_its_certificate(
    java: JavaDriver, url: str, tmp_path: Path
) -> None:
    """What one name began no other commits, though Java's clients do not say who they are."""
    authority = Authority(tmp_path)
    options = ["--tls-cert", str(authority.issue("server")), "--tls-client-ca", str(authority.ca)]
    with tso_server(url, *options) as server:
        etl, other = (
            Client(java, server.address, **java_stores(authority, name, tmp_path))
            for name in ("etl", "other")
        )
        start = etl.begin()
        with pytest.raises(JavaError):
            other.commit(start, A, retries=0)
        server.wait_for("^connection-closed .*another client began")
        assert etl.commit(start, A) > start
        assert other.commit(other.begin(), A) > start
        etl.call("close")
        other.call("close")
