#!/usr/bin/env bash
# Make the pictures of the documentation anew: record what playbooks print and write today, in a terminal on hosts that answer what lab hosts
# once said, draw it, and photograph the page of GPUs. What the hosts said is recorded anew by the lab, as root:
#   RECORD_TRANSCRIPTS=1 .venv/bin/python -m pytest -m lab tests/lab/test_first_use_lab.py
set -euo pipefail
cd "$(dirname "$0")/.."

tools/docs-environment.sh
command -v chromium >/dev/null || tools/system-packages.sh chromium-headless-shell=chromium-headless-shell
ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections" RECORD_TRANSCRIPTS=1 .venv/bin/python -m pytest -m "slow or not slow" \
    tests/unit/test_terminal.py tests/unit/plugins/action/test_inspect_page.py
.venv-docs/bin/python tools/screenshots.py
