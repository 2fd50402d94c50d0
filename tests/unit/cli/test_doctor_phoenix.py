"""`omidpy doctor --phoenix`: what Phoenix needs of the oracle, and of HBase's configuration."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import omidpy
from omidpy.cli import main
from omidpy.phoenix.settings import (
    CLIENT_CONFIGURATION,
    SERVER_SETTINGS,
    client_configuration,
    site_properties,
)
from omidpy.reports.health import phoenix
from omidpy.reports.health.findings import Health


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store."""
    made = f"sqlite:///{tmp_path / 's.db'}"
    omidpy.connect(made).close()
    return made


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def serves(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Let an oracle have written down that it answers there."""
    monkeypatch.setattr(phoenix, "read_lease", lambda _: SimpleNamespace(address=address))


def conf(folder: Path, oracle: str, **other: str) -> Path:
    """Write a region server's configuration."""
    text = site_properties()
    for name, value in other.items():
        wanted = name.replace("_", ".")
        text = text.replace(
            f"<name>{wanted}</name><value>{SERVER_SETTINGS[wanted]}",
            f"<name>{wanted}</name><value>{value}",
        )
    (folder / "hbase-site.xml").write_text(f"<configuration>{text}</configuration>")
    (folder / CLIENT_CONFIGURATION).write_text(oracle)
    return folder


def test_a_cluster_that_is_set_up_is_well(
    url: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order, quotes and comments of the file do not matter."""
    serves(monkeypatch, f"127.0.0.1:{port}")
    said = "# ours\n" + "\n".join(
        reversed(client_configuration(f"127.0.0.1:{port}").replace('"', "").splitlines())
    )
    found = list(phoenix.check_phoenix(url, conf(tmp_path, said)))
    assert [one.health for one in found] == [Health.OK] * 3
    assert "major compactions free space" in found[2].detail


def test_clients_look_in_zookeeper_where_the_oracle_publishes_itself(
    url: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the address of the oracle of now nobody would find the standby that takes over."""
    serves(monkeypatch, f"127.0.0.1:{port}")
    tso = "zk://zk1,zk2:2182/omid?period=5s"
    wanted = client_configuration(tso)
    assert wanted.splitlines()[0].endswith("$ConnType HA")
    assert wanted.splitlines()[1:] == [
        'connectionString: "zk1:2181,zk2:2182"',
        'zkNamespace: "omid"',
    ]
    folder = conf(tmp_path, wanted)
    assert [one.health for one in phoenix.check_phoenix(url, folder, tso)] == [Health.OK] * 3
    conf(tmp_path, client_configuration(f"127.0.0.1:{port}"))
    _, file, _ = phoenix.check_phoenix(url, folder, tso)
    assert file.health is Health.FAILED
    assert wanted.rstrip() in file.detail


def test_what_was_not_looked_at_is_printed(
    url: str, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To be copied."""
    serves(monkeypatch, f"127.0.0.1:{port}")
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--phoenix", "--store", url])
    assert not ended.value.code
    out = capsys.readouterr().out
    assert client_configuration(f"127.0.0.1:{port}") in out
    assert site_properties() in out
    assert "warning  phoenix: hbase-omid-client-config.yml: not looked at" in out


def test_a_server_that_is_set_up_otherwise_is_failed(
    url: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the setting, and what it costs."""
    serves(monkeypatch, f"127.0.0.1:{port}")
    wrong = conf(tmp_path, client_configuration("old:54758"), phoenix_table_ttl_enabled="true")
    _, file, settings = phoenix.check_phoenix(url, wrong)
    assert (file.health, settings.health) == (Health.FAILED, Health.FAILED)
    assert f'connectionString: "127.0.0.1:{port}"' in file.detail
    assert (
        "phoenix.table.ttl.enabled is 'true', and has to be 'false'; HBase's major"
        in settings.detail
    )
    (wrong / CLIENT_CONFIGURATION).unlink()
    (wrong / "hbase-site.xml").write_text("<configuration/>")
    _, file, settings = phoenix.check_phoenix(url, wrong)
    assert "has none; write it" in file.detail
    assert "phoenix.transactions.enabled is not set" in settings.detail


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "does not answer from here"),
        ("0.0.0.0:24758", "cannot reach; start tso-server with --advertise"),
        ("nowhere.invalid:24758", "does not answer from here"),
        ("no-port", "is no HOST:PORT"),
    ],
)
def test_an_address_that_leads_nowhere_is_failed(
    url: str, address: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Region servers would stop compacting."""
    serves(monkeypatch, address)
    found = next(iter(phoenix.check_phoenix(url, None)))
    assert found.health is Health.FAILED
    assert said in found.detail


@pytest.mark.parametrize(
    ("store", "is_here"),
    [
        ("hbase://127.0.0.1:2181,localhost:2182/hbase", True),
        ("hbase://127.0.0.1,zk2/hbase", False),
        ("hbase+thrift2://gateway:9090?framed=true", False),
        ("hbase+rpc://127.0.0.1:16000", True),
        ("sqlite:////x.db", True),
    ],
)
def test_the_loopback_is_reached_on_one_machine_alone(store: str, *, is_here: bool) -> None:
    """There an oracle on it is where the region servers are."""
    assert phoenix._is_here(store) is is_here


def test_the_loopback_is_no_address_for_other_machines(
    url: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers here, and leads each of them to itself."""
    serves(monkeypatch, f"127.0.0.1:{port}")
    monkeypatch.setattr(phoenix, "_is_here", lambda _: False)
    found = next(iter(phoenix.check_phoenix(url, None)))
    assert "cannot reach" in found.detail


def test_without_an_oracle_there_is_no_file(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what it would say."""
    monkeypatch.setattr(phoenix, "read_lease", lambda _: None)
    first, settings = phoenix.check_phoenix(url, None)
    assert "start tso-server" in first.detail
    assert settings.health is Health.WARNING


@pytest.mark.parametrize(
    "words", [["--phoenix", "localhost"], ["--hbase-conf", ".", "--store", "sqlite:///x.db"]]
)
def test_options_that_lack_another_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gives them means something by them."""
    monkeypatch.setattr("omidpy.cli.store.doctor.check_address", lambda _: iter(()))
    monkeypatch.setattr("omidpy.cli.store.doctor.check_store", lambda *_, **__: iter(()))
    monkeypatch.delenv("OMIDPY_STORE", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *words])
    assert ended.value.code == 2
    assert "--phoenix" in capsys.readouterr().err
