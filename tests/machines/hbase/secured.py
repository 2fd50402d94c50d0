"""An HBase that wants TLS, or Kerberos: what it is set up with, on top of the others.

    RunningHBase with `tls_settings`         speaks TLS alone, and wants a certificate of clients
    RunningHBase with `kerberos_settings`    wants a ticket or a token, and takes every protection

Both are standalone: master, region server and ZooKeeper in one process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.machines.hbase.server import HBase, RunningHBase
from tests.machines.kerberos import REALM, Kerberos
from tests.machines.tls import Authority

PRINCIPAL: Final = f"hbase/localhost@{REALM}"
SERVER: Final = "DNS:localhost,IP:127.0.0.1"
"""The names in the server's certificate."""


def tls_settings(authority: Authority, *, is_open_too: bool) -> dict[str, str]:
    """Return settings of TLS for a server whose certificate an authority signs.

    Args:
        authority: Whose certificates it trusts.
        is_open_too: Whether one may as well speak without TLS at the same port.
    """
    server = authority.issue("hbase", host=SERVER)
    stores = {"keystore": server, "truststore": authority.ca}
    settings = {
        "hbase.server.netty.tls.enabled": "true",
        "hbase.client.netty.tls.enabled": "true",
        "hbase.server.netty.tls.supportplaintext": str(is_open_too).lower(),
        "hbase.server.netty.tls.client.auth.mode": "WANT" if is_open_too else "NEED",
    }
    for name, file in stores.items():
        settings[f"hbase.rpc.tls.{name}.location"] = str(file)
        settings[f"hbase.rpc.tls.{name}.type"] = "PEM"
    return settings


def kerberos_settings(kerberos: Kerberos) -> dict[str, str]:
    """Return settings of a server that has a key of a realm, and gives out tokens."""
    keytab = str(kerberos.keytab(PRINCIPAL.partition("@")[0]))
    settings = {
        "hbase.security.authentication": "kerberos",
        "hbase.coprocessor.region.classes": (
            "org.apache.hadoop.hbase.security.token.TokenProvider"
        ),
        "hbase.rpc.protection": "authentication,integrity,privacy",
    }
    for role in ("master", "regionserver"):
        settings[f"hbase.{role}.kerberos.principal"] = PRINCIPAL
        settings[f"hbase.{role}.keytab.file"] = keytab
    return settings


def start_with_tls(directory: Path, authority: Authority) -> RunningHBase:
    """Start an HBase that speaks TLS alone."""
    more = tls_settings(authority, is_open_too=False)
    return HBase.start(directory, gateways=0, quick=True, more=more)


def start_with_kerberos(directory: Path, kerberos: Kerberos, authority: Authority) -> RunningHBase:
    """Start an HBase that wants Kerberos, with TLS or without."""
    return HBase.start(
        directory,
        gateways=0,
        quick=True,
        more=kerberos_settings(kerberos) | tls_settings(authority, is_open_too=True),
        more_core={"hadoop.security.authentication": "kerberos"},
        java_options=(f"-Djava.security.krb5.conf={kerberos.config}",),
    )
