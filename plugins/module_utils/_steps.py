# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kinds of steps that plans consist of, and the one place that puts a step into words.

Code decides on the kind, the target and the data of a step. What people read is written here, and nothing reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, unique
from typing import Any

#: What the name of a file ends with that was moved out of the way of the programs that read all files of a folder of one kind.
ASIDE = ".disabled-by-gpufleet"


@unique
class Kind(Enum):
    """What a step does: its name, in lower case, is the key in results; its value is the phrase for people. A phrase names the target, entries of the
    step's data, and C({gpu}) (see L(gpu_title)) or C({release}), which is the version of a driver or, before a repository was asked for one, its
    branch.
    """

    # Packages and repositories.
    REPAIR_PACKAGE_DATABASE = "repair the package database"
    ADD_REPOSITORY = "add repository {target}"
    ENABLE_REPOSITORIES = "enable the repositories {repositories}"
    REMOVE_REPOSITORY = "remove repository {target}"
    INSTALL_PREREQUISITES = "install {packages}"
    HOLD_PACKAGES = "hold {packages}"
    RELEASE_PACKAGES = "release {packages}"
    UNINSTALL_PACKAGES = "remove packages {packages}"

    # Files and services.
    CREATE_FILE = "create {target}"
    CHANGE_FILE = "change {target}"
    WRITE_FILE = "write {target}"
    REMOVE_FILE = "remove {target}"
    REMOVE_FOLDER = "remove {target} and what is in it"
    ENABLE_SERVICE = "enable {target}"
    DISABLE_SERVICE = "disable {target}"
    START_SERVICE = "start {target}"
    RESTART_SERVICE = "restart {target}"
    RELOAD_SERVICE = "reload {target}"
    MASK_SERVICE = "mask {target}"
    UNMASK_SERVICE = "unmask {target}"
    INSTALL_HOST_PROGRAM = "install {target}"

    # The driver.
    INSTALL_DRIVER = "install driver {release}"
    CHANGE_DRIVER = "change driver {before} to {release}"
    DOWNGRADE_DRIVER = "downgrade driver {before} to {release}"
    REMOVE_DRIVER = "remove driver {before}"
    HOLD_DRIVER = "hold the whole driver"
    PIN_DRIVER = "pin the driver to {version} with {target}"
    ENABLE_MODULE_STREAM = "enable module stream {target}"
    REMOVE_REMAINS = "remove {remains}"
    LOAD_DRIVER = "load driver {version}"
    RELOAD_DRIVER = "reload driver {version}"
    UNLOAD_DRIVER = "unload driver {version}"
    BUILD_MODULE = "build the module of driver {version} for kernel {target}"
    CREATE_SIGNING_KEY = "create the key {target} that kernel modules are signed with"
    BLOCK_KERNEL_MODULE = "block {target}"
    LOAD_KERNEL_MODULES = "load {modules}"
    RENEW_INITRAMFS = "rebuild the initramfs"
    INSTALL_KERNEL = "install kernel {target}"
    BOOT_KERNEL = "boot kernel {target} by default"
    BOOT_KERNEL_ONCE = "boot kernel {target} the next time"

    # The container toolkit and the runtimes.
    INSTALL_TOOLKIT = "install {target} {version}"
    UNINSTALL_TOOLKIT = "uninstall {packages}"
    ACCEPT_DEVICES = "accept devices by {method} only"
    NAME_LOW_LEVEL_RUNTIME = "have nvidia-container-runtime call {runtime}"
    GENERATE_CDI_SPECIFICATION = "generate the CDI specification"
    MOVE_ASIDE = "move {target} aside"
    CONFIGURE_RUNTIME = "configure the runtime {runtime} of {target}"
    CORRECT_RUNTIME = "correct the runtime {runtime} of {target}"
    CORRECT_CGROUPS = "correct the cgroups of the runtime {runtime} of {target}"
    SET_DEFAULT_RUNTIME = "make {runtime} the default runtime of {target}"
    ENABLE_CDI = "enable CDI of {target}"

    # DCGM.
    INSTALL_DCGM = "install DCGM {version} for CUDA {cuda}"

    # MIG.
    PARTITION_GPU = "partition {gpu}"
    ENABLE_MIG = "enable MIG {gpu}"
    DISABLE_MIG = "disable MIG {gpu}"
    CANCEL_MIG_CHANGE = "cancel the pending MIG mode change {gpu}"
    RESET_GPU = "reset {gpu}"
    DESTROY_GPU_INSTANCE = "destroy GPU instance {gpu}: {profile} at {start}:{size} (id {id})"
    CREATE_GPU_INSTANCE = "create GPU instance {gpu}: {profile} at {start}:{size}"
    DESTROY_COMPUTE_INSTANCE = "destroy compute instance {gpu}: {profile} at {start}:{size} (id {id}): {name}"
    CREATE_COMPUTE_INSTANCE = "create compute instance {gpu}: {profile} at {start}:{size} (id {id}): {name}"
    RECORD_LAYOUT = "record layout {target}"
    FINISH_MIG_CHANGE = "finish the earlier change of MIG"

    # Sharing.
    STOP_MPS_DAEMON = "stop MPS daemon {target}"
    START_MPS_DAEMON = "start MPS daemon {target}"
    ENABLE_MPS_DAEMON = "enable MPS daemon {target}"
    SET_MPS_DEFAULTS = "set MPS defaults {target}"
    END_IDLE_MPS_SERVER = "end idle MPS server {pid} of {target}"
    UNMOUNT_SHARED_MEMORY = "unmount shared memory {target}"
    SET_COMPUTE_MODE = "set compute mode {gpu}"
    SET_TIME_SLICE = "set time slice all GPUs"
    RECORD_SHARING = "record the sharing of this host"

    # Settings.
    SET_POWER_LIMIT = "set the power limit {gpu} to {watts} W"
    LOCK_CLOCKS = "lock the {clock} clock {gpu} to {range}"
    UNLOCK_CLOCKS = "unlock the {clock} clock {gpu}"
    SET_APPLICATION_CLOCKS = "set the application clocks {gpu} to {frequencies}"
    RESET_APPLICATION_CLOCKS = "set the application clocks {gpu} back to the board's own"
    SET_ECC = "switch ECC {ecc} {gpu}"
    RECORD_SETTINGS = "record the settings of the GPUs in {target}"

    # Nodes, and repairs.
    MIGRATE_NODE = "migrate the node: {target}"
    REPAIR_HOST = "repair the host: {action}"
    FINISH_REPAIR = "prove the host and return it to service"

    @property
    def key(self) -> str:
        return self.name.lower()


def sentence(kind: Kind, target: str, data: Mapping[str, Any], why: str = "", disturbs: Sequence[str] = ()) -> str:
    """Return a step in words; without C(why) and C(disturbs) only what it does."""
    words = {name: ", ".join(map(_name, value)) if isinstance(value, list) else value for name, value in data.items()}
    release = data.get("version") or f"branch {data.get('branch')}"
    text = kind.value.format(**{**words, "target": target, "gpu": gpu_of(data), "release": release})
    if why:
        text += f" ({why})"
    return f"{text}; disturbs {', '.join(disturbs)}" if disturbs else text


def gpu_title(index: Any, address: str | None) -> str:
    """Return how people call a GPU, such as C(GPU 0 (0000:18:00.0))."""
    return f"GPU {index} ({address})" if address else f"GPU {index}"


def gpu_of(data: Mapping[str, Any]) -> str:
    """Return how people call the GPU that a step is about. C(data): of the step."""
    return gpu_title(data.get("index"), data.get("pci_address"))


def _name(item: Any) -> str:
    """Return the name of a package that is given with its version, or the item itself."""
    return str(item[0]) if isinstance(item, list) else str(item)
