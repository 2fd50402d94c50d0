"""Processes of tests that are forked from one server, which has imported what any of them needs.

Python has one such server for a process of pytest's, and it is started by whichever file comes
first: so what it imports is said here, for all of them.  A process takes some milliseconds; what
the server has not imported each one imports itself, and pytest alone takes a third of a second.
"""

from __future__ import annotations

import multiprocessing
from typing import Final

IMPORTED: Final = (
    "tests.machines.crashes.client",
    "tests.machines.dying_compactor",
    "tests.machines.export_processes",
    "tests.machines.fate_crashes.places",
    "omidpy.storage.sqlite.store",
    "omidpy.storage.hbase.direct.store",
    "omidpy.storage.hbase.thrift2.store",
    "omidpy.oracle.tcp",
    "pytest",
)
"""What every process has."""

IMPORTED_IF_THERE: Final = ("confluent_kafka", "kazoo.client")

PROCESSES: Final = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([*IMPORTED, *IMPORTED_IF_THERE])
