#!/usr/bin/env bash
# Print the path of Alertmanager: the machine's, or that of Debian's package, unpacked into a cache outside of the repository. The package
# itself is not installed, because it would start a server; only the templates that the program looks for at a fixed path are, which needs root.
# A test tool only.
set -euo pipefail

if command -v prometheus-alertmanager; then
    exit 0
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet/tools/alertmanager
templates=usr/share/prometheus/alertmanager
if [ ! -e "$cache/$templates" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "This machine has no Alertmanager, and no apt-get to fetch it with." >&2
        exit 1
    fi
    echo "Fetching Alertmanager (once) ..." >&2
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cd "$folder"
    if ! apt-get download -qq prometheus-alertmanager >&2; then
        apt-get update -qq >&2 || echo "apt-get update failed; as root it may work, or check the package archives in /etc/apt." >&2
        apt-get download -qq prometheus-alertmanager >&2
    fi
    dpkg-deb -x ./*.deb unpacked
    mkdir -p "$cache/usr/bin" "$cache/${templates%/*}"
    cp unpacked/usr/bin/prometheus-alertmanager "$cache/usr/bin/"
    cp -r "unpacked/$templates" "$cache/${templates%/*}/"
fi
for template in "$cache/$templates"/*.tmpl; do
    [ -e "/$templates/${template##*/}" ] || install -D -m 0644 "$template" "/$templates/${template##*/}"
done
echo "$cache/usr/bin/prometheus-alertmanager"
