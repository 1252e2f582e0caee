#!/usr/bin/env bash
# Print the path of promtool: the machine's, or that of Debian's package prometheus, unpacked into a cache outside of the repository. The
# package itself is not installed, because it would start a server. A test tool only.
set -euo pipefail

if command -v promtool; then
    exit 0
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet/tools/promtool
if [ ! -x "$cache/usr/bin/promtool" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "promtool is missing and this machine has no apt-get. Install promtool, which comes with Prometheus." >&2
        exit 1
    fi
    echo "Fetching promtool (once) ..." >&2
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cd "$folder"
    if ! apt-get download -qq prometheus >&2; then
        apt-get update -qq >&2 || echo "apt-get update failed; as root it may work, or check the package archives in /etc/apt." >&2
        apt-get download -qq prometheus >&2
    fi
    dpkg-deb -x ./*.deb unpacked
    install -D unpacked/usr/bin/promtool "$cache/usr/bin/promtool"
fi
echo "$cache/usr/bin/promtool"
