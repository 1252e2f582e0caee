#!/bin/sh
# Make .venv with the tools of requirements/development.txt, by version and hash; quick when nothing changed.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.13 python3.12 python3.11 python3; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    say "No Python 3.11 to 3.13 was found. Install one, or name it: make PYTHON=/path/to/python3.11 ..."
    exit 1
fi

wanted=$(cksum < requirements/development.txt)
if [ "$(cat .venv/.requirements 2>/dev/null || true)" != "$wanted" ]; then
    if [ ! -x .venv/bin/python ]; then
        say "Making the Python environment .venv ..."
        if ! "$python" -m venv .venv 2>/dev/null; then
            rm -rf .venv
            if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
                apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
                "$python" -m venv .venv
            else
                say "Python's venv module is missing. As root: apt-get install python3-venv"
                exit 1
            fi
        fi
    fi
    say "Installing the pinned tools (about 600 MB the first time) ..."
    if ! .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes \
        -r requirements/development.txt; then
        say "pip could not install requirements/development.txt. Check that this machine reaches a Python package registry" \
            "(pip config list), then run the command again."
        exit 1
    fi
    printf '%s\n' "$wanted" > .venv/.requirements
fi

# The collection's import path is .../ansible_collections/gpufleet/nvidia, whatever this checkout is called.
link=build/collections/ansible_collections/gpufleet/nvidia
mkdir -p "$(dirname "$link")"
[ "$(readlink "$link" 2>/dev/null || true)" = "$(pwd)" ] || ln -sfn "$(pwd)" "$link"
