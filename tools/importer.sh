#!/usr/bin/env bash
# Build the collection's tarball and put it through Galaxy's own importer. Its log must hold no error and no warning of ours.
#   tools/importer.sh --linted   without the ansible-lint that it starts: the tier lint has the same files, with more of the rules
set -euo pipefail
cd "$(dirname "$0")/.."

[ "${1:-}" != --linted ] || export GALAXY_IMPORTER_RUN_ANSIBLE_LINT=no
version=$(sed -n 's/^version: //p' galaxy.yml)
tarball=build/gpufleet-nvidia-$version.tar.gz
tools/tarball.sh build >/dev/null

if [ ! -x .venv-importer/bin/python ]; then
    .venv/bin/python -m venv .venv-importer
    .venv-importer/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/importer.txt
fi

log=build/importer.log
repository=$(pwd)
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
# ansible-lint looks for playbooks that others import among the installed collections, and not in the tarball.
[ "${1:-}" = --linted ] || .venv/bin/ansible-galaxy collection install --force --collections-path "$home/.ansible/collections" "$tarball" >/dev/null
# It writes importer_result.json into the folder in which it runs.
(cd build && HOME="$home" PATH="$repository/.venv/bin:$PATH" "$repository/.venv-importer/bin/python" -m galaxy_importer.main "$repository/$tarball") \
    >"$log" 2>&1 || { cat "$log"; exit 1; }
if grep -E '^(ERROR|WARNING)' "$log"; then
    echo "galaxy-importer found something in $tarball; the whole log is in $log." >&2
    exit 1
fi
echo "galaxy-importer accepts $(basename "$tarball") ($(du -k "$tarball" | cut -f1) KiB)."
