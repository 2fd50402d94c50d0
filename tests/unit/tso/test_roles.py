"""The file that says what the name in a certificate may ask."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from omidpy.errors import ConfigError
from omidpy.wire.messages import ALL_ROLES, Role
from tests.machines.tls import Authority
from tso.serving.tls import ServerTls, TlsSettings, _read_roles


def test_each_name_has_the_roles_of_its_line(tmp_path: Path) -> None:
    """A list that is empty forbids everything."""
    file = tmp_path / "roles.toml"
    file.write_text('etl = ["transactions", "fences"]\nops = ["admin"]\n"*" = []\n')
    assert _read_roles(str(file)) == {
        "etl": Role.TRANSACTIONS | Role.FENCES,
        "ops": ALL_ROLES,
        "*": Role.NONE,
    }


def test_a_name_without_a_line_may_ask_nothing(tmp_path: Path) -> None:
    """Nor may whoever has no name."""
    authority, file = Authority(tmp_path), tmp_path / "roles.toml"
    file.write_text('etl = ["transactions"]\n')
    tls = ServerTls(
        TlsSettings(
            cert=str(authority.issue("server")), client_ca=str(authority.ca), roles=str(file)
        )
    )
    assert tls.roles("etl") is Role.TRANSACTIONS
    assert tls.roles("other") is Role.NONE
    assert tls.roles(None) is Role.NONE
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    "text",
    [
        b'etl = ["\xff"]',
        b"etl = " + b"[" * 5000,
        b"etl = " + b"9" * 5000,
        b"etl = 0x" + b"f" * 5000,
        b'etl = "admin"',
        b'etl = ["everything"]',
        b"[etl]",
    ],
    ids=range(7),
)
def test_a_file_that_cannot_be_meant_is_an_error(tmp_path: Path, text: bytes) -> None:
    """Not a traceback, whatever is in it; the file is named."""
    file = tmp_path / "roles.toml"
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=r"roles\.toml"):
        _read_roles(str(file))
