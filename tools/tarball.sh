#!/usr/bin/env bash
# Build the collection's tarball from the files that git tracks, as they are in the working tree: what else lies in a checkout, whatever it is called,
# is in no tarball.
#   tools/tarball.sh FOLDER   the folder that it is written into
set -euo pipefail
[ $# = 1 ] || { echo "usage: tools/tarball.sh FOLDER" >&2; exit 2; }
out=$(realpath -m "$1")
cd "$(dirname "$0")/.."
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
git ls-files -z | tar -c --ignore-failed-read --null --files-from - | tar -x -C "$source"
.venv/bin/ansible-galaxy collection build --force --output-path "$out" "$source"
