#!/bin/sh
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# run.sh [OUT]                    report on this host and its GPUs; no setting is changed; 8 minutes at most
# run.sh --change GPU-UUID [OUT]  change this one GPU, which nobody uses, in every way, and bring everything back; as root; 30 minutes at most
# run.sh --restore OUT            bring back what was there before a --change that was cut off
#
# Writes OUT/report.html, OUT/report.json and OUT/evidence.tar.gz (OUT: ./gpu-report, with --change ./gpu-change). Needs Linux on x86_64
# and a Python from 3.8 on (3.11 to 3.13 for all of it, 3.9 for --change); no network, nothing to install.
# Exit status: 0 all that could run passed, 1 a part failed, 2 wrong use, or a GPU that is in use or is not this host's, 3 no GPU,
# 4 the driver does not answer, 5 a setting differs.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2
usage="usage: run.sh [OUT], run.sh --change GPU-UUID [OUT], or run.sh --restore OUT"
mode=report
gpu=
out=./gpu-report
case ${1:-} in
    -h | --help) sed -n '6,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --change)
        mode=change
        gpu=${2:-}
        out=./gpu-change
        case $gpu in
            GPU-????????-????-????-????-????????????) shift 2 ;;
            *) echo "run.sh: --change takes the UUID of the GPU, as nvidia-smi -L prints it (GPU-...), not '$gpu'. $usage" >&2; exit 2 ;;
        esac
        ;;
    --restore)
        mode=restore
        shift
        if [ $# -ne 1 ] || [ ! -d "$1" ]; then
            echo "run.sh: --restore takes the OUT of a run.sh --change. $usage" >&2
            exit 2
        fi
        ;;
    -*) echo "run.sh: there is no option $1. $usage" >&2; exit 2 ;;
esac
[ $# -le 1 ] || { echo "$usage" >&2; exit 2; }
out=${1:-$out}
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

case $mode in
    change) set -- gpu_evidence.change change "$gpu" "$out" "$here" ;;
    restore) set -- gpu_evidence.change restore "$out" "$here" ;;
    *) set -- gpu_evidence "$out" "$here" ;;
esac
exec env PYTHONPATH="$here" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 "$python" -m "$@"
