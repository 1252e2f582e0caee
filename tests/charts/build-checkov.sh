#!/usr/bin/env bash
# Install checkov at a pinned version into a cache outside of the repository; a test tool only. Prints the path of the program.
set -euo pipefail

CHECKOV=3.3.30

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet/tools/checkov-$CHECKOV
if [ ! -x "$cache/bin/checkov" ]; then
    echo "Installing checkov $CHECKOV (once; 2 minutes) ..." >&2
    rm -rf "$cache.new"
    python3 -m venv "$cache.new"
    nice "$cache.new/bin/python" -m pip install --quiet --disable-pip-version-check "checkov==$CHECKOV" >&2
    # Console scripts name the interpreter that they were installed with.
    sed -i "1s#.*#\#!$cache/bin/python#" "$cache.new/bin/checkov"
    rm -rf "$cache"
    mv "$cache.new" "$cache"
fi
echo "$cache/bin/checkov"
