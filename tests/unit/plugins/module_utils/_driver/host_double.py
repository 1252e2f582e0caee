# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host in memory, with its package manager and its systemd, and the facts of one that has a driver."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import Repository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.running import NOUVEAU_FILE, PERSISTENCE_DROP_IN
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host, Remains
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import ImexFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import IMEX_NODES_FILE, IMEX_UNIT
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import NotInEffect
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import card
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

OLD, NEW = "580.178.04", "580.190.01"


URL = "https://mirror.invalid/r"


#: A packet of a public key, as short as one can be.
KEY = b"\xc6\x06\x04\x00\x00\x00\x00\x01"


NAMES = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libcuda1")


UNIT = "# /lib/systemd/system/nvidia-persistenced.service\n[Service]\nExecStart=/usr/bin/nvidia-persistenced\n[Install]\nWantedBy=x\n"


class Manager(PackageManager):
    """A package manager whose only rule is that every driver package follows the version that is asked for."""

    def __init__(self, packages=(), holds=(), urls=(URL,)):
        super().__init__(packages, holds, urls, [Package(name, f"{v}-1", URL) for v in (NEW, OLD) for name in NAMES])

    def after(self, transaction):
        after = super().after(transaction)
        if {package.name for package in transaction.install} & set(NAMES):
            after.setdefault("libcuda1", transaction.install[0].version)
        return {name: version for name, version in after.items() if name not in transaction.remove}


class System:
    """A host in memory: what is on disk follows the packages, what is loaded follows the module commands."""

    def __init__(self, manager=None, loaded=None, **host):
        self.manager = manager or Manager()
        self.base = Host(
            DISTRIBUTIONS["debian", "12"],
            "x86_64",
            "6.1.0-50-amd64",
            (card("0", "0x2330", "hopper"),),
            headers=True,
            **host,
        )
        self.loaded = loaded
        self.record = None
        self.not_offered = None
        self.pinned = None
        self.active = set()
        self.enabled = set()
        self.files = {}
        self.user_list = ()
        self.builds = True
        self.known_builds = ()
        self.build_error = ""
        self.blocked = True
        self.unit = UNIT
        self.load_error = self.unload_error = ""
        self.smi = 0
        self.masked = False
        self.log = []

    def read(self):
        packages = self.manager.installed()
        version = packages.get("nvidia-kernel-open-dkms", "").partition("-")[0] or None
        return replace(
            self.base,
            packages=packages,
            holds=self.manager.holds(),
            interrupted=self.manager.interrupted(),
            loaded=self.loaded,
            on_disk=version if self.builds else None,
            builds=self.known_builds,
            library=packages.get("libcuda1", "").partition("-")[0] or None,
            flavour="open" if version else None,
            source="nvidia" if packages else "runfile" if self.loaded else None,
            persistence_installed=True,
            persistence_active="nvidia-persistenced.service" in self.active,
            fabric_active="nvidia-fabricmanager.service" in self.active,
            imex=ImexFacts(
                active=IMEX_UNIT in self.active,
                enabled=IMEX_UNIT in self.enabled,
                masked=self.masked,
                nodes=tuple(self.files[IMEX_NODES_FILE].split()) if self.files.get(IMEX_NODES_FILE) else None,
            ),
        )

    def repository_url(self, _host, _desired):
        return URL

    def repository(self, _host, _desired):
        return Repository("gpufleet-nvidia-driver", URL, KEY)

    def write_not_offered(self, kernel, names):
        self.not_offered = (kernel, names)

    def write_record(self, record):
        self.record = record

    def preferences(self):
        return self.pinned

    def over(self, manager):
        other = copy(self)
        other.manager = manager
        return other

    def write_preferences(self, text):
        self.pinned = text
        return True

    def remains(self, _desired):
        return Remains(self.pinned is not None, bool(self.manager.urls))

    def has_file(self, path):
        return self.files.get(path) is not None

    def users(self):
        return self.user_list

    def modules(self):
        return ("nvidia_drm", "nvidia_uvm", "nvidia") if self.loaded else ()

    def reference_counts(self, names):
        return dict.fromkeys(names, 0)

    def load(self, name):
        self.log.append(f"load {name}")
        if name == "nvidia" and not self.load_error:
            self.loaded = self.read().on_disk
        if not self.load_error:
            lacking = tuple(one for one in self.base.lacking_modules if one != name)
            self.base = replace(self.base, lacking_modules=lacking)
        return self.load_error

    def unload(self, name):
        self.log.append(f"unload {name}")
        if name == "nvidia" and self.unload_error:
            return self.unload_error
        if name == "nvidia":
            self.loaded = None
        return ""

    def build_module(self, step):
        self.log.append(f"build {step.data['name']} {step.data['version']} for {step.target}")
        if self.build_error:
            raise NotInEffect(f"Failed to {step.what}: {self.build_error}")
        self.builds = True

    def module_exists(self, name, _kernel):
        return name == "ipmi_msghandler"

    def is_blocked(self, _name):
        return self.blocked or self.has_file(NOUVEAU_FILE)

    def renew_initramfs(self, command):
        self.log.append(" ".join(command))
        return True

    def active_units(self, names):
        return tuple(name for name in names if name in self.active)

    def unit_exists(self, name):
        return name == "nvidia-persistenced.service"

    def unit_enabled(self, name):
        return name in self.enabled

    def unit_wanted_at_boot(self, name):
        return name in self.enabled

    def unit_text(self, _name):
        own = self.files.get(PERSISTENCE_DROP_IN)
        return self.unit + (f"# {PERSISTENCE_DROP_IN}\n{own}" if own else "")

    def start(self, name):
        self.log.append(f"start {name}")
        self.active.add(name)

    restart = start

    def stop(self, name):
        self.log.append(f"stop {name}")
        self.active.discard(name)

    def enable(self, name):
        self.enabled.add(name)

    add_wants = enable

    def mask(self, name):
        self.log.append(f"mask {name}")
        self.active.discard(name)
        self.masked = True

    def unmask(self, name):
        self.log.append(f"unmask {name}")
        self.masked = False

    def write_file(self, path, text):
        changed = self.files.get(path) != text
        self.files[path] = text
        return changed

    def reload_unit(self, name):
        self.log.append(f"reload {name}")

    def nvidia_smi(self):
        return self.smi


def full(version):
    return dict.fromkeys(NAMES, f"{version}-1")


def ready(version=OLD):
    system = System(Manager(full(version), NAMES), loaded=version)
    system.active.add("nvidia-persistenced.service")
    system.enabled.add("nvidia-persistenced.service")
    return system


FACTS = {
    "schema": 1,
    "host": {
        "kernel": "6.1.0-50-amd64",
        "architecture": "x86_64",
        "distribution": {"id": "debian", "version": "12"},
        "kernel_headers": True,
    },
    "pci": [{"address": "0", "device_id": "0x2330", "kind": "gpu", "architecture": "hopper", "board": "h100-80gb-sxm"}],
    "driver": {
        "loaded_version": OLD,
        "on_disk_version": OLD,
        "library_version": OLD,
        "flavour": "open",
        "source": "nvidia",
        "packages": full(OLD),
        "holds": list(NAMES),
        "persistence_daemon": {"installed": True, "active": True},
    },
}


def facts(**driver):
    return {**FACTS, "driver": {**FACTS["driver"], **driver}}


HELD = {"pid": 4711, "command": "python3", "devices": ["/dev/nvidia0"], "container_id": None}


DAEMON = {**HELD, "pid": 12, "command": "nv-hostengine"}
