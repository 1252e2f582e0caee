# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's side of the driver: loaded modules, their versions and users, the module on disk, DKMS, Secure Boot; and loading and unloading them.

What is read is read from files, but for the version of the module on disk. Facts: host.md, sections 4 and 5.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Callable

from .._formats.documents import whole_number
from . import gpu_reset
from .command import CommandError, Result, find, run
from .files import HostFiles, read_text

Runner = Callable[[Sequence[str]], Result]

#: Debian builds nvidia-current.ko; the name inside the kernel stays nvidia. Some tools look for nvidia_current too.
MODULE_FILES = ("nvidia", "nvidia-current")
MODULE_NAMES = ("nvidia", "nvidia_current")

#: Modules that belong to the driver, in the order in which they are unloaded (host.md, section 5.3). nvidia_drm is missing from
#: NVIDIA's own list; packages of distributions load it.
UNLOAD_ORDER = (
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_peermem",
    "nvidia_fs",
    "nvidia_vgpu_vfio",
    "gdrdrv",
    "nvidia_uvm",
    "nvidia",
)

_PROC_VERSION = re.compile(r"Kernel Module(?:\s+for\s+\S+)?\s+([0-9]+(?:\.[0-9]+)+)")
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_DKMS = "/var/lib/dkms"
#: The fields of a module's section .modinfo, and what stands behind a module that is signed.
_MODINFO = re.compile(rb"\0(version|license|vermagic)=([^\0\n]{1,256})(?=\0)")
_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {".ko": bytes, ".xz": lzma.decompress, ".gz": gzip.decompress}
_SIGNED = b"~Module signature appended~\n"
#: error: (gcc), Error 2 (make), ERROR (modpost), and not -Werror or error.o; a program that the shell does not find, and what the linker does not.
_ERROR = re.compile(
    r"(?:^|[\s:])(?:fatal )?(?:error:|ERROR:|Error \d)|\b(?:ba|da)?sh: .*: (?:command )?not found|\bld: cannot find "
    r"|\bmake(?:\[\d+\])?: [^*].*: (?:Command not found|No such file or directory)$"
)
#: Seconds that a build may take: nine minutes on a slow, loaded host.
_BUILD_TIMEOUT = 3600


@dataclass(frozen=True)
class DiskModule:
    """The module nvidia as it would be loaded. C(signer) and C(key): name and serial number in the certificate of the key that signed it."""

    version: str | None
    flavour: str | None
    path: str | None
    vermagic: str | None = None
    signer: str | None = None
    key: str | None = None


def running_kernel() -> str:
    return os.uname().release


def loaded_modules(files: HostFiles) -> tuple[str, ...]:
    """Return the driver's modules that are loaded, sorted."""
    known = set(files.names("/sys/module"))
    return tuple(
        sorted(
            name
            for name in known
            if (name in UNLOAD_ORDER or name.startswith("nvidia_") or name in MODULE_NAMES)
            # A module that is built in or only has parameters has a directory too, but no reference count.
            and (files.exists(f"/sys/module/{name}/refcnt") or files.exists(f"/sys/module/{name}/version"))
        )
    )


def reference_count(files: HostFiles, name: str) -> int | None:
    """Return how many users module C(name) has, or None where it is not loaded or does not say."""
    return whole_number(files.read(f"/sys/module/{name}/refcnt"))


def loaded_version(files: HostFiles) -> str | None:
    for name in MODULE_NAMES:
        version = files.read(f"/sys/module/{name}/version")
        if version:
            return version
    text = files.read("/proc/driver/nvidia/version")
    return parse_proc_version(text)[0] if text else None


def loaded_flavour(files: HostFiles) -> str | None:
    """Return C(open) or C(proprietary) for the loaded module, or None where it is not loaded."""
    text = files.read("/proc/driver/nvidia/version")
    return parse_proc_version(text)[1] if text else None


def parse_proc_version(text: str) -> tuple[str | None, str | None]:
    """Return version and flavour from C(/proc/driver/nvidia/version)."""
    first = text.splitlines()[0] if text else ""
    match = _PROC_VERSION.search(first)
    if match is None:
        return None, None
    return match.group(1), "open" if "Open Kernel Module" in first else "proprietary"


def parse_modinfo(text: str) -> DiskModule:
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    licence = fields.get("license", "")
    flavour = {"Dual MIT/GPL": "open", "NVIDIA": "proprietary"}.get(licence)
    built_for = fields.get("vermagic", "").split()
    return DiskModule(
        fields.get("version"),
        flavour,
        fields.get("filename"),
        built_for[0] if built_for else None,
        # A kmod without OpenSSL shows that there is a signature, and an empty name.
        fields.get("signer") if fields.get("sig_id") else None,
        fields.get("sig_key"),
    )


def module_on_disk(files: HostFiles, kernel: str, run: Runner) -> tuple[DiskModule | None, str | None]:
    """Return the module that C(kernel) would load, and the reason where there is none. C(modules.dep) tells whether there is one and what it is
    called, so that a host without a driver costs no process.
    """
    index = files.read(f"/lib/modules/{kernel}/modules.dep")
    candidates = MODULE_FILES if index is None else _names_in_index(index)
    reason = f"no module nvidia for kernel {kernel}"
    base = () if files.local else ("-b", files.root)
    for name in candidates:
        try:
            answer = run(("modinfo", *base, "-k", kernel, name))
        except CommandError as error:
            # Minimal images have no kmod.
            read = _read_module(files, kernel, name, index or "")
            return (read, None) if read else (None, str(error))
        if answer.rc == 0:
            return parse_modinfo(answer.stdout), None
        reason = (answer.stderr or answer.stdout).strip() or reason
    return None, reason


def may_be_on_disk(files: HostFiles, kernel: str) -> bool:
    """Return whether there is the file of the module nvidia, or C(modules.dep) cannot be read."""
    folder = f"/lib/modules/{kernel}"
    index = files.read(f"{folder}/modules.dep")
    paths = [line.partition(":")[0] for line in (index or "").splitlines() if _names_in_index(line)]
    return index is None or any(files.exists(f"{folder}/{path}") for path in paths)


def _read_module(files: HostFiles, kernel: str, name: str, index: str) -> DiskModule | None:
    """Return what the file of a module itself says; None where it cannot be read, or is compressed with what Python does not know."""
    paths = (line.partition(":")[0] for line in index.splitlines())
    path = next((one for one in paths if os.path.basename(one).partition(".ko")[0] == name), None)
    where = f"/lib/modules/{kernel}/{path}"
    content = files.read_bytes(where) if path else None
    unpack = _UNPACK.get(os.path.splitext(where)[1])
    if content is None or unpack is None:
        return None
    try:
        content = unpack(content)
    except (OSError, EOFError, lzma.LZMAError, zlib.error):
        return None
    fields = {key: value.decode("utf-8", "replace") for key, value in _MODINFO.findall(content)}
    # Who signed it stands in a structure that only OpenSSL reads; kmod without it shows as much.
    signed = "sig_id: PKCS#7\nsigner:\n" if content.endswith(_SIGNED) else ""
    version, licence, vermagic = (fields.get(key, "") for key in (b"version", b"license", b"vermagic"))
    if not version:
        return None
    return parse_modinfo(f"filename: {where}\nversion: {version}\nlicense: {licence}\nvermagic: {vermagic}\n{signed}")


def _names_in_index(text: str) -> tuple[str, ...]:
    names = {os.path.basename(line.partition(":")[0]).partition(".ko")[0] for line in text.splitlines()}
    return tuple(name for name in MODULE_FILES if name in names)


def secure_boot(files: HostFiles) -> tuple[bool | None, str | None]:
    """Return whether Secure Boot is on, and the reason where that cannot be known."""
    if not files.names("/sys/firmware"):
        return None, "/sys/firmware is not visible"
    if not files.is_directory("/sys/firmware/efi"):
        return False, None
    value = files.read_bytes(_SECURE_BOOT)
    if value is None:
        present = files.exists(_SECURE_BOOT)
        return (None, f"{_SECURE_BOOT} cannot be read") if present else (False, None)
    # Four bytes of attributes, then the value.
    return (bool(value[4]), None) if len(value) >= 5 else (None, f"{_SECURE_BOOT} is too short")


def has_headers(files: HostFiles, kernel: str) -> bool:
    """Return whether modules can be built for C(kernel) (the link C(build) is there and leads somewhere)."""
    return files.is_directory(f"/lib/modules/{kernel}/build")


def dkms_modules(files: HostFiles) -> list[dict[str, str | None]]:
    """Return C(driver.dkms) of the facts, the builds of the driver's modules from DKMS' own tree, without starting C(dkms). C(state): C(added),
    C(built), C(installed), or C(broken): installed with an empty module file, which happens when a build fails half way (host.md, section 6, GDS).
    """
    found: list[dict[str, str | None]] = []
    for name in files.names(_DKMS):
        if not (name.startswith("nvidia") or name == "gdrdrv"):
            continue
        installed = {
            link[len("kernel-") :]: files.resolve(f"{_DKMS}/{name}/{link}")
            for link in files.names(f"{_DKMS}/{name}")
            if link.startswith("kernel-")
        }
        for version in files.names(f"{_DKMS}/{name}"):
            if not files.exists(f"{_DKMS}/{name}/{version}/source"):
                continue
            builds = _builds(files, f"{_DKMS}/{name}/{version}", installed) or [(None, "added")]
            found += [{"name": name, "version": version, "kernel": kernel, "state": state} for kernel, state in builds]
    return found


def _builds(files: HostFiles, folder: str, installed: dict[str, str | None]) -> list[tuple[str | None, str]]:
    """Return the kernels that a version of a module was built for, each with its state."""
    builds: list[tuple[str | None, str]] = []
    for kernel in files.names(folder):
        if kernel in ("source", "build") or not files.is_directory(f"{folder}/{kernel}"):
            continue
        for architecture in files.names(f"{folder}/{kernel}"):
            target = installed.get(f"{kernel}-{architecture}")
            state = "built"
            if target is not None and target == files.resolve(f"{folder}/{kernel}/{architecture}"):
                modules = files.glob(f"{folder}/{kernel}/{architecture}/module/*.ko*")
                state = "broken" if any(files.size(module) == 0 for module in modules) else "installed"
            builds.append((kernel, state))
    return builds


def module_exists(name: str, kernel: str) -> bool:
    """Return whether C(kernel) has a module C(name), built in or not; False without modprobe."""
    if find("modprobe") is None:
        return False
    return run(["modprobe", "--set-version", kernel, "--dry-run", name]).rc == 0


def load_module(name: str) -> Result:
    """Load a module and what it depends on. The answer is not a proof: callers read the state back. Raises CommandError: there is no modprobe."""
    return run(["modprobe", name], timeout=120)


def unload_module(name: str) -> Result:
    """Unload one module; the kernel refuses while it has users. Raises CommandError: there is no rmmod."""
    answer = run(["rmmod", name], timeout=120)
    if name == "nvidia" and answer.rc == 0:
        gpu_reset.forget_locks()
    return answer


def is_blocked(name: str) -> bool | None:
    """Return whether modprobe's configuration keeps C(name) from being loaded for a device; None without modprobe."""
    try:
        answer = run(["modprobe", "--showconfig"], timeout=60)
    except CommandError:
        return None
    return parse_blocked(answer.stdout, name)


def parse_blocked(text: str, name: str) -> bool:
    """Return whether C(modprobe --showconfig) has a blacklist line for C(name), or an install line that does nothing."""
    pattern = (
        rf"^(?:blacklist\s+{re.escape(name)}|(?:install|alias)\s+{re.escape(name)}\s+(?:/bin/true|/bin/false|off))\s*$"
    )
    return re.search(pattern, text, re.MULTILINE) is not None


def build_module(name: str, version: str, kernel: str, again: bool) -> str:
    """Have DKMS build and install a module; return why it could not, with the first error of its log, or an empty string.

    :param again: also where DKMS takes it for installed.
    :raises CommandError: there is no dkms, or it does not end.
    """
    of = ["-m", name, "-v", version, "-k", kernel]
    # install --force alone takes what is built already (DKMS 3.0.10).
    commands = [["dkms", "build", "--force", *of], ["dkms", "install", "--force", *of]]
    log = f"/var/lib/dkms/{name}/{version}/build/make.log"
    # What an earlier build wrote says nothing of this one.
    former = read_text(log)
    for command in commands if again else [["dkms", "install", *of]]:
        answer = run(command, timeout=_BUILD_TIMEOUT)
        if answer.rc != 0:
            now = read_text(log)
            error = first_error(now) if now and now != former else ""
            said = " ".join((answer.stderr.strip() or answer.stdout.strip()).split())[-400:]
            return f"{error} (see {log})" if error else f"{' '.join(command)}: {said or 'it said nothing'}"
    return ""


def first_error(log: str) -> str:
    """Return the first line of a build's log that tells of an error, in at most 300 characters; empty where none does."""
    lines = (line.strip() for line in log.splitlines())
    return next((line[:300] for line in lines if _ERROR.search(line)), "")


def renew_initramfs(command: Sequence[str]) -> bool:
    """Write the initial file system again; return False where the host has no such program (a container, or UKIs). Raises CommandError: it failed."""
    if find(command[0]) is None:
        return False
    run(command, timeout=900, allowed=(0,))
    return True
