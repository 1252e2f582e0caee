#!/usr/bin/env bash
# Make the environment of ansible-rulebook, .venv-eda, with the Java runtime that it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/system-packages.sh java=default-jre-headless
if [ "$(cat .venv-eda/.requirements 2>/dev/null || true)" != "$(cksum <requirements/eda.txt)" ]; then
    [ -x .venv-eda/bin/python ] || .venv/bin/python -m venv .venv-eda
    .venv-eda/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/eda.txt
    cksum <requirements/eda.txt >.venv-eda/.requirements
fi
