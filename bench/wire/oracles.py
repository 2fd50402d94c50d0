"""The oracles that are compared, each on one core.

Neither persists anything, or both have a commit table on the same HBase.  Omid's is 1.1.3 with its
timestamps in memory.  It is tuned: a batch takes
200 requests in place of 25, which gives 15 % more, and waits 1 ms in place of 10 before it leaves
though it is not full; its threads sleep while they wait, since on one core one that spins takes the
others' time (a sixth of the rate); Java has a whole GiB and compiles as it does by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.processes import ROOT, on_core, tso_server
from omidpy.base.tables import ONE_VERSION
from omidpy.facts.commit_table import COMMIT_TABLE_SPLITS
from omidpy.model import FamilySchema, TableSchema
from omidpy.opening import open_store
from tests.machines.hbase import HBase
from tests.machines.hbase.ports import PortBlock
from tests.machines.java import JavaProcess, wait_until_it_listens

OURS: Final = "tso-server"
"""How ours is called."""

OMIDS: Final = "Omid's"

MAP_CELLS: Final = 1_000_000
"""Cells whose newest commit is remembered, by either oracle."""

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

_SETTINGS: Final = """\
port: {port}
networkIfaceName: lo
conflictMapSize: {cells}
waitStrategy: LOW_CPU
numConcurrentCTWriters: 2
batchSizePerCTWriter: 200
batchPersistTimeoutInMs: 1
timestampType: WORLD_TIME
lowLatency: false
commitTableStoreModule: !!org.apache.omid.{commits}
timestampStoreModule: !!org.apache.omid.tso.InMemoryTimestampStorageModule [ ]
leaseModule: !!org.apache.omid.tso.VoidLeaseManagementModule [ ]
"""


_NO_TABLE: Final = "tso.InMemoryCommitTableStorageModule [ ]"
_OMIDS_TABLE: Final = "OMIDS_COMMITS"
_ON_HBASE: Final = (
    f"committable.hbase.DefaultHBaseCommitTableStorageModule {{tableName: {_OMIDS_TABLE}}}"
)


class Oracle(NamedTuple):
    """One that runs."""

    name: str
    address: str
    pid: int

    def processor_s(self) -> float:
        """Return the seconds of a processor that its process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def resident_mib(self) -> float:
        """Return the memory that it has."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def ours(
    directory: Path, *, store: str, core: int, checkout: Path = ROOT, name: str = OURS
) -> Iterator[Oracle]:
    """Run a `tso-server`, that of this checkout or of another one."""
    pids: list[int] = []
    options = ["--conflict-map-size", str(MAP_CELLS)]
    log = directory / f"{name}.log"
    with ExitStack() as resources:
        with on_core(core):
            server = tso_server(
                store, log=log, options=options, on_start=pids.append, checkout=checkout
            )
            address = resources.enter_context(server)
        yield Oracle(name, address, pids[0])


@contextmanager
def omids(directory: Path, *, core: int, hbase: HBase | None = None) -> Iterator[Oracle]:
    """Run Omid's oracle, with a commit table of its own if there is an HBase."""
    folder = directory / "omid"
    folder.mkdir()
    with ExitStack() as resources:
        ports = PortBlock()
        resources.callback(ports.close)
        port = ports.port("oracle")
        commits = _NO_TABLE
        if hbase is not None:
            commits = _ON_HBASE
            _make_omids_table(hbase)
            site = (hbase.conf_dir / "hbase-site.xml").read_bytes()
            (folder / "hbase-site.xml").write_bytes(site)
        settings = _SETTINGS.format(port=port, cells=MAP_CELLS, commits=commits)
        (folder / "omid-server-configuration.yml").write_text(settings)
        with on_core(core):
            started = JavaProcess(
                "omidpy.driver.Oracle", configuration=folder, tuning=("-Xms1g", "-Xmx1g")
            )
            java = resources.enter_context(started)
        wait_until_it_listens(java, port)
        yield Oracle(OMIDS, f"127.0.0.1:{port}", java.pid)


def _make_omids_table(hbase: HBase) -> None:
    families = tuple(FamilySchema(name, ONE_VERSION) for name in (b"F", b"LWF"))
    with closing(open_store(hbase.thrift2_url)) as store:
        if _OMIDS_TABLE not in [schema.name for schema in store.tables()]:
            store.create_table(TableSchema(_OMIDS_TABLE, families), splits=COMMIT_TABLE_SPLITS)
