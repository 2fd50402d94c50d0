"""Run an HBase in a folder until interrupted, for many runs of the tests or for a look by hand.

    python -m tests.machines.hbase DIRECTORY [--cluster]
    OMIDPY_TEST_HBASE=DIRECTORY python -m pytest tests/contract      in another terminal

What is in the folder is served again by the next start.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.machines.hbase.server import HBase, NotReady
from tests.machines.hbase.settings import Mode
from tests.machines.maven import BuildFailed


def main() -> int:
    """Start it, say where it is, wait for SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.machines.hbase", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("directory", type=Path)
    parser.add_argument("--cluster", action="store_true", help="one process for each part")
    parser.add_argument("--gateways", type=int, default=1, help="number of Thrift2 gateways")
    arguments = parser.parse_args()
    mode = Mode.CLUSTER if arguments.cluster else Mode.STANDALONE
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with HBase.start(arguments.directory, mode=mode, gateways=arguments.gateways) as hbase:
            print(f"store      {hbase.thrift2_url}")
            print(f"zookeeper  {hbase.zookeeper}")
            print(f"tests      OMIDPY_TEST_HBASE={hbase.directory}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except (NotReady, BuildFailed) as problem:
        print(f"hbase: {problem}", file=sys.stderr)
        return 1
    raise AssertionError("nothing but a signal ends it")


if __name__ == "__main__":
    sys.exit(main())
