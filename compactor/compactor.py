"""What spark-submit runs: `spark-submit compactor/compactor.py --store URL --tso ADDR`.

Spark puts the folder of this file first on `sys.path`, where `import compactor` would find this
file instead of the package.  So the folder above takes its place before anything is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _FOLDER]
    sys.path.insert(0, str(_FOLDER.parent))

    from compactor.shell.job import main

    sys.exit(main())
