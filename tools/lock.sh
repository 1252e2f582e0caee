#!/bin/sh
# Make the lock files requirements/*.txt of what requirements/*.in and meta/ee-requirements.txt name: every package that is installed, for all
# platforms, by version and by the hashes of its files. What is locked stays where it still fits; with --upgrade everything is raised.
set -eu
cd "$(dirname "$0")/.."

# uv is one of the pinned tools; UV=/path/to/uv names another one, for a first time.
uv=${UV:-.venv/bin/uv}
if ! command -v "$uv" >/dev/null; then
    echo "There is no $uv: run make setup, or name one (UV=/path/to/uv tools/lock.sh)." >&2
    exit 1
fi

lock() { # the name of the file, the oldest Python that it is for, and options of uv
    name=$1 oldest=$2
    shift 2
    # Without the index: where packages come from is each machine's own configuration, the hashes say which they are.
    "$uv" pip compile --quiet --universal --generate-hashes --no-strip-extras --no-emit-index-url --no-emit-find-links --python-version "$oldest" \
        --custom-compile-command tools/lock.sh --output-file "requirements/$name.txt" "$@" "requirements/$name.in"
}

lock development 3.11 "$@"
lock gpu-bundle 3.11 "$@"
lock importer 3.11 "$@"
lock docs 3.11 "$@"
lock eda 3.11 "$@"
lock release 3.11 "$@"
lock oldest-python 3.9 "$@"
