"""The settings of a `tso-server`: sources, checks, and the files that are shipped."""

from __future__ import annotations

import configparser
import errno
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from io import StringIO
from pathlib import Path

import pytest

import tso
from omidpy.errors import ConfigError
from tso.choices import CONFIG, DEFAULT_MAP_MIB, ORACLE
from tso.cli import main
from tso.config import Config, age_ms, load_config
from tso.core.engine import map_bytes
from tso.core.settings import DEFAULT_AGE_MS, Settings

DEPLOY = Path(tso.__file__).parent / "deploy"
STORE = ["--store", "sqlite:////data/a.db"]


def test_flags_beat_environment_beat_file_beat_defaults(tmp_path: Path) -> None:
    """An operator overrides a unit's file without editing it."""
    file = tmp_path / "tso.toml"
    file.write_text(
        'store = "sqlite:////from/file.db"\ntimestamps = "incremental"\nconflict-map-size = 7\n'
        'max-transaction-age = "1h"\n'
    )
    environment = {"TSO_CONFLICT_MAP_SIZE": "8", "TSO_MAX_TRANSACTION_AGE": "2h"}
    config = load_config(["--config", str(file), "--max-transaction-age", "500ms"], environment)
    assert config == Config(
        store="sqlite:////from/file.db",
        timestamps="incremental",
        conflict_map_size=8,
        max_transaction_age_ms=500,
    )


def test_what_may_be_asked_is_what_there_is_and_by_default_the_same() -> None:
    """A default of the parser that is none of the settings would hold for the server alone."""
    settings = Config(store="sqlite:////data/a.db")
    assert load_config(STORE, {}) == settings
    names = {field.name.removesuffix("_ms") for field in fields(Config)}
    assert names == {one.key for one in ORACLE} - {CONFIG.key}
    machine = Settings()
    for name in ("timestamps", "conflict_map_size", "begins_per_s", "commits_per_s"):
        assert getattr(settings, name) == getattr(machine, name)


def test_the_conflict_map_is_given_in_writes_or_in_memory() -> None:
    """Whoever sizes a machine knows its memory; by default it holds what a large job writes."""
    default = load_config(STORE, {}).conflict_map_size
    assert default == 16_000_000
    assert map_bytes(default) >> 20 == 336
    said = load_config([*STORE, "--conflict-map-size", f"{DEFAULT_MAP_MIB}MiB"], {})
    assert said.conflict_map_size >= default
    size = load_config([*STORE, "--conflict-map-size", "1 GiB"], {}).conflict_map_size
    assert map_bytes(size) <= 2**30 < map_bytes(size + 1)
    assert size > 2 * default
    assert load_config([*STORE, "--conflict-map-size", "8"], {}).conflict_map_size == 8


def test_rates_are_numbers_and_none_is_a_limit_by_itself() -> None:
    """0 is no limit, which is not the same as saying nothing."""
    config = load_config(STORE, {})
    assert (config.cells_per_s, config.begins_per_s, config.commits_per_s) == (None, 0, 0)
    chosen = ["--cells-per-s", "0", "--begins-per-s", "7"]
    config = load_config([*STORE, *chosen], {"TSO_COMMITS_PER_S": "9"})
    assert (config.cells_per_s, config.begins_per_s, config.commits_per_s) == (0, 7, 9)
    assert "cells-per-s = 0\n" in config.as_toml()


def test_the_file_can_be_named_by_the_environment(tmp_path: Path) -> None:
    """TSO_CONFIG, as for every other setting."""
    file = tmp_path / "tso.toml"
    file.write_text('store = "sqlite:////data/b.db"\naccept-clock = true\n')
    config = load_config([], {"TSO_CONFIG": str(file)})
    assert config.accept_clock
    assert config.store == "sqlite:////data/b.db"


def test_addresses_may_leave_the_port_to_the_system() -> None:
    """Tests and supervisors ask for port 0 and read which it became."""
    config = load_config([*STORE, "--listen", "127.0.0.1:0", "--metrics", "[::1]:0"], {})
    assert config.listen == ("127.0.0.1", 0)
    assert config.metrics == ("::1", 0)
    assert load_config(STORE, {}).listen == ("127.0.0.1", 24758)


@pytest.mark.parametrize(
    ("listen", "options"),
    [
        ("0.0.0.0:1", ["--insecure"]),
        ("0.0.0.0:1", ["--tls-cert", "c.pem"]),
        ("127.0.0.2:1", []),
        ("localhost:1", []),
        ("[::1]:1", []),
    ],
)
def test_only_this_machine_is_served_in_the_open(listen: str, options: list[str]) -> None:
    """Unless somebody says so in so many words."""
    config = load_config([*STORE, "--listen", listen, *options], {})
    assert (config.tls is None) == ("--tls-cert" not in options)


def test_what_is_printed_can_be_read_again(tmp_path: Path) -> None:
    """`--check-config` shows the settings in the form of the file."""
    options = ["--max-transaction-age", "90s", "--advertise", "h:5", "--accept-clock"]
    options += ["--tls-cert", "c.pem", "--tls-client-ca", "a.pem", "--insecure"]
    config = load_config([*STORE, *options], {})
    file = tmp_path / "tso.toml"
    file.write_text(config.as_toml())
    assert load_config(["--config", str(file)], {}) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--store is missing"),
        ([*STORE, "--listen", "nowhere:99999"], "--listen"),
        ([*STORE, "--timestamps", "lunar"], "'lunar' is neither world nor incremental"),
        ([*STORE, "--lease", "zk:/h/ns"], "neither store nor zk"),
        ([*STORE, "--lease", "file"], "neither store nor zk"),
        ([*STORE, "--lease", "zk://h/omid?tsl=1"], "unknown option 'tsl'"),
        (["--store", "null:", "--lease", "zk://h/omid"], "null: has no lease"),
        ([*STORE, "--initial-timestamp", "soon"], "'soon' is no timestamp"),
        ([*STORE, "--initial-timestamp", "0"], "'0' is no timestamp"),
        ([*STORE, "--initial-timestamp", str(2**63)], "is no timestamp"),
        ([*STORE, "--conflict-map-size", "many"], "--conflict-map-size 'many'"),
        ([*STORE, "--conflict-map-size", "0"], "--conflict-map-size '0'"),
        ([*STORE, "--conflict-map-size", "50B"], "nor a size of memory"),
        ([*STORE, "--conflict-map-size", "1TiB"], "is no number from 1"),
        ([*STORE, "--cells-per-s", "-1"], "--cells-per-s '-1' is no number a second"),
        ([*STORE, "--begins-per-s", "fast"], "--begins-per-s 'fast'"),
        ([*STORE, "--max-transaction-age", "15"], "'15' is no duration"),
        ([*STORE, "--max-transaction-age", "0s"], "'0s' is no duration"),
        ([*STORE, "--config", "/nowhere/at.all"], "/nowhere/at.all"),
        (["--store", "null:", "--listen", "0.0.0.0:1"], "persists nothing"),
        ([*STORE, "--listen", "0.0.0.0:1"], "say --insecure"),
        ([*STORE, "--listen", "[::]:1"], "say --insecure"),
        ([*STORE, "--listen", "tso.example:1"], "--tls-cert and --tls-client-ca"),
        ([*STORE, "--metrics", "0.0.0.0:1"], "say --insecure"),
        ([*STORE, "--metrics", "[::]:1"], "--tls-cert and --tls-client-ca"),
        (
            [*STORE, "--tls-cert", "c.pem", "--tls-crl", "r.pem"],
            "--tls-crl says nothing without --tls-client-ca",
        ),
        ([*STORE, "--tls-key", "key.pem"], "--tls-key says nothing without --tls-cert"),
        ([*STORE, "--tls-client-ca", "ca.pem"], "--tls-client-ca says nothing without --tls-cert"),
        (
            [*STORE, "--tls-cert", "c.pem", "--tls-roles", "r.toml"],
            "--tls-roles says nothing without --tls-client-ca",
        ),
        (["--store", "memory:"], "no client could open it"),
        (["--store", "hbase+thrift2://gw?pool_size=0"], "pool_size='0' must be 1 or more"),
        (["--store", "hbase+thrift2://"], "is no gateway"),
        (["--store", "hbase://gw:9090"], "is no address of a store"),
        (["--store", "sqlite://relative.db"], "write sqlite:///relative.db"),
        (["--store", "sqlite:///a%00b"], "no file has a NUL"),
        (["--store", "sqlite:///a\0b"], "no file has a NUL"),
        ([*STORE, "--config", "a\0b"], "is no readable TOML"),
        ([*STORE, "--listen", "a\0b:1"], "--listen"),
        ([*STORE, "--listen", "a..b:1"], "--listen"),
        ([*STORE, "--listen", "a:" + "9" * 5000], "--listen"),
        ([*STORE, "--max-transaction-age", "36501d"], "longer than 36500d"),
        ([*STORE, "--max-transaction-age", "9" * 5000 + "d"], "longer than 36500d"),
        ([*STORE, "--initial-timestamp", "9" * 5000], "is no timestamp"),
        ([*STORE, "--conflict-map-size", "9" * 5000], "is no number from 1"),
    ],
)
def test_a_wrong_setting_is_named(options: list[str], message: str) -> None:
    """And nothing was started."""
    with pytest.raises(ConfigError) as caught:
        load_config(options, {})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        b'store = "\xff"',
        b"store = " + b"[" * 5000,
        b"conflict-map-size = " + b"9" * 5000,
        *(
            name + b" = 0x" + b"f" * 5000
            for name in (b"conflict-map-size", b"initial-timestamp", b"accept-clock", b"listen")
        ),
        b"accept-clock = [[]]",
        b"listen = {a = 1}",
        b"conflict-map-size = true",
        b'timestamps = "incremental"\ninitial-timestamp = true',
    ],
    ids=range(11),
)
def test_a_file_that_cannot_be_meant_is_an_error(tmp_path: Path, text: bytes) -> None:
    """Not a traceback, whatever is in it."""
    file = tmp_path / "tso.toml"
    file.write_bytes(text)
    with pytest.raises(ConfigError):
        load_config(
            [*STORE, "--config", str(file)] if b"store" not in text else ["--config", str(file)], {}
        )


def test_an_unknown_key_in_the_file_is_an_error(tmp_path: Path) -> None:
    """A misspelt setting must not silently mean its default."""
    file = tmp_path / "tso.toml"
    file.write_text('stoer = "sqlite:////data/a.db"\n')
    with pytest.raises(ConfigError, match="unknown setting 'stoer'"):
        load_config(["--config", str(file)], {})


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("10s", 10_000), ("15m", 900_000), ("24h", 86_400_000), ("1.5h", 5_400_000)],
)
def test_durations_have_a_unit(text: str, milliseconds: int) -> None:
    """No bare number: seconds to one reader are milliseconds to the next."""
    assert age_ms(text, name="--x") == milliseconds


def test_the_command_says_what_is_wrong_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    """2 is configuration: a supervisor must not start it again."""
    assert main([*STORE, "--timestamps", "lunar"]) == 2
    assert "tso-server: --timestamps 'lunar'" in capsys.readouterr().err


def test_wrong_settings_have_their_exit_code_where_nobody_takes_the_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a full disk it ended with 1, and a supervisor started it again and again."""

    class Full(StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, f"No space left for {text}")

    monkeypatch.setattr(sys, "stderr", Full())
    assert main([*STORE, "--timestamps", "lunar"]) == 2


def test_check_config_prints_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The store is not even opened."""
    assert main([*STORE, "--check-config"]) == 0
    assert 'store = "sqlite:////data/a.db"' in capsys.readouterr().out


def test_the_server_refuses_to_run_without_assertions() -> None:
    """Its invariants are assertions, and it exits 70 when one is broken."""
    done = subprocess.run(
        [sys.executable, "-O", "-m", "tso.cli", *STORE, "--check-config"],
        cwd=DEPLOY.parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "python -O" in done.stderr


# -- what is shipped -------------------------------------------------------------------------------


def test_the_shipped_settings_are_valid() -> None:
    """They are what an operator starts from."""
    config = load_config(["--config", str(DEPLOY / "tso-server.toml")], {})
    assert config.metrics == ("127.0.0.1", 24759)


def test_the_shipped_settings_leave_the_age_limit_to_the_store() -> None:
    """A quarter of an hour, written there, would end the transactions of Omid's own clients."""
    config = load_config(["--config", str(DEPLOY / "tso-server.toml")], {})
    assert config.max_transaction_age_ms is None


def test_the_shipped_settings_say_what_the_defaults_are(tmp_path: Path) -> None:
    """Also those that are commented out, which an operator takes for the present ones."""
    text = (DEPLOY / "tso-server.toml").read_text()
    file = tmp_path / "tso.toml"
    file.write_text(re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE))
    shown, real = load_config(["--config", str(file)], {}), Config(store="sqlite:////data/a.db")
    for name in ("listen", "lease", "timestamps", "conflict_map_size", "begins_per_s"):
        assert getattr(shown, name) == getattr(real, name)
    assert shown.commits_per_s == real.commits_per_s
    assert shown.max_transaction_age_ms == DEFAULT_AGE_MS


def test_the_shipped_unit_starts_the_server_with_them() -> None:
    """Its command line is one that the server understands, and its limits fit the server's."""
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    unit.read(DEPLOY / "tso-server.service")
    command, *options = shlex.split(unit["Service"]["ExecStart"])
    assert Path(command).name == "tso-server"
    assert options == ["--config", "/etc/omidpy/tso-server.toml"]
    assert load_config(["--config", str(DEPLOY / "tso-server.toml"), *options[2:]], {}).store
    assert unit["Service"]["RestartPreventExitStatus"] == "2"
    assert unit["Service"]["UMask"] == "0077"
    assert int(unit["Service"]["TimeoutStopSec"]) > 30


@pytest.mark.parametrize(
    ("address", "options", "is_secure"),
    [
        ("0.0.0.0:1", ["--insecure"], False),
        ("0.0.0.0:1", ["--tls-cert", "c.pem"], True),
        ("0.0.0.0:1", ["--tls-cert", "c.pem", "--insecure"], False),
        ("127.0.0.1:1", ["--tls-cert", "c.pem"], False),
        ("[::1]:1", [], False),
    ],
)
def test_metrics_are_served_to_others_with_tls_or_where_the_network_is_trusted(
    address: str, options: list[str], *, is_secure: bool
) -> None:
    """Who reads them learns what goes on here."""
    config = load_config([*STORE, "--metrics", address, *options], {})
    assert config.metrics is not None
    assert config.has_secure_metrics == is_secure
    assert not load_config([*STORE, "--tls-cert", "c.pem"], {}).has_secure_metrics


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
@pytest.mark.parametrize(
    ("name", "instance"),
    [
        ("tso-server.service", "tso-server.service"),
        ("omidpy-compact.service", "omidpy-compact.service"),
        ("omidpy-export@.service", "omidpy-export@orders.service"),
    ],
)
def test_systemd_accepts_the_shipped_units(tmp_path: Path, name: str, instance: str) -> None:
    """Word by word, and as ones that are exposed to little."""
    unit = tmp_path / instance
    text = (DEPLOY / name).read_text()
    unit.write_text(re.sub(r"/opt/omidpy/bin/[\w-]+", sys.executable, text))
    for verb in (["verify"], ["security", "--offline=true", "--threshold=40"]):
        done = subprocess.run(
            ["systemd-analyze", *verb, str(unit)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert ("ExecReload=/bin/kill -HUP $MAINPID" in text) is (name == "tso-server.service")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_starts_the_job_of_the_night_by_its_timer(tmp_path: Path) -> None:
    """At half past two, and once a day."""
    for name in ("omidpy-compact.timer", "omidpy-compact.service"):
        text = (DEPLOY / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/omidpy/bin/omidpy", sys.executable))
    timer = tmp_path / "omidpy-compact.timer"
    (moment,) = re.findall(r"^OnCalendar=(.*)$", timer.read_text(), re.MULTILINE)
    for words in (["verify", str(timer)], ["calendar", moment]):
        done = subprocess.run(
            ["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "02:30:00" in done.stdout


@pytest.mark.parametrize("name", ["omidpy-compact.service", "omidpy-export@.service"])
def test_the_command_of_a_unit_is_one_that_exists(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the options that it names: systemd would find out at night."""
    from omidpy.cli import main

    (command,) = re.findall(r"^ExecStart=\S+ (.*)$", (DEPLOY / name).read_text(), re.MULTILINE)
    words = command.split()
    verb = ["export", "run"] if words[0] == "export" else ["compact", "run"]
    with pytest.raises(SystemExit) as ended:
        main([*verb, "--help"])
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert [one for one in words if one.startswith("--") and one not in shown] == []
