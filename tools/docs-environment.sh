#!/usr/bin/env bash
# Make .venv-docs with the tools of requirements/docs.txt, by version and hash; quick when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh
if [ "$(cat .venv-docs/.requirements 2>/dev/null || true)" != "$(cksum <requirements/docs.txt)" ]; then
    [ -x .venv-docs/bin/python ] || .venv/bin/python -m venv .venv-docs
    .venv-docs/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes \
        -r requirements/docs.txt
    cksum <requirements/docs.txt >.venv-docs/.requirements
fi
