# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every file of a lab host, so that two moments of its life can be compared."""

from __future__ import annotations

from typing import Any

#: What is not looked at, and why. Everything else is.
VOLATILE = {
    "/proc": "the kernel's",
    "/sys": "the kernel's",
    "/dev": "the kernel's, and the lab's for the virtual GPUs",
    "/run": "empty after a boot",
    "/tmp": "temporary",
    "/var/tmp": "temporary",
    "/var/log": "logs",
    "/var/cache": "caches: of apt, of ld.so, of man",
    "/var/lib/apt": "fetched lists, and which packages were asked for",
    "/var/lib/dpkg": "the package database; the packages themselves are compared",
    "/var/lib/systemd": "times of timers and catalogues, and what deb-systemd-helper remembers of units",
    "/var/lib/containerd": "containerd's store",
    "/var/lib/dkms/mok.key": "DKMS makes a key when it is installed, and a removal leaves it",
    "/var/lib/dkms/mok.pub": "the same",
    "/etc/ld.so.cache": "rebuilt whenever a library comes or goes",
    "/root/.ansible": "Ansible's",
    "/usr/local/share/virtual-gpu": "the lab's",
}


def read(lab: Any, host: str) -> dict[str, str]:
    """Return type, mode, owner, and target or SHA-256, of everything on a host, by path."""
    pruned = " -o ".join(f"-path {path}" for path in VOLATILE)
    shown = lab.sh(
        host,
        f"cd /; find / -xdev \\( {pruned} -o -name __pycache__ -o -name 'modules.*' -path '/usr/lib/modules/*' \\) -prune "
        "-o -printf '%p\\t%y %m %U:%G %l\\n'; echo; "
        f"find / -xdev \\( {pruned} -o -name __pycache__ -o -name 'modules.*' -path '/usr/lib/modules/*' \\) -prune "
        "-o -type f -print0 | xargs -0 sha256sum -z | tr '\\0' '\\n'",
    )
    entries, _blank, sums = shown.partition("\n\n")
    found = dict(line.split("\t", 1) for line in entries.splitlines())
    for line in sums.splitlines():
        digest, _space, path = line.partition("  ")
        found[path] = f"{found[path]}{digest}"
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Return what came, what went and what changed, by path."""
    return {
        path: f"{before.get(path, 'was not there')} -> {after.get(path, 'is gone')}"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    }
