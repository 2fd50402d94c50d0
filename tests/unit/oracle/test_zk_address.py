"""What an address in ZooKeeper may say, and what a wrong one is told."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError
from omidpy.oracle.zookeeper import parse_zookeeper, resolver


def test_an_address_names_hosts_and_namespace() -> None:
    """Ports and namespace have ZooKeeper's and Omid's defaults."""
    address = parse_zookeeper("zk://zk1,zk2:2182,[::1]:2183/prod/omid?period=20s&timeout=3s")
    assert address.hosts == "zk1:2181,zk2:2182,[::1]:2183"
    assert address.lease_path == "/prod/omid/tso-lease"
    assert address.current_path == "/prod/omid/current-tso"
    assert (address.period_s, address.timeout_s) == (20, 3)
    assert address.text == "zk://zk1:2181,zk2:2182,[::1]:2183/prod/omid"
    plain = parse_zookeeper("zk://zk1")
    assert plain.ceiling_path == "/omid/omid/timestamp"
    assert (plain.period_s, plain.client_options) == (10, {})


def test_tls_goes_to_the_client_as_it_is() -> None:
    """Certificates and names are checked unless that is switched off."""
    address = parse_zookeeper("zk://h/omid?tls=true&ca=/c.pem&cert=/d.pem&key=/k.pem")
    assert address.client_options == {
        "use_ssl": True,
        "verify_certs": True,
        "check_hostname": True,
        "ca": "/c.pem",
        "certfile": "/d.pem",
        "keyfile": "/k.pem",
    }
    loose = parse_zookeeper("zk://h/omid?tls=on&verify=off").client_options
    assert (loose["verify_certs"], loose["check_hostname"]) == (False, False)


def test_sasl_goes_to_the_client_with_the_password_of_a_file(tmp_path: Path) -> None:
    """An address is printed and logged, a password is not."""
    file = tmp_path / "secret"
    file.write_text("pass word\n")
    address = parse_zookeeper(f"zk://h/omid?sasl=DIGEST-MD5&user=omid&password-file={file}")
    assert address.client_options == {
        "sasl_options": {
            "mechanism": "DIGEST-MD5",
            "service": "zookeeper",
            "username": "omid",
            "password": "pass word",
        }
    }
    assert "pass word" not in address.text + repr(address)
    kerberos = parse_zookeeper("zk://h/omid?sasl=GSSAPI&service=zk").client_options
    assert kerberos == {"sasl_options": {"mechanism": "GSSAPI", "service": "zk"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zk:/h/omid", "no address of ZooKeeper; expected zk://host1:2181,host2:2181/omid"),
        ("zk:///omid", "no address of ZooKeeper"),
        ("zk://[", "no address of ZooKeeper; expected zk://host1:2181"),
        ("zk://h,[::1/omid", "no address of ZooKeeper"),
        ("zk://[zz]:1/omid", "no address"),
        ("zk://h/omid?timeout=" + "9" * 400 + "s", "is no duration"),
        ("zk://h:x/omid", "'h:x' is no address"),
        ("zk://h,,i/omid", "is no address"),
        ("zk://h/a//b", "no namespace"),
        ("zk://h/../b", "no namespace"),
        ("zk://u:secret@h/omid", "neither user@"),
        ("zk://h/omid?tsl=true", "unknown option 'tsl'; known: period"),
        ("zk://h/omid?tls=maybe", "tls='maybe' is neither true nor false"),
        ("zk://h/omid?ca=/x", "ca= says nothing without tls=true"),
        ("zk://h/omid?user=x", "user= says nothing without sasl="),
        ("zk://h/omid?sasl=PLAIN", "none of GSSAPI, DIGEST-MD5"),
        ("zk://h/omid?sasl=DIGEST-MD5&user=x", "needs user= and password-file="),
        ("zk://h/omid?sasl=DIGEST-MD5&user=x&password-file=/nowhere/at.all", "No such file"),
        ("zk://h/omid?period=10", "period='10' is no duration"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(text: str, message: str) -> None:
    """And repeats no password."""
    with pytest.raises(ConfigError) as caught:
        parse_zookeeper(text)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the address is read, not when the oracle has died and is looked for."""
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(ConfigError, match=re.escape(install_hint("zk"))):
        resolver(parse_zookeeper("zk://h/omid"))
