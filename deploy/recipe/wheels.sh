#!/bin/sh
# Build wheels of omidpy and of everything that it needs in an image: wheels.sh SOURCE FOLDER
#
# Needs Python with pip, and a C compiler for the engine; without one it would be interpreted.
set -eu
source=$1
wheels=$2
python=${PYTHON:-python3}
mkdir -p "$wheels"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A copy, since building writes beside the sources.
mkdir "$work/src"
(cd "$source" && tar -cf - pyproject.toml setup.py MANIFEST.in README.md LICENSE NOTICE \
    omidpy tso compactor) | tar -xf - -C "$work/src"
"$python" -m pip wheel --quiet --no-cache-dir --wheel-dir "$wheels" \
    "$work/src[hbase,zk,fast,parquet,kafka,postgresql,s3,console]"
ls "$wheels" | grep -q '^omidpy-.*linux' || {
    echo "wheels.sh: the engine was not compiled" >&2
    exit 1
}
