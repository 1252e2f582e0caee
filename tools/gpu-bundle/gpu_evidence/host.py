# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the system itself says of the GPU and of the driver: files, and nvidia-smi."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import os
import platform
import re
import stat
import struct
import sys
from pathlib import Path

from gpu_evidence.running import PLACES, Folder, which

_FILES = (
    "/etc/os-release", "/etc/debian_version", "/proc/version", "/proc/devices", "/proc/modules", "/proc/filesystems",
    "/proc/self/cgroup", "/proc/self/status", "/proc/meminfo", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/tainted",
    "/proc/sys/kernel/dmesg_restrict", "/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/user/max_user_namespaces",
    "/etc/modprobe.d/*nvidia*", "/usr/lib/modprobe.d/*nvidia*", "/etc/nvidia-container-runtime/config.toml", "/etc/cdi/*",
    "/var/run/cdi/*", "/etc/ld.so.conf.d/*", "/etc/nvidia-fabricmanager.conf", "/usr/share/nvidia/nvidia-fabricmanager.conf",
)  # fmt: skip
_TREES = (
    "/proc/driver/nvidia",
    "/proc/driver/nvidia-nvlink",
    "/proc/driver/nvidia-caps",
    "/proc/driver/nvidia-nvswitch",
    "/proc/driver/nvidia-uvm",
)
_MODULES = "/sys/module/nvidia*"
_PCI = "/sys/bus/pci/devices"
_PCI_FILES = (
    "vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision", "numa_node", "local_cpulist", "enable",
    "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "power_state", "power/control",
    "power/runtime_status", "reset_method", "sriov_totalvfs", "sriov_numvfs", "d3cold_allowed", "irq", "resource",
)  # fmt: skip
_PROGRAMS = (
    "nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-persistenced", "nvidia-modprobe", "nvidia-ctk", "nvidia-cdi-hook",
    "nvidia-container-cli", "nvidia-container-runtime", "nvidia-debugdump", "nvidia-bug-report.sh", "nv-fabricmanager", "nvidia-imex", "dcgmi",
    "nv-hostengine", "nvcc", "cuobjdump", "systemctl", "sudo", "dpkg", "rpm", "apt-get", "dnf", "zypper", "lspci", "lsmod", "modinfo", "modprobe",
    "dmesg", "unshare", "nsenter", "ip", "ldconfig", "lsof", "fuser", "docker", "containerd", "crictl", "kubelet", "kubectl", "mokutil", "python3",
    "gcc", "strace", "mount", "su", "setpriv", "runuser",
)  # fmt: skip
_VARIABLES = re.compile(r"^(NVIDIA_|CUDA_|NV_|LD_LIBRARY_PATH$|LD_PRELOAD$|PATH$)")
_KERNEL_OPTIONS = re.compile(
    r"^(iommu|intel_iommu|amd_iommu|pci|pcie_|nouveau|nvidia|modprobe\.|module_blacklist|hugepages|numa|mitigations|rd\.driver)"
)
_SMALL = 64 * 1024


def files(out: str, _work: str) -> int:
    """Files of the kernel and of the system; no program is run."""
    folder = Folder(out)
    kept = {}
    for pattern in _FILES:
        for path in sorted(glob.glob(pattern)):
            kept[path] = _file(path)
    for tree in _TREES:
        kept.update(_tree(tree))
    folder.write_json("files.json", kept)
    folder.write_json("modules.json", _modules())
    folder.write_json("pci.json", _pci())
    folder.write_json("device-nodes.json", _nodes())
    folder.write_json("system.json", _system())
    folder.write_json("libraries.json", _libraries())
    folder.write_json("programs.json", _programs())
    folder.write_json("processes.json", _closed_processes())
    return folder.answer(
        "ran",
        f"{len(kept)} files, {len(_pci())} NVIDIA functions on the PCI bus",
        python=platform.python_version(),
        kernel=platform.release(),
    )


def _file(path: str) -> object:
    try:
        with open(path, "rb") as file:
            return file.read(_SMALL).decode("utf-8", errors="replace")
    except OSError as error:
        return {"error": error.strerror, "errno": error.errno}


def _tree(top: str) -> dict[str, object]:
    found: dict[str, object] = {}
    if not os.path.exists(top):
        return {top: {"error": "No such file or directory", "errno": 2}}
    for folder, _folders, names in os.walk(top):
        for name in names:
            # Reading it would take events away from who waits for them.
            if name in ("suspend", "suspend_depth"):
                found[f"{folder}/{name}"] = {"not read": True}
            else:
                found[f"{folder}/{name}"] = _file(f"{folder}/{name}")
    return found


def _modules() -> dict[str, object]:
    found: dict[str, object] = {}
    for module in sorted(glob.glob(_MODULES)):
        for name in ("version", "srcversion", "refcnt", "initstate", "taint", "coresize"):
            if os.path.exists(f"{module}/{name}"):
                found[f"{module}/{name}"] = _file(f"{module}/{name}")
        for path in sorted(glob.glob(f"{module}/parameters/*")):
            found[path] = _file(path)
        found[f"{module}/holders"] = (
            sorted(os.listdir(f"{module}/holders")) if os.path.isdir(f"{module}/holders") else None
        )
    return found


def _pci() -> dict[str, object]:
    found: dict[str, object] = {}
    for device in sorted(glob.glob(f"{_PCI}/*")):
        vendor = _file(f"{device}/vendor")
        if not isinstance(vendor, str) or vendor.strip() != "0x10de":
            continue
        entry: dict[str, object] = {
            name: _file(f"{device}/{name}") for name in _PCI_FILES if os.path.exists(f"{device}/{name}")
        }
        for link in ("driver", "iommu_group", "subsystem", "physfn"):
            entry[link] = (
                os.path.basename(os.path.realpath(f"{device}/{link}")) if os.path.lexists(f"{device}/{link}") else None
            )
        entry["is_link"] = os.path.islink(device)
        entry["target"] = os.path.realpath(device)
        # Whether there are vital product data, and how large: the data hold serial numbers.
        entry["vpd"] = os.path.getsize(f"{device}/vpd") if os.path.exists(f"{device}/vpd") else None
        entry["names"] = sorted(os.listdir(device))
        found[os.path.basename(device)] = entry
    return found


def _nodes() -> list[dict[str, object]]:
    found = []
    for path in sorted(
        {
            *glob.glob("/dev/nvidia*"),
            *glob.glob("/dev/nvidia-caps/*"),
            *glob.glob("/dev/nvidia-caps-imex-channels/*"),
            *glob.glob("/dev/dri/*"),
            *glob.glob("/dev/vfio/*"),
            *glob.glob("/dev/char/195:*"),
            "/dev/shm",
            "/dev/kmsg",
            "/dev/gdrdrv",
        }
    ):
        entry: dict[str, object] = {"path": path}
        try:
            one = os.lstat(path)
            entry.update(
                mode=stat.filemode(one.st_mode), uid=one.st_uid, gid=one.st_gid,
                link=os.readlink(path) if stat.S_ISLNK(one.st_mode) else None,
            )  # fmt: skip
            if stat.S_ISCHR(one.st_mode):
                entry["device"] = [os.major(one.st_rdev), os.minor(one.st_rdev)]
        except OSError as error:
            entry["error"] = error.strerror
        found.append(entry)
    return found


def _system() -> dict[str, object]:
    command_line = _file("/proc/cmdline")
    mounts = _file("/proc/self/mountinfo")
    kept = [
        line
        for line in str(mounts).splitlines()
        if re.search(r"nvidia|cuda| /(proc|sys|dev|tmp|run)?[ /]| / |cgroup", line)
    ]
    return {
        "python": sys.version, "machine": platform.machine(), "libc": platform.libc_ver(), "uid": os.geteuid(), "cpus": os.cpu_count(),
        "init": _file("/proc/1/comm"), "systemd": os.path.isdir("/run/systemd/system"),
        "container_marks": [path for path in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container") if os.path.exists(path)],
        "kernel_options": [word for word in str(command_line).split() if _KERNEL_OPTIONS.match(word)],
        "environment": {name: value for name, value in os.environ.items() if _VARIABLES.match(name)},
        "programs": {name: which(name) for name in _PROGRAMS},
        "mounts": [re.sub(r"\S*@\S*|//\S+", "<remote>", line) for line in kept],
        "mounts_left_out": len(str(mounts).splitlines()) - len(kept),
        "modules_folder": os.path.isdir(f"/lib/modules/{platform.release()}"),
    }  # fmt: skip


def _libraries() -> dict[str, object]:
    """The driver's libraries, where they are, and the names that the NVML library has."""
    found: dict[str, object] = {}
    for place in (
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/nvidia",
        "/usr/local/nvidia/lib64",
        "/usr/local/nvidia/lib",
        "/lib/firmware/nvidia/*",
        "/usr/local/cuda/compat",
    ):
        for folder in glob.glob(place):
            names = (
                [name for name in os.listdir(folder) if re.search(r"nvidia|cuda|nvcuvid|nvoptix|gsp", name)]
                if os.path.isdir(folder)
                else []
            )
            if names:
                found[folder] = {name: os.path.realpath(f"{folder}/{name}") for name in sorted(names)}
    path = loaded("libnvidia-ml.so.1")
    found["libnvidia-ml.so.1"] = {"path": path, "symbols": symbols(path) if path else None}
    return found


def _programs() -> dict[str, object]:
    """Every file of NVIDIA's programs in the path: a container may have one of its own beside the one that is mounted."""
    found: dict[str, object] = {}
    for folder in dict.fromkeys([*os.environ.get("PATH", os.defpath).split(os.pathsep), *PLACES]):
        for path in sorted(glob.glob(f"{folder}/nvidia-*")):
            with contextlib.suppress(OSError):
                raw = Path(path).read_bytes()
                words = sorted({one.decode() for one in re.findall(rb"[ -~]*multiuser[ -~]*", raw)})
                found[path] = {
                    "target": os.path.realpath(path),
                    "size": len(raw),
                    "sha256": hashlib.sha256(raw).hexdigest()[:16],
                    "words": words,
                }
    return found


def _closed_processes() -> dict[str, object]:
    """The processes whose open files this user cannot list, by the reason: what may use a GPU unseen."""
    found: dict[str, object] = {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            # Where root is kept out of a process, as of a sandbox's first one, it may list the open files, and not follow them.
            for name in os.listdir(f"{path}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    os.readlink(f"{path}/fd/{name}")
        except OSError as error:
            found[path] = {
                "error": errno.errorcode.get(error.errno or 0),
                "name": _file(f"{path}/comm"),
                "status": str(_file(f"{path}/status"))[:200],
            }
    return found


def loaded(name: str) -> str | None:
    """Where the dynamic linker finds a library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            if name.split(".so")[0] in line:
                return os.path.realpath(line.split(maxsplit=5)[-1].strip())
    return None


def symbols(path: str) -> list[str]:
    """The functions that a library of 64 bits exports, from its dynamic symbol table."""
    raw = Path(path).read_bytes()
    if raw[:5] != b"\x7fELF\x02":
        return []
    (offset,), (size, count) = struct.unpack_from("<Q", raw, 40), struct.unpack_from("<HH", raw, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", raw, offset + index * size) for index in range(count)]
    found = set()
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        strings = sections[section[6]]
        for start in range(section[4], section[4] + section[5], 24):
            name, info, _other, index = struct.unpack_from("<IBBH", raw, start)
            if index and info & 15 in (1, 2):
                end = raw.index(b"\0", strings[4] + name)
                found.add(raw[strings[4] + name : end].decode("ascii", errors="replace"))
    return sorted(name for name in found if name.startswith("nvml"))
