"""What `hbase://...` says, and what it says to whoever wrote something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from omidpy.errors import ConfigError
from omidpy.opening import open_store
from omidpy.storage.hbase.native.address import NativeAddress, parse_native


def test_zookeeper_is_named_with_hbases_znode() -> None:
    """As in Java, the last port is for those without one."""
    address = parse_native("hbase://zk1,zk2:2182/hbase/unsecure?timeout_s=2.5&durability=fsync")
    assert address.registry == "zookeeper"
    assert address.places == (("zk1", 2182), ("zk2", 2182))
    assert address.znode == "/hbase/unsecure"
    assert (address.timeout_s, address.durability) == (2.5, "fsync")
    assert parse_native("hbase://[::1]/hbase/").places == (("::1", 2181),)


def test_masters_are_named_without_a_znode() -> None:
    """Port 16000 is theirs."""
    url = "hbase+rpc://m1,m2:16001?user=me"
    expected = NativeAddress(url, "rpc", (("m1", 16001), ("m2", 16001)), user="me")
    assert parse_native(url) == expected
    assert parse_native("hbase+rpc://m").places == (("m", 16000),)


def test_certificates_are_named_as_for_gateways() -> None:
    """So that one who takes the other road writes nothing anew; `true` is ZooKeeper's word."""
    address = parse_native(
        "hbase://zk/hbase?tls=true&tls_ca=ca.pem&tls_cert=me.pem&tls_key=me.key&tls_name=hbase"
    )
    assert address.tls
    assert (address.tls_ca, address.tls_cert) == ("ca.pem", "me.pem")
    assert (address.tls_key, address.tls_name) == ("me.key", "hbase")
    assert not parse_native("hbase://zk/hbase?tls=off").tls


def test_zookeeper_is_spoken_to_as_its_own_addresses_say() -> None:
    """With the same words, behind `zk_`."""
    address = parse_native("hbase://zk/hbase?zk_tls=on&zk_ca=ca.pem&zk_sasl=GSSAPI&zk_service=z")
    assert address.zookeeper == {
        "use_ssl": True,
        "verify_certs": True,
        "check_hostname": True,
        "ca": "ca.pem",
        "sasl_options": {"mechanism": "GSSAPI", "service": "z"},
    }
    assert not address.tls
    assert parse_native("hbase://zk/hbase").zookeeper == {}


def test_a_password_to_zookeeper_shows_itself_to_nobody(tmp_path: Path) -> None:
    """What reports errors shows the values of variables, and addresses among them."""
    file = tmp_path / "secret"
    file.write_text("pass word\n")
    url = f"hbase://zk/hbase?zk_sasl=DIGEST-MD5&zk_user=u&zk_password_file={file}"
    address = parse_native(url)
    assert address.zookeeper["sasl_options"]["password"] == "pass word"
    assert "pass word" not in repr(address)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("hbase://zk/hbase?zk_ca=c", "zk_ca= says nothing without zk_tls=true"),
        ("hbase://zk/hbase?zk_tls=", "zk_tls is empty"),
        ("hbase://zk/hbase?zk_sasl=PLAIN", "zk_sasl='PLAIN' is none of"),
        ("hbase://zk/hbase?zk_sasl=DIGEST-MD5", "needs zk_user= and zk_password_file="),
        ("hbase+rpc://m?zk_tls=on", "zk_tls is about ZooKeeper"),
        ("hbase://gw:9090", r"for a Thrift gateway write hbase\+thrift2://gw:9090$"),
        ("hbase://gw/", "ZooKeeper's servers and HBase's znode"),
        ("hbase://", r"hbase\+thrift2://HOST:9090"),
        ("hbase:zk/hbase", "write it like hbase://zk1:2181,zk2:2181/hbase"),
        ("hbase+rpc://m/hbase", "masters have no znode"),
        ("hbase+rpc://", "'' is no server"),
        ("hbase://zk1,,zk2/hbase", "'' is no server"),
        ("hbase://zk/a//b", "no znode"),
        ("hbase://zk:0/hbase", "port 0"),
        (f"hbase://{'z' * 64}/hbase", "is no name of a host"),
        ("hbase://[12]/hbase", "no IPv6 address"),
        ("hbase://me:secret@zk/hbase", "user=NAME"),
        ("hbase://zk/hbase?tls=yes", "tls='yes' must be on or off"),
        ("hbase://zk/hbase?tls_ca=ca.pem", "tls_ca has no effect without tls=on"),
        ("hbase://zk/hbase?tls=off&tls_name=a", "tls_name has no effect without tls=on"),
        ("hbase://zk/hbase?tls=on&tls_key=k", "tls_key needs tls_cert"),
        ("hbase://zk/hbase?tls=on&tls_cert=", "tls_cert is empty"),
        ("hbase://zk/hbase?sasl=plain", "sasl='plain' must be gssapi"),
        ("hbase://zk/hbase?sasl=gssapi&sasl_qop=all", "must be auth or auth-int or auth-conf"),
        ("hbase://zk/hbase?sasl_qop=auth-conf", "sasl_qop has no effect without sasl=gssapi"),
        ("hbase://zk/hbase?principal=a/b@C", "principal has no effect without sasl=gssapi"),
        ("hbase://zk/hbase?sasl=gssapi&user=me", "user has no effect with sasl"),
        ("hbase://zk/hbase?sasl=gssapi&keytab=k", "KRB5_CLIENT_KTNAME=FILE"),
        ("hbase://zk/hbase?sasl=gssapi&sasl_host=h", "principal=SERVICE/HOST@REALM"),
        ("hbase+rpc://m?token=secret", "token does not stand there; omidpy hands"),
        ("hbase://zk/hbase?transport=framed", "for gateways alone"),
        ("hbase://zk/hbase?durablity=fsync", "no option 'durablity'; there are .*durability"),
        ("hbase://zk/hbase?durability=no", "default or fsync"),
        ("hbase://zk/hbase?timeout_s=0", "more than 0"),
        ("hbase://zk/hbase?retry_s=-1", "0 or more"),
        ("hbase://zk/hbase?timeout_s=1&timeout_s=2", "given twice"),
        ("hbase://zk/hbase?user=", "user is empty"),
        ("hbase://zk/hbase?framed", "NAME=VALUE"),
    ],
)
def test_a_wrong_address_is_refused_with_what_to_write(url: str, message: str) -> None:
    """An option that went unnoticed would be found after the power loss."""
    with pytest.raises(ConfigError, match=message) as caught:
        parse_native(url)
    assert "secret" not in str(caught.value)


def test_opening_calls_nobody() -> None:
    """A store is opened by programs that may never use it."""
    with pytest.raises(ConfigError, match=r"tls_ca='/no/such/file': .*name a PEM file"):
        open_store("hbase+rpc://127.0.0.1:1?tls=on&tls_ca=/no/such/file")
    for url in ("hbase+rpc://127.0.0.1:1", "hbase://127.0.0.1:1/hbase"):
        store = open_store(url)
        assert store.url == url
        store.close()
    with pytest.raises(ConfigError, match=r"hbase://zookeeper:2181.*hbase\+rpc://"):
        open_store("hbse://zk/hbase")
