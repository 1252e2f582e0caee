# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Maintainer scripts of the packages, in the shapes that debhelper makes."""

from __future__ import annotations

LDCONFIG = "activate-noawait ldconfig\n"
"""The triggers file of a package with a shared library."""


def dkms_add(name: str, version: str) -> dict[str, str]:
    """Build on installation with DKMS's own script, and take the module out on removal; as dh_dkms does."""
    return {
        "postinst": f"""#!/bin/sh
set -e
case "$1" in
    configure)
        postinst=/usr/lib/dkms/common.postinst
        if [ -f $postinst ]; then
            $postinst {name} {version} /usr/share/{name}-dkms "" "$2"
        else
            echo "WARNING: $postinst does not exist." >&2
        fi
        ;;
esac
""",
        "prerm": f"""#!/bin/sh
set -e
case "$1" in
    remove|upgrade|deconfigure)
        if [ -x /usr/sbin/dkms ]; then
            dkms remove -m {name} -v {version} --all || true
        fi
        ;;
esac
""",
    }


def service(unit: str, *, enable: bool = True, before: str = "") -> dict[str, str]:
    """Enable and start a unit, and stop it on removal; as dh_installsystemd does."""
    enabling = (
        f"""        if deb-systemd-helper --quiet was-enabled {unit}; then
            deb-systemd-helper enable {unit} >/dev/null || true
        else
            deb-systemd-helper update-state {unit} >/dev/null || true
        fi
"""
        if enable
        else f"        deb-systemd-helper update-state {unit} >/dev/null || true\n"
    )
    starting = (
        f"""            if [ -n "$2" ]; then action=restart; else action=start; fi
            deb-systemd-invoke $action {unit} >/dev/null || true
"""
        if enable
        else f"""            if [ -n "$2" ]; then deb-systemd-invoke try-restart {unit} >/dev/null || true; fi
"""
    )
    return {
        "postinst": f"""#!/bin/sh
set -e
case "$1" in
    configure|abort-upgrade|abort-deconfigure|abort-remove)
{before}        deb-systemd-helper unmask {unit} >/dev/null || true
{enabling}        if [ -d /run/systemd/system ]; then
            systemctl --system daemon-reload >/dev/null || true
{starting}        fi
        ;;
esac
""",
        "prerm": f"""#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop {unit} >/dev/null || true
fi
""",
        "postrm": f"""#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
fi
if [ "$1" = purge ] && [ -x /usr/bin/deb-systemd-helper ]; then
    deb-systemd-helper purge {unit} >/dev/null || true
    deb-systemd-helper unmask {unit} >/dev/null || true
fi
""",
    }
