"""The address of an oracle is read as written, or refused with an example."""

from __future__ import annotations

import pytest

from omidpy.errors import ConfigError
from omidpy.oracle.address import parse_address
from omidpy.oracle.tcp import TcpOracle
from omidpy.oracle.tls import ClientTls, client_tls, options_of
from omidpy.oracle.zookeeper import parse_zookeeper


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("127.0.0.1:9", ("127.0.0.1", 9)),
        ("tso.example.org", ("tso.example.org", 24758)),
        ("[::1]:24759", ("::1", 24759)),
        ("[fe80::2]", ("fe80::2", 24758)),
    ],
)
def test_addresses_are_read_with_or_without_a_port(address: str, place: tuple[str, int]) -> None:
    """Omid's default port stands in for a missing one."""
    assert parse_address(address) == place


@pytest.mark.parametrize(
    "address",
    [
        *("", ":", ":24758", "host:", "host:x", "host:0", "host:65536", "host:-1", "::1", "[]:1"),
        *("h:²", "a\0b:1", "h:" + "9" * 5000),
        *("a..b:1", ".a:1", "x" * 64 + ".example:1"),
    ],
)
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    """A typing error is found when the client is made, not when the first begin times out."""
    with pytest.raises(ConfigError, match=r"no address of an oracle; expected host:port"):
        TcpOracle(address)


def test_an_oracle_needs_exactly_one_way_to_be_found() -> None:
    """To prefer one of two silently would be a guess."""
    with pytest.raises(ConfigError, match="either an address or resolve="):
        TcpOracle()
    with pytest.raises(ConfigError, match="not both"):
        TcpOracle("127.0.0.1:9", resolve=lambda: ("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("tsl=true", "unknown option 'tsl'; known: tls, ca, cert, key, name"),
        ("tls=perhaps", "tls='perhaps' is neither true nor false"),
        ("ca=/ca.pem", "ca= says nothing without tls=true"),
        ("tls=true&key=/key.pem", "key= needs cert=, its certificate"),
        ("tls=true&tls=true", "'tls=true' is given twice"),
        ("tls", "'tls' is no NAME=VALUE"),
        ("tls=true&ca=/nowhere.pem", "name a PEM file of certificates to trust"),
        ("tls=true&ca=a%00b", "name a PEM file of certificates to trust"),
        ("tls=true&cert=/nowhere.pem", "name PEM files of the client's certificate"),
    ],
)
def test_an_option_that_cannot_be_meant_is_named(query: str, message: str) -> None:
    """Before anything is connected: a client must not speak in the open by a typing error."""
    with pytest.raises(ConfigError) as caught:
        client_tls(options_of(query, address="tso:1"), address="tso:1")
    assert message in str(caught.value)


def test_tls_is_spoken_when_it_is_asked_for() -> None:
    """With the names of files as they are written in addresses."""
    assert client_tls({}, address="tso:1") is None
    assert client_tls({"tls": "false"}, address="tso:1") is None
    options = options_of("tls=on&name=tso%2Fexample", address="tso:1")
    assert client_tls(options, address="tso:1") == ClientTls(name="tso/example")
    found = client_tls({"oracle-tls": "true"}, address="zk://h", prefix="oracle-")
    assert found == ClientTls()


def test_what_concerns_the_oracle_stands_beside_what_concerns_zookeeper() -> None:
    """In one address of both."""
    address = parse_zookeeper("zk://h/omid?tls=true&ca=/zk.pem&oracle-tls=true&oracle-name=tso")
    assert address.client_options["ca"] == "/zk.pem"
    assert address.oracle_options == {"oracle-tls": "true", "oracle-name": "tso"}
