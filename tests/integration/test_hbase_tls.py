"""A real gateway behind a proxy that ends TLS: HBase's own speaks it in its HTTP mode alone."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

import omidpy
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.reports.health.checks import check_gateways
from omidpy.storage.hbase.addresses.gateways import parse_address
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.tls import TlsProxy, loopback_certificate

pytestmark = pytest.mark.integration


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Return a certificate of 127.0.0.1, and its key."""
    return loopback_certificate(tmp_path)


@pytest.fixture
def proxy(hbase: HBase, certificate: tuple[Path, Path]) -> Iterator[TlsProxy]:
    """Return a proxy before the gateway that wants to know who we are."""
    cert, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(cert)
    context.verify_mode = ssl.CERT_REQUIRED
    proxy = TlsProxy(context, hbase.gateways[0])
    with empty_hbase(hbase):
        yield proxy
    proxy.close()


def test_a_store_works_through_tls_with_certificates_on_both_sides(
    proxy: TlsProxy, certificate: tuple[Path, Path]
) -> None:
    """Large rows too, which cross the limits of TLS's records."""
    cert, key = certificate
    url = (
        f"hbase+thrift2://127.0.0.1:{proxy.port}?tls=on&tls_ca={cert}&tls_cert={cert}&tls_key={key}"
    )
    with omidpy.connect(url) as tm:
        tm.create_table("t", families=["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"a", {b"cf:x": b"v" * 1_000_000})
        with tm.begin(read_only=True) as tx:
            assert tx.table("t").row(b"a") == {b"cf:x": b"v" * 1_000_000}


def test_who_is_not_known_and_whom_we_do_not_know_are_refused(
    proxy: TlsProxy, certificate: tuple[Path, Path]
) -> None:
    """Each side checks the other."""
    where = f"hbase+thrift2://127.0.0.1:{proxy.port}?retry_s=0&tls=on"
    with pytest.raises(ConfigError, match="tls_ca=FILE"):
        omidpy.connect(where)
    with pytest.raises(StorageUnavailable, match=r"tls_cert=FILE.*omidpy doctor 'hbase"):
        omidpy.connect(f"{where}&tls_ca={certificate[0]}")
    (check,) = check_gateways(parse_address(f"{where}&tls_ca={certificate[0]}"))
    assert "tls_cert=FILE" in check.detail
