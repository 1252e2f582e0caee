#!/usr/bin/env bash
# Install the package managers and repository tools that the resolver tests drive; all of them are Debian packages.
# dnf's plugins conflict with zypper (both ship a file), so they are unpacked into a folder and found through pluginpath.
set -eu
folder=${1:?the folder for the plugins of dnf}
missing=()
for pair in dnf:dnf zypper:zypper createrepo_c:createrepo-c rpmbuild:rpm apt-ftparchive:apt-utils gpg:gnupg; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    [ "$(id -u)" = 0 ] || { echo "missing: ${missing[*]}; run as root to have them installed" >&2; exit 3; }
    DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends \
        "${missing[@]}" python3-dateutil python3-dbus python3-libcomps
fi
if [ ! -e "$folder/dnf-plugins/versionlock.py" ]; then
    mkdir -p "$folder"
    temporary=$(mktemp -d)
    trap 'rm -rf "$temporary"' EXIT
    chmod 755 "$temporary"
    (cd "$temporary" && apt-get -q download dnf-plugins-core && dpkg-deb -x dnf-plugins-core_*.deb tree)
    cp -r "$temporary"/tree/usr/lib/python3/dist-packages/. "$folder/"
fi
