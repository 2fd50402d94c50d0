"""Is the oracle of this container well?  `health.py PAGE` exits with 0 if the page says so.

Asks the loopback, where metrics are served unless they speak TLS there.
"""

from __future__ import annotations

import os
import sys
import urllib.request

TIMEOUT_S = 4.0


def main() -> int:
    """Ask; return the exit code."""
    page = sys.argv[1] if len(sys.argv) > 1 else "/readyz"
    port = os.environ.get("TSO_METRICS", "127.0.0.1:24759").rpartition(":")[2]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=TIMEOUT_S) as answer:
            return int(answer.status != 200)
    except OSError as error:
        print(f"{page}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
