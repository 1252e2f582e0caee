#!/usr/bin/env bash
# Make everything that a release consists of, below build/release/VERSION, from the commit that is checked out:
#   tools/release.sh VERSION [--write] [--sign KEYID] [--scratch]
# The working tree stays as it is; with --write it gets the version and the changelog of the release, to be committed and tagged by a person.
# --sign also writes SHA256SUMS.asc, a detached OpenPGP signature of the checksums by that key of gpg (tools/sign.sh).
# --scratch takes the files as they lie there, for a try: a release is made of a commit, which has passed make test-all (it runs that first;
# TESTED=yes where this very commit passed it elsewhere).
set -euo pipefail
cd "$(dirname "$0")/.."

version='' write='' scratch='' key=''
while [ $# -gt 0 ]; do
    case $1 in
        --write) write=yes ;;
        --sign) key=${2:-}; [ -n "$key" ] || { echo "Name the key: make release VERSION=1.2.0 SIGN=KEYID" >&2; exit 2; }; shift ;;
        --scratch) scratch=yes ;;
        -*) echo "There is no option $1. usage: tools/release.sh VERSION [--write] [--sign KEYID]" >&2; exit 2 ;;
        *) version=$1 ;;
    esac
    shift
done
[ -n "$version" ] || { echo "Name the version: make release VERSION=1.2.0" >&2; exit 2; }
# Before hours of tests, and not after them.
[ -z "$key" ] || tools/sign.sh --check "$key"
tools/setup.sh
mapfile -t tags < <(git tag --list)
.venv/bin/python tools/release.py check "$version" ${tags[@]+"${tags[@]}"}
if [ -z "$scratch" ] && [ -n "$(git status --porcelain)" ]; then
    git status --short >&2
    echo "The working tree has changes that are in no commit. Commit them or put them away (git stash): a release is made of a commit." >&2
    exit 1
fi
# A release is a commit that passed everything: here (build/tested), or where somebody says that it did.
if [ -z "$scratch" ] && [ "${TESTED:-}" != yes ] && [ "$(cat build/tested 2>/dev/null || true)" != "$(git rev-parse HEAD)" ]; then
    make test-all
    [ -e build/tested ] || { echo "Some tiers did not run, as said above: run them, then make release TESTED=yes" >&2; exit 1; }
fi

if [ "$(cat .venv-release/.requirements 2>/dev/null || true)" != "$(cksum <requirements/release.txt)" ]; then
    [ -x .venv-release/bin/python ] || .venv/bin/python -m venv .venv-release
    .venv-release/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/release.txt
    cksum <requirements/release.txt >.venv-release/.requirements
fi
helm=$(tests/charts/build-helm.sh)
oras=$(tools/build-oras.sh)

repository=$PWD
out=$PWD/build/release/$version
work=$PWD/build/release/work
rm -rf "$out" "$work"
source=$work/ansible_collections/gpufleet/nvidia
mkdir -p "$out" "$source"
trap 'rm -rf "$work"' EXIT
say() { printf -- '-- release %s: %s\n' "$version" "$*"; }

if [ -z "$scratch" ]; then
    git archive HEAD | tar -x -C "$source"
else
    git ls-files --cached --others --exclude-standard -z | tar -c --ignore-failed-read --null --files-from - | tar -x -C "$source"
fi
mapfile -t changed < <(.venv/bin/python tools/release.py version "$version" "$source")

say "changelog"
(
    cd "$source"
    export PATH="$repository/.venv/bin:$PATH" ANSIBLE_COLLECTIONS_PATH="$work:$repository/build/collections"
    antsibull-changelog release --version "$version" >/dev/null
)
cp "$source/CHANGELOG.rst" "$out/"

say "tarball of the collection, installed into an empty environment"
.venv/bin/ansible-galaxy collection build --force --output-path "$out" "$source" >/dev/null
tarball=$out/gpufleet-nvidia-$version.tar.gz
tools/install.sh "$tarball" "$work/environment"

say "chart, as a package and as an OCI layout"
"$helm" package --destination "$out" "$source/charts/gpufleet-nvidia" >/dev/null
chart=gpufleet-nvidia-$version.tgz
.venv/bin/python -c 'import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)' \
    <"$source/charts/gpufleet-nvidia/Chart.yaml" >"$work/config.json"
(
    cd "$out"
    "$oras" push --oci-layout "$out/charts:$version" --config "$work/config.json:application/vnd.cncf.helm.config.v1+json" \
        "$chart:application/vnd.cncf.helm.chart.content.v1.tar+gzip" >/dev/null
)
# Read back: what a registry would hand out is the chart.
"$oras" pull --oci-layout "$out/charts:$version" --output "$work/pulled" >/dev/null
cmp "$work/pulled/$chart" "$out/$chart"
"$helm" template check "$work/pulled/$chart" --kube-version 1.34 >/dev/null

say "context of the execution environment"
cat >"$work/execution-environment.yml" <<EOF
---
version: 3
images:
  base_image: {name: registry.example.com/base/python:3.12}
dependencies:
  ansible_core: {package_pip: "ansible-core>=2.18"}
  ansible_runner: {package_pip: "ansible-runner>=2.4"}
  galaxy:
    collections:
      - {name: /build/collection/gpufleet-nvidia-$version.tar.gz, type: file}
additional_build_files:
  - {src: $tarball, dest: collection}
EOF
.venv-release/bin/ansible-builder create --file "$work/execution-environment.yml" --context "$work/context" >/dev/null
tar -czf "$out/execution-environment-$version.tar.gz" -C "$work" context execution-environment.yml

say "the lab for others"
tools/lab-package.sh "$source" "$version" "$out"

say "bill of materials and checksums"
.venv-release/bin/cyclonedx-py environment --output-reproducible --output-format JSON --output-file "$out/sbom.cdx.json" \
    "$work/environment/venv/bin/python"
.venv/bin/python tools/release.py components "$version" "$out/sbom.cdx.json" "$source"
(cd "$out" && find . -type f -printf '%P\n' | sort | xargs sha256sum) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$out/"
(cd "$out" && sha256sum --quiet --check SHA256SUMS)
[ -z "$key" ] || tools/sign.sh "$key" "$out/SHA256SUMS"

if [ -n "$write" ]; then
    for path in "${changed[@]}" CHANGELOG.rst changelogs/changelog.yaml; do cp "$source/$path" "$path"; done
    find changelogs/fragments -name '*.yml' -delete
    echo "Version and changelog are in the working tree. Look at them, commit, and tag: git tag v$version"
fi
say "made in ${out#"$repository/"}:"
(cd "$out" && find . -maxdepth 1 -mindepth 1 -printf '   %f\n' | sort)
