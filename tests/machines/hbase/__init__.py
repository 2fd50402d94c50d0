"""A real HBase on the loopback, from Maven's jars: no container, no installation, any user.

    server.py     start it; kill, pause and restart its processes
    settings.py   how it is set up
    ports.py      where it listens
    bare.py       calls of the gateway with nothing of ours between
    pom.xml       which versions; older/pom.xml, those of the line before, without gateways

`python -m tests.machines.hbase DIRECTORY` runs one until interrupted, for OMIDPY_TEST_HBASE.
"""

from tests.machines.hbase.server import OLDER, AttachedHBase, HBase, NotReady, RunningHBase
from tests.machines.hbase.settings import Mode, Road

__all__ = ["OLDER", "AttachedHBase", "HBase", "Mode", "NotReady", "Road", "RunningHBase"]
