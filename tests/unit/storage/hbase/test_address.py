"""Addresses of gateways: what they say, and that nothing wrong in them goes unnoticed."""

from __future__ import annotations

import dataclasses

import pytest

from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import (
    OPTIONS,
    HBaseAddress,
    parse_address,
)
from omidpy.storage.hbase.addresses.spelling import place_text


def test_an_address_names_gateways_and_options() -> None:
    """The form that the documentation shows."""
    address = parse_address(
        "hbase+thrift2://gw1:9090,gw2?transport=framed&protocol=compact&timeout_s=2.5&pool_size=4"
        "&durability=fsync"
    )
    assert address.api == "thrift2"
    assert address.gateways == (("gw1", 9090), ("gw2", 9090))
    assert (address.transport, address.protocol) == ("framed", "compact")
    assert (address.timeout_s, address.pool_size, address.durability) == (2.5, 4, "fsync")


def test_what_is_left_out_has_the_gateways_own_default() -> None:
    """A gateway that was started without options is reached by an address without options."""
    address = parse_address("hbase+thrift1://gw")
    assert address == HBaseAddress("hbase+thrift1://gw", "thrift1", (("gw", 9090),))
    assert (address.transport, address.protocol) == ("buffered", "binary")
    assert address.max_idle_s < 60, "a gateway closes it then"


def test_an_ipv6_address_stands_in_brackets() -> None:
    """Its colons would otherwise be read as the port's."""
    assert parse_address("hbase+thrift2://[::1]:9091").gateways == (("::1", 9091),)
    assert place_text(("::1", 9091)) == "[::1]:9091"
    assert place_text(("gw", 9090)) == "gw:9090"


def test_tls_and_kerberos_are_options() -> None:
    """Security is part of the address, since every process that opens the store needs it."""
    address = parse_address(
        "hbase+thrift2://10.0.0.1?tls=on&tls_ca=/etc/ca%20file.pem&tls_name=gw.example&sasl=gssapi"
        "&sasl_service=thrift&sasl_host=gw.example&sasl_qop=auth-conf"
    )
    assert (address.tls, address.tls_ca, address.tls_name) == (
        True,
        "/etc/ca file.pem",
        "gw.example",
    )
    assert (address.sasl, address.sasl_service, address.sasl_qop) == (
        "gssapi",
        "thrift",
        "auth-conf",
    )
    assert parse_address("hbase+thrift2://gw?tls=off").tls is False
    assert parse_address("hbase+thrift2://gw?tls=false").tls is False
    assert parse_address("hbase+thrift2://gw?tls=true").tls is True


def test_every_option_is_a_field() -> None:
    """An option that is accepted and ignored would be worse than one that is refused."""
    fields = {field.name for field in dataclasses.fields(HBaseAddress)}
    assert fields - {"url", "api", "gateways"} == set(OPTIONS)


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("hbase://gw", r"hbase\+thrift2://gateway1"),
        ("hbase+thrift2:gw", "write it like"),
        ("hbase+thrift2://", "'' is no gateway"),
        ("hbase+thrift2://gw1,,gw2", "'' is no gateway"),
        ("hbase+thrift2://gw:port", "'gw:port' is no gateway"),
        ("hbase+thrift2://gw/table", "'gw/table' is no gateway"),
        ("hbase+thrift2://::1:9090", "IPv6 address in brackets"),
        ("hbase+thrift2://[gw]", "no gateway"),
        ("hbase+thrift2://[12]", "no IPv6 address"),
        ("hbase+thrift2://gw:0", "port 0"),
        ("hbase+thrift2://gw..example", "'gw..example' is no name of a host"),
        ("hbase+thrift2://gw:65536", "port 65536"),
        ("hbase+thrift2://gw?", None),
        ("hbase+thrift2://gw?framed", "NAME=VALUE"),
        ("hbase+thrift2://gw?durablity=fsync", "no option 'durablity'.*durability"),
        ("hbase+thrift2://gw?transport=frame", "transport='frame' must be buffered or framed"),
        ("hbase+thrift2://gw?tls=yes", "must be on or off"),
        ("hbase+thrift2://gw?transport=framed&transport=framed", "given twice"),
        ("hbase+thrift2://gw?timeout_s=soon", "number of seconds, more than 0"),
        ("hbase+thrift2://gw?timeout_s=nan", "number of seconds"),
        ("hbase+thrift2://gw?timeout_s=inf", "number of seconds"),
        ("hbase+thrift2://gw?timeout_s=0", "more than 0"),
        ("hbase+thrift2://gw?retry_s=-1", "0 or more"),
        ("hbase+thrift2://gw?retry_s=0", None),
        ("hbase+thrift2://gw?pool_size=0", "1 or more"),
        ("hbase+thrift2://gw?pool_size=1.5", "1 or more"),
        ("hbase+thrift2://gw?tls=on&tls_ca=", "tls_ca is empty"),
        ("hbase+thrift2://gw?tls_ca=ca.pem", "no effect without tls=on"),
        ("hbase+thrift2://gw?tls=on&tls_key=k.pem", "tls_key needs tls_cert"),
        ("hbase+thrift2://gw?sasl_qop=auth-conf", "no effect without sasl"),
        ("hbase+thrift2://gw?sasl=gssapi&transport=framed", "no SASL over the framed"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_remedy(url: str, names: str | None) -> None:
    """A misspelt option that went unnoticed would be found when it was needed."""
    if names is None:
        parse_address(url)
    else:
        with pytest.raises(ConfigError, match=names):
            parse_address(url)


def test_a_password_is_not_repeated() -> None:
    """Messages end in logs."""
    with pytest.raises(ConfigError) as caught:
        parse_address("hbase+thrift2://user:secret@gw")
    assert "secret" not in str(caught.value)
