#!/usr/bin/env bash
# Install the Debian packages that a tier of the tests needs and that this machine lacks: tools/system-packages.sh PROGRAM=PACKAGE...
# A pair is skipped when the program is there already.
set -euo pipefail

missing=()
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 || missing+=("${pair##*=}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
    echo "These packages are missing and this machine has no apt-get: ${missing[*]}. Install what provides them." >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "These Debian packages are missing. As root: apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "Installing ${missing[*]} ..." >&2
export DEBIAN_FRONTEND=noninteractive
if ! apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
    apt-get update -qq || echo "apt-get update failed; check the package archives in /etc/apt." >&2
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
