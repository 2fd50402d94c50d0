"""What the console is told when it is started, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omidpy.cli import main
from omidpy.console.settings import Settings, settings_from_words
from omidpy.errors import ConfigError, UsageError
from tso.serving.tls import TlsSettings


def settings(**words: Any) -> Settings:
    """Return settings of a store, and what is said besides."""
    given = {"store": "sqlite:///x.db", "tso": None, "listen": "127.0.0.1:8080", **words}
    return settings_from_words(**given)


def test_by_default_it_is_of_this_machine_and_changes_nothing() -> None:
    """And finds the oracle by its lease."""
    found = settings()
    assert (found.host, found.port, found.is_local) == ("127.0.0.1", 8080, True)
    assert not found.may_operate
    assert found.addresses.tso == "store:"


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:8080", "[::]:8080", "console.example:80", "10.0.0.1:0"]
)
def test_where_others_reach_it_it_asks_for_tls_or_the_word(listen: str) -> None:
    """As the oracle's own metrics do."""
    with pytest.raises(ConfigError, match=r"--listen .*--tls-cert.*--insecure"):
        settings(listen=listen)
    assert not settings(listen=listen, insecure=True).is_local
    assert settings(listen=listen, tls=TlsSettings("cert.pem")).tls is not None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"allow_operations": True}, "--token-file, or --tls-client-ca"),
        ({"allow_operations": True, "tls": TlsSettings("c.pem")}, "--token-file, or --tls-client"),
        ({"allow_operations": True, "tls": TlsSettings("c", client_ca="a")}, "--journal"),
        ({"token_file": "x"}, "without --allow-operations"),
        ({"journal": "x"}, "without --allow-operations"),
        ({"store": "memory:"}, "memory:"),
        ({"listen": "nowhere"}, "--listen"),
        ({"metrics": ["x:y:z:"]}, "--metrics"),
        ({"folders": ["file:///x"]}, "s3://"),
    ],
)
def test_what_does_not_fit_is_refused(words: dict[str, Any], problem: str) -> None:
    """With what would help."""
    with pytest.raises((ConfigError, UsageError), match=problem):
        settings(**words)


def test_whoever_may_change_something_is_noted(tmp_path: Path) -> None:
    """By a token of a file, and a journal."""
    path = tmp_path / "tokens"
    path.write_text(f"alice {'a' * 24}\n")
    path.chmod(0o600)
    found = settings(allow_operations=True, token_file=str(path), journal=str(tmp_path / "j"))
    assert found.may_operate
    assert found.tokens is not None
    assert found.tokens.owner("a" * 24) == "alice"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--tls-key", "x"], "--tls-key says nothing without --tls-cert"),
        (["--tls-roles", "x", "--tls-cert", "y"], "--tls-roles says nothing without"),
        (["--listen", "0.0.0.0:1"], "--insecure"),
    ],
)
def test_the_command_refuses_in_a_line(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And listens to nothing."""
    with pytest.raises(SystemExit) as ended:
        main(["console", "--store", "sqlite:///x.db", *words])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
