"""The command `omidpy console`: a real process, its oracle, its signals, TLS and certificates."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

import omidpy
from omidpy.console.parts import DEADLINE_S
from omidpy.errors import WriteConflict
from omidpy.fate import Fate, TableFateStore
from omidpy.fate.operation import Status
from omidpy.testing.fate.basics import an_operation
from tests.machines.console import add_operations, proof_in
from tests.machines.processes import ROOT, tso_server
from tests.machines.tls import Authority
from tests.machines.waiting import wait_for

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
COMMAND = "from omidpy.cli import main; main()"


@contextlib.contextmanager
def console(*words: str, command: str = COMMAND) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command; give its address once it listens."""
    process = subprocess.Popen(
        [sys.executable, "-c", command, "console", "--listen", "127.0.0.1:0", *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"console at https?://(\S+)/\n", line)
        assert found is not None, line
        yield found[1], process
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        assert process.stderr is not None
        process.stderr.close()


def free_port() -> int:
    """Return a port that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def page(
    address: str,
    path: str,
    *,
    context: ssl.SSLContext | None = None,
    form: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Ask for a page, or send a form."""
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    else:
        connection = http.client.HTTPSConnection(address, timeout=PATIENCE_S, context=context)
    with contextlib.closing(connection):
        scheme = "http" if context is None else "https"
        body = None if form is None else urlencode(form)
        headers = {} if form is None else {"Origin": f"{scheme}://{address}"}
        connection.request("GET" if form is None else "POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def client_context(authority: Authority, name: str) -> ssl.SSLContext:
    """Return what a connection with the certificate of `name` is made with."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.load_cert_chain(authority.issue(name))
    return context


def test_the_oracle_is_shown_with_its_figures_and_clients(tmp_path: Path) -> None:
    """One that leads and one that stands by, refusals by reason, and who began a transaction."""
    url = f"sqlite:///{tmp_path}/s.db"
    ports = [free_port(), free_port()]
    with contextlib.ExitStack() as stack:
        leader = stack.enter_context(tso_server(url, "--metrics", f"127.0.0.1:{ports[0]}"))
        address = leader.address
        standby = stack.enter_context(tso_server(url, "--metrics", f"127.0.0.1:{ports[1]}"))
        standby.wait_for("standby")
        tm = stack.enter_context(omidpy.connect(url, tso=address))
        tm.create_table("t", families=["cf"])
        first, second = tm.begin(), tm.begin()
        for tx in (first, second):
            tx.table("t").put(b"r", {b"cf:q": b"v"})
        first.commit()
        with pytest.raises(WriteConflict):
            second.commit()
        words = [word for port in ports for word in ("--metrics", f"127.0.0.1:{port}")]
        at, process = stack.enter_context(console("--store", url, *words))
        status, text = page(at, "/oracle")
        assert status == 200
        assert re.search(rf'<span class="state done">leads</span> <b>{address}</b>', text)
        assert '<span class="state done">answers</span>' in text
        assert '<span class="state waits">stands by</span>' in text
        assert re.search(r'<th scope="row">conflict</th>.*?<td class="n">1</td>', text)
        assert re.search(r'<td>127.0.0.1</td><td class="n">\d</td>', text)
        with tm.begin() as tx:
            _, text = page(at, f"/transaction?start_ts={tx.start_ts}")
            assert re.search(r"<dt>by</dt><dd>127\.0\.0\.1:\d+</dd>", text)
        standby.kill()
        leader.kill()
        began_s = time.monotonic()
        _, text = page(at, "/oracle")
        assert time.monotonic() - began_s < 2 * DEADLINE_S
        assert "does not answer" in text or "is still asked" in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM)


def test_the_status_says_what_each_server_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same figures, by the command line."""
    from omidpy.cli import main

    url, port = f"sqlite:///{tmp_path}/s.db", free_port()
    with tso_server(url, "--metrics", f"127.0.0.1:{port}") as server:
        assert server.address
        words = ["--store", url, "--metrics", f"127.0.0.1:{port}", "--metrics", "127.0.0.1:1"]
        with pytest.raises(SystemExit) as ended:
            main(["status", *words, "--json"])
        assert not ended.value.code
        leads, gone = json.loads(capsys.readouterr().out)["servers"]
        assert (leads["answers"], gone["answers"]) == (True, False)
        assert leads["clients"]["clients"] == []
        with pytest.raises(SystemExit):
            main(["status", *words])
        out = capsys.readouterr().out
        assert f"server 127.0.0.1:{port}" in out
        assert "answers 0 connections; 0 commits, 0 refused" in out
        assert "cannot be asked: " in out


def test_over_tls_a_certificate_says_who_may(tmp_path: Path) -> None:
    """An operator may change something, another client only look; without one nobody is heard."""
    authority = Authority(tmp_path)
    roles = tmp_path / "roles.toml"
    roles.write_text('ops = ["admin"]\netl = ["transactions"]\n')
    url, journal = f"sqlite:///{tmp_path}/s.db", tmp_path / "journal"
    with omidpy.connect(url) as tm:
        ids = add_operations(tm.store, now=1_700_000_000_000_000_000)
    server = authority.issue("127.0.0.1")
    words = ["--store", url, "--tls-cert", str(server), "--tls-client-ca", str(authority.ca)]
    words += ["--tls-roles", str(roles), "--allow-operations", "--journal", str(journal)]
    with console(*words) as (at, _):
        ops, etl = (client_context(authority, name) for name in ("ops", "etl"))
        assert "<button" not in page(at, "/operations", context=etl)[1]
        text = page(at, "/operations", context=ops)[1]
        assert "ops may change something, by a certificate" in text
        form = {"id": ids["waiting"], "proof": proof_in(text)}
        assert page(at, "/deeds/cancel", context=etl, form=form)[0] == 403
        assert page(at, "/deeds/cancel", context=ops, form=form)[0] == 303
        asked, done = map(json.loads, journal.read_text("utf-8").splitlines())
        assert (asked["who"], asked["by"], done["state"]) == ("ops", "certificate", "done")
        stranger = ssl.create_default_context(cafile=str(authority.ca))
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            page(at, "/oracle", context=stranger)
        with pytest.raises((OSError, http.client.HTTPException)):
            page(at, "/oracle")


SLOW: Final = f"import omidpy.console.deeds as deeds; deeds.RESERVED_WAIT_S = 12.0; {COMMAND}"
"""Its deeds wait longer for an operation that is under way than a server that ends for a page."""


def test_a_console_that_is_told_to_end_notes_what_becomes_of_a_deed(tmp_path: Path) -> None:
    """Once the page had waited long enough it was gone: the journal never said how that ended."""
    authority = Authority(tmp_path)
    url, journal = f"sqlite:///{tmp_path}/s.db", tmp_path / "journal"
    server = authority.issue("127.0.0.1")
    words = ["--store", url, "--tls-cert", str(server), "--tls-client-ca", str(authority.ca)]
    words += ["--allow-operations", "--journal", str(journal)]
    with contextlib.ExitStack() as stack:
        tm = stack.enter_context(omidpy.connect(url))
        fates = TableFateStore(tm.store)
        going = an_operation(status=Status.IN_PROGRESS)
        assert fates.insert(going)
        executor = stack.enter_context(Fate(None, fates, {"NONE": 1}, lease_s=PATIENCE_S))
        assert executor._executor._worker is not None
        assert fates.try_reserve(going, executor._executor._worker)
        at, process = stack.enter_context(console(*words, command=SLOW))
        ops = client_context(authority, "ops")
        form = {"id": going.id, "proof": proof_in(page(at, "/operations", context=ops)[1])}
        asked = threading.Thread(target=_ask, args=(at, ops, form))
        asked.start()
        wait_for(journal.read_bytes, PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM)
        asked.join(PATIENCE_S)
    lines = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
    assert [line["state"] for line in lines] == ["asked", "refused"]


def _ask(at: str, context: ssl.SSLContext, form: dict[str, str]) -> None:
    """Send a form whose answer may never come."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        page(at, "/deeds/fail", context=context, form=form)
