# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands around the GPUs: the NVSwitch fabric, the container toolkit, the kubelet, what we left on the host."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from .._adapters.files import HostFiles, NotUtf8
from .._adapters.host_reader import HostReader
from .._adapters.installed_packages import InstalledPackage, is_dcgm, is_toolkit
from .._adapters.nvml_library import HOST_PROGRAM
from .._adapters.pci import switch_ports
from .._boards.board import NVLINK5_MODULES, SWITCHES_IN_HOST, SWITCHES_IN_RACK
from .._boards.lookup import MACHINE_DRIVERS, find_board
from .._formats.documents import read_json
from .._formats.driver_versions import driver_version_in
from .._formats.host_names import (
    BOOT_UNITS,
    DCGM_UNIT,
    HEAL_RECORD,
    IMEX_MASK,
    IMEX_NODES_FILE,
    IMEX_WANTS,
    REPARTITION_RECORD,
    UPGRADE_RECORD,
    wants_link,
)
from .._formats.toml_read import TomlError
from .._health.metric_units import METRICS_SERVICE, METRICS_TIMER, TIMER_LINK, directory_of
from .._mig.journal_lines import JOURNAL_PATH, is_over, lines_of
from .._migration import FORMER
from .._printable import LONGEST_OUTPUT
from .._runtime.containers import started
from .._runtime.desired import unreadable
from .._runtime.state import READERS, RuntimeConfiguration, leftovers_of
from .._runtimes import ALL_KUBELETS, DISTRIBUTIONS, RUNTIMES, UNCONFIGURED
from .._sharing.mps_instances import UNIT as MPS_UNIT
from .._toolkit import config as toolkit_config
from .._toolkit.config import read_hooks
from .._versions import numbers, product_version, version_in
from .host import Services

RECORDED = {
    "mig": "/etc/gpufleet/mig.json",
    "sharing": "/etc/gpufleet/sharing.json",
    "settings": "/etc/gpufleet/settings.json",
}
#: There as long as the acceptance of a host that C(site) changed is owed, as the playbook writes it.
ACCEPTANCE_RECORD = "/var/lib/gpufleet/acceptance.json"
#: The layout that the last repartition replaced, as the role writes it.
FORMER_LAYOUT = "/var/lib/gpufleet/former-layout.json"
#: Which saved plan was begun on the host last, as the role C(gpu_facts) writes it.
PLAN_RECORD = "/var/lib/gpufleet/plan.json"
#: What the driver was before its last change, as the module C(driver) writes it.
DRIVER_RECORD = "/var/lib/gpufleet/driver-previous.json"
_NVSWITCH_DEVICES = "/proc/driver/nvidia-nvswitch/devices"
#: The flag of a processor that a hypervisor shows to its virtual machines (Linux, X86_FEATURE_HYPERVISOR).
_HYPERVISOR = re.compile(r"^flags\s*:.*\bhypervisor\b", re.MULTILINE)
_FABRIC_VERSION = re.compile(r"version is\s*:\s*(\S+)")
#: Lines of a file that are read: more hosts than any rack has.
_NODES = 1024
_PROGRAM_VERSION = "/usr/local/lib/gpufleet/VERSION"
_UNITS = "/etc/systemd/system"


def read_fabric(
    source: HostReader,
    pci: Sequence[Mapping[str, Any]] | None,
    services: Services,
    state: str | None,
    packages: Sequence[InstalledPackage] | None = (),
) -> dict[str, Any]:
    """Return the part C(fabric): NVSwitches and the fabric manager, or what a host of a rack has of IMEX; their versions must equal the driver's.
    C(state): of the GPUs on the fabric, from NVML; None where there is none.
    """
    devices = source.files.names(_NVSWITCH_DEVICES)
    switches = [device for device in pci or () if device["kind"] == "nvswitch"]
    on_bus = sum(1 for device in switches if device["kernel_driver"] not in MACHINE_DRIVERS)
    program = source.files.find_program("nv-fabricmanager")
    version = None
    if program is not None:
        answer = source.output("fabric.manager.version", ("nv-fabricmanager", "--version"))
        match = _FABRIC_VERSION.search(answer or "")
        version = match.group(1) if match else None
    found: dict[str, Any] = {
        # Before the driver is loaded only the bus shows them (host.md, section 6: class 0680, not verified).
        "nvswitches": max(len(devices), on_bus),
        "manager": {
            "installed": program is not None,
            "active": services.active("nvidia-fabricmanager"),
            **services.masked("nvidia-fabricmanager"),
            "version": version,
        },
        "state": state,
    }
    boards = [find_board(device["device_id"]) for device in pci or () if device["kind"] == "gpu"]
    if any(board and board.nvlink5_switches == SWITCHES_IN_HOST for board in boards):
        found["lacking_modules"] = [name for name in NVLINK5_MODULES if not source.files.exists(f"/sys/module/{name}")]
        found["switch_ports"] = switch_ports(source.files, MACHINE_DRIVERS)
        found["virtual_machine"] = _HYPERVISOR.search(source.files.read("/proc/cpuinfo") or "") is not None
    if any(board and board.nvlink5_switches == SWITCHES_IN_RACK for board in boards):
        found["imex"] = _read_imex(source, services, packages)
    return found


def _read_imex(source: HostReader, services: Services, packages: Sequence[InstalledPackage] | None) -> dict[str, Any]:
    """Return what the host has of IMEX; C(version) is that of its package, C(nodes) the lines of its file."""
    text = source.files.read(IMEX_NODES_FILE)
    versions = [driver_version_in(one.version) for one in packages or () if one.name.startswith("nvidia-imex")]
    return {
        "version": next(iter(versions), None),
        "active": services.active("nvidia-imex"),
        "enabled": source.files.link_name(IMEX_WANTS) is not None,
        "masked": source.files.link_name(IMEX_MASK) == "null",
        "nodes": None if text is None else [line.strip()[:256] for line in text.splitlines() if line.strip()][:_NODES],
    }


def read_toolkit(
    source: HostReader, packages: Sequence[InstalledPackage] | None, locks: Sequence[str] | None
) -> dict[str, Any]:
    """Return the part C(toolkit). C(locks): what the package manager holds, as it writes it: names, or dnf's patterns with versions."""
    installed = {package.name: package.version for package in packages or () if is_toolkit(package.name)}
    present = source.files.find_program("nvidia-ctk") is not None
    names = ("nvidia-container-toolkit", "nvidia-container-toolkit-base")
    version = next(filter(None, (product_version(installed.get(name, "")) for name in names)), None)
    if version is None and present:
        answer = source.output("toolkit.version", ("nvidia-ctk", "--version"))
        version = version_in(answer) if answer else None
    if version is None and packages is None:
        source.note("toolkit.packages", "the installed packages are not known")
    envvar = volume_mounts = runtimes = None
    settings: dict[str, str] = {}
    if present:
        try:
            text = source.files.text(toolkit_config.PATH)
            envvar = toolkit_config.accepts(text, toolkit_config.ACCEPT_ENVVAR)
            volume_mounts = toolkit_config.accepts(text, toolkit_config.ACCEPT_VOLUME_MOUNTS)
            runtimes = toolkit_config.low_level_runtimes(text)
            settings = toolkit_config.decisive(text)
        except (TomlError, NotUtf8) as error:
            source.note("toolkit.accept_envvar_unprivileged", f"{toolkit_config.PATH}: {error}")
            settings = {toolkit_config.UNREADABLE: str(error)[:256]}
    hooks = read_hooks(source.files)
    return {
        "version": version,
        "packages": installed if packages is not None else None,
        "holds": None if packages is None or locks is None else held_names(installed, locks),
        "accept_envvar_unprivileged": envvar,
        "accept_volume_mounts": volume_mounts,
        "low_level_runtimes": runtimes,
        **({"settings": settings} if settings else {}),
        **({"hooks": hooks} if hooks else {}),
    }


def read_dcgm(
    source: HostReader, packages: Sequence[InstalledPackage] | None, locks: Sequence[str] | None, services: Services
) -> dict[str, Any]:
    """Return the part C(dcgm): its packages, its program, and its host engine."""
    installed = {package.name: package.version for package in packages or () if is_dcgm(package.name)}
    return {
        "packages": installed if packages is not None else None,
        "holds": None if packages is None or locks is None else held_names(installed, locks),
        "dcgmi": source.files.find_program("dcgmi"),
        "active": services.active("nvidia-dcgm"),
        "enabled": source.files.exists(wants_link(DCGM_UNIT)),
    }


def held_names(packages: Mapping[str, str], locks: Sequence[str]) -> list[str]:
    """Return which of C(packages) are held at the version that they have, or at all where a lock names no version."""
    found = []
    for name, version in packages.items():
        # C(name-0:1.20.0-1.*) of dnf 4, which takes a lock without the epoch too; apt, zypper and dnf 5 name only the package.
        spelled = [f"{name}-{version if ':' in version else f'0:{version}'}", f"{name}-{version.rpartition(':')[2]}"]
        if any(
            lock == name or any(fnmatchcase(full, lock) or fnmatchcase(f"{full}.any", lock) for full in spelled)
            for lock in locks
        ):
            found.append(name)
    return sorted(found)


def read_kubelet(source: HostReader, services: Services) -> dict[str, Any]:
    """Return the part C(kubelet). k3s and RKE2 bring their own, which runs when they do."""
    programs = ("kubelet", *(runtime.program for runtime in DISTRIBUTIONS.values()), *UNCONFIGURED)
    return {
        "installed": any(source.files.find_program(name) for name in programs),
        "active": services.active(*(unit.removesuffix(".service") for unit in ALL_KUBELETS)),
    }


def read_recorded(source: HostReader) -> dict[str, Any]:
    """Return the part C(recorded): what the host program restores at boot; None where nothing is recorded.

    C(heal) is what was tried to repair the host, C(driver_previous) what the driver was before its last change. C(mig_unfinished) says whether the
    last change of MIG was cut off before its end,
    C(upgrade_state) and C(repartition_unfinished) how far an upgrade to C(upgrade_to) came, and whether a repartition was cut off, C(rolled_out) which
    driver an upgrade or a rollback left, in place of which, by whom and when, and the C(former_layout) that a repartition replaced. C(acceptance_owed) says
    whether C(site) changed the host and C(dcgmi diag) has not accepted it since, C(plan_begun) or C(plan_applied) which saved plan was
    begun last, where one was, and whether its end was reached.
    """
    records = {**RECORDED, "heal": HEAL_RECORD, "driver_previous": DRIVER_RECORD}
    plan = _mapping(source, PLAN_RECORD, "plan_begun") or {}
    return {
        **{name: _mapping(source, path, name) for name, path in records.items()},
        "mig_unfinished": _mig_unfinished(source),
        **_of_rollouts(source),
        "acceptance_owed": source.files.exists(ACCEPTANCE_RECORD),
        "repartition_unfinished": source.files.exists(REPARTITION_RECORD),
        **({"plan_applied" if plan.get("applied") else "plan_begun": str(plan["plan"])} if plan.get("plan") else {}),
    }


def _mig_unfinished(source: HostReader) -> bool:
    text = source.files.read(JOURNAL_PATH)
    if text is None or is_over(lines_of(text)):
        return False
    # A run that was cut off is rare, and what reads its layouts takes longer to import than all that is recorded to read.
    from .._mig import journal

    last = journal.parse(text)
    return last is not None and last.open


def _of_rollouts(source: HostReader) -> dict[str, Any]:
    record = _mapping(source, UPGRADE_RECORD, "upgrade_state") or {}
    layout = _mapping(source, FORMER_LAYOUT, "rolled_out")
    rolled_out: dict[str, Any] = {name: record.get(name) or "" for name in ("driver", "former", "operator", "since")}
    if layout:
        rolled_out["former_layout"] = layout
    return {
        **{f"upgrade_{name}": str(record.get(name) or "") or None for name in ("state", "to")},
        "rolled_out": rolled_out if rolled_out["driver"] or layout else None,
    }


def _mapping(source: HostReader, path: str, name: str) -> dict[str, Any] | None:
    """Return a record; None where there is none that can be read."""
    text = source.files.read(path)
    if text is None:
        if source.files.exists(path):
            source.note_denied(f"recorded.{name}", f"{path} cannot be read")
        return None
    try:
        found = read_json(text)
        if isinstance(found, dict):
            return found
        why = "a JSON object"
    except ValueError as error:
        why = f"JSON: {error}"
    source.note(f"recorded.{name}", f"{path} is not {why}")
    return None


def read_host_program(source: HostReader, services: Services, python: str = sys.executable) -> dict[str, Any]:
    """Return the part C(host_program): the program, and what systemd starts of it at boot. C(metrics_directory) is where the host writes metrics
    every minute; None where no service writes any. C(units) is None where systemd does not run. C(python): the interpreter that reads the host, which
    is the one that its units have to call.
    """
    data = source.files.read_bytes(HOST_PROGRAM)
    return {
        "version": source.files.read(_PROGRAM_VERSION),
        "sha256": hashlib.sha256(data).hexdigest() if data is not None else None,
        "python": python or None,
        "metrics_directory": directory_of(source.files.read(f"{_UNITS}/{METRICS_SERVICE}")),
        "metrics_active": services.active(METRICS_TIMER),
        "units": _units_at_boot(source.files) if source.files.exists("/run/systemd/system") else None,
    }


def _units_at_boot(files: HostFiles) -> dict[str, dict[str, Any]]:
    """Return the units of the collection that have a file, or a link by which systemd starts them at boot."""
    pattern = MPS_UNIT.replace("@", "@*")
    daemons = {
        path.rpartition("/")[2] for path in (*files.glob(f"{_UNITS}/{pattern}"), *files.glob(wants_link(pattern)))
    }
    links = {METRICS_TIMER: TIMER_LINK}
    found = {}
    for name in (*BOOT_UNITS, METRICS_SERVICE, METRICS_TIMER, *sorted(daemons)):
        path = f"{_UNITS}/{name}"
        data, masked = files.read_bytes(path), files.link_name(path) == "null"
        enabled = files.link_name(links.get(name) or wants_link(name)) is not None
        if data is not None or masked or enabled:
            found[name] = {
                "sha256": None if data is None or masked else hashlib.sha256(data).hexdigest(),
                "state": "masked" if masked else "enabled" if enabled else "disabled",
            }
    return found


def read_runtimes(source: HostReader, services: Services, containers: bool = False) -> dict[str, Any]:
    """Return the part C(runtimes) of the facts: the installed ones by name. C(containers): whether to read, which takes long, those of a toolkit."""
    found: dict[str, dict[str, Any]] = {
        name: {"active": services.active(*row.units), "own": source.files.exists(row.socket)}
        for name, row in UNCONFIGURED.items()
        if source.files.find_program(name)
    }
    for name, runtime in RUNTIMES.items():
        if source.files.find_program(runtime.program) is None:
            continue
        answer = source.output(f"runtimes.{name}.version", (runtime.program, "--version"))
        version = version_in(answer) if answer else None
        fault = None
        try:
            configuration = READERS[name](source.files, numbers(version or ""))
            fault = configuration.fault
        except ValueError as error:
            source.note(f"runtimes.{name}.nvidia", f"the configuration cannot be read: {error}")
            configuration = None
            # CRI-O's own program reads its files.
            fault = unreadable(name, error) if name != "crio" or isinstance(error, NotUtf8) else None
        found[name] = {
            "version": version,
            "active": services.active(*runtime.units),
            "config_path": configuration.path if configuration else None,
            "config_version": configuration.version if configuration else None,
            **{part: getattr(configuration, part, None) for part in ("nvidia", "binary", "default_runtime", "cdi")},
        }
        leftovers = leftovers_of(name, source.files, found[name]["active"] is False)
        if leftovers:
            found[name]["leftovers"] = leftovers
        if containers or FORMER in leftovers:
            found[name]["containers"] = started(source.files, name)
        if fault:
            found[name]["fault"] = asdict(fault)
        if configuration:
            found[name].update(_particulars(source.files, configuration))
    return found


def _particulars(files: HostFiles, found: RuntimeConfiguration) -> dict[str, Any]:
    """Return what the configuration of some runtimes has, and nothing for what it has not."""
    cgroups = {"nvidia": found.cgroup_driver, "runc": found.other_cgroup_driver}
    values = {
        "cgroup_drivers": cgroups if found.cgroup_driver else None,
        "low_level_runtime": found.low_level_runtime,
        "sandboxers": dict(found.sandboxers),
        "cdi_folders": list(found.cdi_folders),
        "absent": [path for path in found.programs if not files.exists(path)],
    }
    return {
        **({} if found.has_type else {"has_type": False}),
        **({} if found.monitors is None else {"monitors": dict(found.monitors)}),
        **{name: value for name, value in values.items() if value},
    }


MIG_PARTED_SERVICE = "nvidia-mig-manager.service"
MIG_PARTED_FOLDER = "/etc/nvidia-mig-manager"
_DEFAULT = f"{MIG_PARTED_FOLDER}/config.yaml"
_DROP_INS = f"/etc/systemd/system/{MIG_PARTED_SERVICE}.d/*.conf"
_SETTING = re.compile(r"MIG_PARTED_(SELECTED_CONFIG|CONFIG_FILE)=([^\s\"']+)")


def read_mig_parted(source: HostReader) -> dict[str, Any] | None:
    """Return the part C(mig_parted): what nvidia-mig-parted's service is set to restore at boot; None where it has no such file. Source:
    deployments/systemd of NVIDIA/mig-parted (install.sh, service.sh, utils.sh): the service reads C(config.yaml), or the file that
    C(MIG_PARTED_CONFIG_FILE) names, and applies the configuration that C(MIG_PARTED_SELECTED_CONFIG) names.
    """
    files = source.files
    settings: dict[str, str] = {}
    # systemd takes drop-ins in the order of their names; a later setting wins.
    for path in files.glob(_DROP_INS):
        for line in (files.read(path) or "").splitlines():
            if not line.lstrip().startswith("#"):
                settings.update({match.group(1): match.group(2) for match in _SETTING.finditer(line)})
    path = settings.get("CONFIG_FILE", _DEFAULT)
    config = files.read(path)
    if config is None and not settings:
        return None
    if config is not None and len(config) > LONGEST_OUTPUT:
        source.note("mig_parted.config", f"{path} is longer than {LONGEST_OUTPUT} characters")
        config = None
    return {
        "config_path": path,
        "config": config,
        "selected": settings.get("SELECTED_CONFIG"),
        "enabled": files.exists(f"/etc/systemd/system/multi-user.target.wants/{MIG_PARTED_SERVICE}"),
    }
