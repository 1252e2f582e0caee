# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVIDIA driver in its three places: loaded, on disk for the running kernel, and the library of user space.

After an upgrade they differ until the module is reloaded (host.md, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._adapters import grub, kernel, module_signing
from .._adapters.files import HostFiles
from .._adapters.host_reader import HostReader
from .._adapters.installed_packages import InstalledPackage, from_nvidia, is_driver, other_vendor, read_packages
from .._adapters.kernel import DiskModule
from .._formats import module_parameters as parameters
from .._formats.driver_versions import driver_version_in
from .._formats.host_names import DRIVER_CONTAINER, LIBRARY
from .host import Services
from .nvml import library_path, library_version

#: What NVIDIA's installer leaves behind, and no package has.
_RUNFILE_MARKS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
_CONTAINER_MARK = f"{DRIVER_CONTAINER}/usr/bin/nvidia-smi"


def driver_source(files: HostFiles, packages: Sequence[InstalledPackage], present: bool) -> dict[str, str | None]:
    """Return C(source), who the driver is from, None where there is none; with C(vendor), who else it is from, neither NVIDIA nor the distribution.
    C(present): whether there is a module or a library at all.
    """
    # What is only named like it is no driver: nvidia-vaapi-driver, libnvidia-ml-dev, what a site calls so. The libraries for programs of a newer CUDA come
    # with images of containers, whose driver is that of their host.
    drivers = [
        one
        for one in packages
        if is_driver(one.name) and driver_version_in(one.version) and not one.name.startswith("cuda-compat")
    ]
    if drivers:
        of_nvidia = any(from_nvidia(package) for package in drivers)
        # A site may build modules for NVIDIA's driver.
        vendor = other_vendor(one for one in drivers if not (of_nvidia and one.name.startswith("kmod-nvidia")))
        source = "nvidia" if of_nvidia else "vendor" if vendor else "distribution"
        return {"source": source, "vendor": vendor} if vendor else {"source": source}
    if any(files.exists(mark) for mark in _RUNFILE_MARKS):
        return {"source": "runfile"}
    return {"source": None if not present else "container" if files.exists(_CONTAINER_MARK) else "outside"}


def read_driver(
    source: HostReader, manager: str | None, services: Services
) -> tuple[dict[str, Any], list[InstalledPackage] | None]:
    """Return the part C(driver) of the facts, and NVIDIA's installed packages for the parts that need them."""
    files = source.files
    disk, reason = kernel.module_on_disk(files, kernel.running_kernel(), source.run)
    if disk is None:
        source.note("driver.on_disk_version", reason)
    elif disk.version is None:
        source.note("driver.on_disk_version", "modinfo shows no version")
    loaded = kernel.loaded_version(files)
    modules = kernel.loaded_modules(files)
    if loaded is None:
        visible = files.is_directory("/sys/module")
        source.note("driver.loaded_version", "the module nvidia is not loaded" if visible else "/sys is not visible")
    packages, holds = read_packages(source, manager)
    known = disk is not None and disk.version is not None
    unread = loaded is not None and not known and kernel.may_be_on_disk(files, kernel.running_kernel())
    return {
        "loaded_version": loaded,
        "on_disk_version": disk.version if disk else None,
        **({"on_disk_unread": True} if unread else {}),
        "library_version": _read_library(source),
        "flavour": kernel.loaded_flavour(files) or (disk.flavour if disk else None),
        **driver_source(files, packages or (), loaded is not None or disk is not None),
        "packages": None if packages is None else {one.name: one.version for one in packages if is_driver(one.name)},
        "holds": holds,
        "nouveau_loaded": files.exists("/sys/module/nouveau"),
        "modules": list(modules),
        **_read_parameters(files),
        **read_next_kernel(source, disk),
        "dkms": kernel.dkms_modules(files),
        "persistence_daemon": {
            "installed": files.find_program("nvidia-persistenced") is not None,
            "active": services.active("nvidia-persistenced"),
            **services.masked("nvidia-persistenced"),
        },
    }, packages


def _read_parameters(files: HostFiles) -> dict[str, dict[str, str]]:
    """Return the parameters that the collection has set for the module, and those that the loaded module has; nothing where it set none."""
    found = parameters.configured(files.read(parameters.FILE))
    shown = parameters.loaded(files.read(parameters.LOADED), list(found))
    return {"configured_parameters": found, "loaded_parameters": shown} if found else {}


def _read_library(source: HostReader) -> str | None:
    path = library_path(source.files)
    if path is None:
        source.note("driver.library_version", f"{LIBRARY} is not installed")
        return None
    version = library_version(path)
    if version is None:
        source.note("driver.library_version", f"{path} carries no version in its name")
    return version


_NEXT_KERNEL = "driver.next_kernel"


def read_next_kernel(source: HostReader, running: DiskModule | None, release: str = "") -> dict[str, Any]:
    """Return the entry C(next_kernel) of the facts; nothing where that is the running kernel, or not known.

    :param running: the module on the disk for the running kernel.
    :param release: of the kernel to read in place of the one that GRUB boots next.
    """
    if not release:
        following, reason = grub.next_kernel(source.files)
        source.note(_NEXT_KERNEL, reason)
        release = following or ""
    if release in ("", kernel.running_kernel()):
        return {}
    disk, reason = kernel.module_on_disk(source.files, release, source.run)
    found: dict[str, Any] = {"release": release, "headers": kernel.has_headers(source.files, release)}
    if disk is None:
        source.note(f"{_NEXT_KERNEL}.version", reason)
        return {"next_kernel": {**found, "version": None}}
    found.update(version=disk.version, vermagic=disk.vermagic)
    if kernel.secure_boot(source.files)[0]:
        loaded = running is not None and running.version == kernel.loaded_version(source.files)
        found.update(signer=disk.signer, key_enrolled=_key_enrolled(source, disk, running if loaded else None))
    return {"next_kernel": found}


def _key_enrolled(source: HostReader, disk: DiskModule, loaded: DiskModule | None) -> bool | None:
    """Return whether a kernel with Secure Boot takes what signed the module; None where that is not known. C(loaded): the module that the running
    kernel has loaded; None where that is not the one on the disk.
    """
    if disk.signer is None:
        return False
    if not disk.key:
        source.note(f"{_NEXT_KERNEL}.key_enrolled", "modinfo does not show the key of the module's signature")
        return None
    if loaded is not None and loaded.key and module_signing.serial(loaded.key) == module_signing.serial(disk.key):
        # The running kernel has taken it, which includes keys that a distribution builds into all of its kernels.
        return True
    known = module_signing.enrolled_keys(source.run) if source.files.local else None
    if known is None:
        source.note(f"{_NEXT_KERNEL}.key_enrolled", "mokutil, which lists the enrolled keys, cannot be run")
        return None
    return module_signing.serial(disk.key) in known
