#!/bin/sh
# Install wheels into an environment of their own, from nowhere else: install.sh FOLDER PREFIX
set -eu
wheels=$1
prefix=$2
python=${PYTHON:-python3}
"$python" -m venv "$prefix"
"$prefix/bin/python" -m pip install --quiet --no-cache-dir --no-index --no-deps "$wheels"/*.whl
"$prefix/bin/python" -m pip check >&2
"$prefix/bin/python" -m compileall -q "$prefix/lib" || true
"$prefix/bin/tso-server" --help >/dev/null
"$prefix/bin/omidpy" --version
