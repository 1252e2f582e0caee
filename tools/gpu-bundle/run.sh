#!/bin/sh
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# run.sh [OUT]
#
# Writes OUT/report.html, OUT/report.json and OUT/evidence.tar.gz (OUT: ./gpu-report) about this host and its GPUs. Needs Linux on
# x86_64 and a Python from 3.8 on (3.11 to 3.13 for all of it); no network, nothing to install. No setting is changed. 8 minutes at most.
# Exit status: 0 all that could run passed, 1 a part failed, 2 wrong use, 3 no GPU, 4 the driver does not answer, 5 a setting differs.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2
case ${1:-} in
    -h | --help) sed -n '7,11s/^# //p' "$0"; exit 0 ;;
    -*) echo "run.sh: there is no option $1. usage: run.sh [OUT]" >&2; exit 2 ;;
esac
[ $# -le 1 ] || { echo "usage: run.sh [OUT]" >&2; exit 2; }
out=${1:-./gpu-report}
if ! mkdir -p "$out" || [ ! -w "$out" ]; then
    echo "run.sh: $out cannot be written" >&2
    exit 2
fi
out=$(CDPATH='' cd -- "$out" && pwd) || exit 2
[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || { echo "run.sh: this is $(uname -s) on $(uname -m); the bundle is for Linux on x86_64" >&2; exit 2; }

usable() { # whether a Python has what the bundle needs: at least this version, and the standard library whole
    "$1" -c "import sys, ctypes, json, lzma, zipfile, tarfile; sys.exit(not ($2 <= sys.version_info[:2] <= $3))" 2>/dev/null
}
python=
for range in "(3,11) (3,13)" "(3,8) (3,99)"; do
    for name in ${PYTHON:-} python3 python3.12 python3.13 python3.11 /usr/bin/python3 python3.10 python3.9 python3.8; do
        # shellcheck disable=SC2086
        if command -v "$name" >/dev/null 2>&1 && usable "$name" ${range}; then
            python=$name
            break 2
        fi
    done
done
[ -n "$python" ] || { echo "run.sh: there is no Python from 3.8 on with its whole standard library; name one: PYTHON=/path/to/python3 run.sh" >&2; exit 2; }

exec env PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 "$python" -m gpu_evidence "$out" "$here"
