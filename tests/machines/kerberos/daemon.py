"""What Spark forks its processes of Python from: those that run tasks have no ticket.

Those that plan are the driver's, and have.  On a cluster they are on different machines.
"""

from __future__ import annotations

import os
import sys

TASKS = "pyspark.worker"
NOWHERE = "FILE:/nowhere"

if __name__ == "__main__":
    if sys.argv[1] == TASKS:
        os.environ |= {"KRB5CCNAME": NOWHERE, "KRB5_CONFIG": "/nowhere"}
    from pyspark import daemon

    daemon.manager()
