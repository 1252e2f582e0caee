# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was read back, compared with what was wanted. Exit statuses prove nothing in this field (host.md, section 0)."""

from __future__ import annotations

from collections.abc import Mapping

from .._formats import module_parameters as parameters
from .._formats.driver_versions import is_driver_version
from .._formats.imex import differences as imex_differences
from .desired import DesiredDriver
from .fabric import wants_fabric_manager, wants_imex
from .holds import hold_names
from .packages import DKMS, closure
from .selection import names_of
from .state import Host

#: Exit statuses of nvidia-smi (its documentation, host.md, section 5.2).
NVIDIA_SMI: Mapping[int, str] = {
    2: "it was called wrongly",
    3: "the operation is not available on this GPU",
    4: "it lacks permission",
    6: "a query failed",
    8: "a GPU's power cable is not attached",
    9: "the driver is not loaded",
    10: "the kernel has a problem with a GPU's interrupt",
    12: "the NVML library was not found",
    13: "the NVML library is too old",
    14: "a GPU's infoROM is corrupt",
    15: "a GPU fell off the bus",
    255: "another error",
}


def package_problems(host: Host, desired: DesiredDriver, version: str) -> list[str]:
    """Return how the installed packages and the built module differ from driver C(version)."""
    found = [f"packages of driver {other} are installed, not {version}" for other in host.versions if other != version]
    if not host.versions:
        found.append("no package of the driver is installed")
    if host.interrupted:
        found.append(f"packages are only half installed: {', '.join(host.interrupted)}")
    missing = [name for name in names_of(host, desired).required if name not in host.packages]
    if missing and desired.state == "present":
        found.append(f"not installed: {', '.join(missing)}")
    if host.on_disk != version:
        found.append(_not_built(host, desired, version))
    if host.library is not None and is_driver_version(host.library) and host.library != version:
        found.append(f"libnvidia-ml.so.1 is of driver {host.library}")
    if host.library is None:
        found.append("libnvidia-ml.so.1 is not there")
    if desired.hold:
        free = sorted(set(hold_names(host.packages, host.kernel_packages)) - set(host.holds))
        if free:
            found.append(f"not held: {', '.join(free)}")
    return found


def _not_built(host: Host, desired: DesiredDriver, version: str) -> str:
    on_disk = f"module on disk for kernel {host.kernel}: {host.on_disk or 'none'}"
    if names_of(host, desired).module != DKMS:
        return f"{on_disk}; the package with the modules for this kernel is missing"
    builds = [build for build in host.builds if build.version == version and build.kernel in (None, host.kernel)]
    if any(build.state == "broken" for build in builds):
        return f"{on_disk}; DKMS built an empty file, see /var/lib/dkms/nvidia*/{version}/build/make.log"
    if not host.headers:
        return f"{on_disk}; DKMS built nothing because the headers of this kernel are not installed"
    states = ", ".join(sorted({build.state for build in builds})) or "unknown to DKMS"
    return f"{on_disk}; the state of the build is {states}, see /var/lib/dkms/nvidia*/{version}/build/make.log"


def running_problems(host: Host, desired: DesiredDriver, version: str, smi: int | None) -> list[str]:
    """Return how the running driver differs from C(version).

    :param smi: exit status of nvidia-smi, or None when it was not asked.
    """
    found = []
    if host.loaded != version:
        found.append(f"the loaded driver is {host.loaded or 'none'}, not {version}")
    if desired.state == "present" and host.flavour is not None and host.flavour != desired.flavour:
        found.append(f"the {host.flavour} kernel modules are loaded, not the {desired.flavour} ones")
    if desired.state == "present":
        # A driver that is gone back to may be older than a parameter, which it ignores then.
        found += parameters.differences(desired.parameters, host.loaded_parameters)
    if smi not in (None, 0):
        found.append(f"nvidia-smi ended with {smi}: {NVIDIA_SMI.get(int(smi or 0), 'not documented')}")
    if desired.persistence and host.persistence_installed and not host.persistence_active:
        found.append("nvidia-persistenced does not run")
    if wants_fabric_manager(host, desired):
        if host.fabric_version is not None and host.fabric_version != version:
            found.append(f"the fabric manager is of version {host.fabric_version}; it has to be {version} exactly")
        if not host.fabric_active:
            found.append("nvidia-fabricmanager does not run")
    if wants_imex(host, desired):
        found += imex_differences(host.imex, desired.imex)
    return found


def absent_problems(host: Host) -> list[str]:
    """Return what is left of a driver that should be gone."""
    left = sorted(closure(host.packages))
    return [f"still installed: {', '.join(left)}"] if left else []
