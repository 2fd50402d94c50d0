"""What have Phoenix's clients and HBase's region servers to be set to, for an oracle of ours?

Phoenix opens connections of its own in region servers, too: those that cannot reach the oracle stop
compacting its tables.  So both sides have the same configuration file on their class path, and both
read it when they start.

Pure.

Source: Phoenix 5.2.1 (`OmidTransactionProvider`), Omid 1.1.2 (`HBaseOmidClientConfiguration`).
"""

from __future__ import annotations

from typing import Final

from omidpy.errors import UsageError
from omidpy.oracle.zookeeper import SCHEME, parse_zookeeper

CLIENT_CONFIGURATION: Final = "hbase-omid-client-config.yml"
"""The file on the class path that tells Omid's client where the oracle is."""

SERVER_SETTINGS: Final = {
    "phoenix.transactions.enabled": "true",
    "hbase.regionserver.wal.codec": "org.apache.hadoop.hbase.regionserver.wal.IndexedWALEditCodec",
    # With it Phoenix judges the age of cells by their versions, which it takes for milliseconds,
    # and HBase's major compactions free nothing.
    "phoenix.table.ttl.enabled": "false",
}
"""What `hbase-site.xml` has to say, at servers and clients."""

_KIND: Final = "!!org.apache.omid.tso.client.OmidClientConfiguration$ConnType"


def client_configuration(oracle: str) -> str:
    """Return the contents of the configuration file.

    Args:
        oracle: HOST:PORT, as clients and region servers reach it; or `zk://HOSTS/NAMESPACE`, where
            it publishes itself, and who takes over from it.

    Raises:
        UsageError: it is no such address.
        ConfigError: the same, of ZooKeeper.
    """
    if oracle.startswith(SCHEME):
        found = parse_zookeeper(oracle)
        return (
            f"connectionType: {_KIND} HA\n"
            f'connectionString: "{found.hosts}"\n'
            f'zkNamespace: "{found.namespace}"\n'
        )
    host, _, port = oracle.rpartition(":")
    if not host or not port.isdecimal() or any(one in oracle for one in "\"'\n,/"):
        raise UsageError(f"{oracle!r} is no HOST:PORT of an oracle")
    return f'connectionType: {_KIND} DIRECT\nconnectionString: "{oracle}"\n'


def site_properties() -> str:
    """Return the settings as properties of `hbase-site.xml`."""
    return "\n".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in SERVER_SETTINGS.items()
    )
