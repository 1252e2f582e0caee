# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage from beginning to end, on a host in memory."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages import Change, Package, PackageError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import Repository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.fabric import MODULES_FILE
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.host import Gpu, Host, Signing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.previous import Remains
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.reload import User, plan_reload, still_used
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.services import (
    NOUVEAU_FILE,
    PERSISTENCE_DROP_IN,
    has_install_section,
    persistence_drop_in,
    preferences,
    without_drop_in,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage_run import Failed, Stopped, run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import NODES_FILE, Imex
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.unit_names import (
    IMEX_UNIT,
    PERSISTENCE_UNIT,
    wants_link,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind

OLD, NEW = "580.178.04", "580.190.01"
URL = "https://mirror.invalid/r"
#: A packet of a public key, as short as one can be.
KEY = b"\xc6\x06\x04\x00\x00\x00\x00\x01"
NAMES = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libcuda1")
UNIT = "# /lib/systemd/system/nvidia-persistenced.service\n[Service]\nExecStart=/usr/bin/nvidia-persistenced\n[Install]\nWantedBy=x\n"


class Manager:
    """A package manager in memory, whose only rule is that every driver package follows the version that is asked for."""

    name = "apt"

    def __init__(self, packages=None, holds=(), urls=(URL,)):
        self.packages = dict(packages or {})
        self.held = set(holds)
        self.urls = list(urls)
        self.half = ()
        self.log = []
        self.error = None
        self.trial_works = True

    def installed(self):
        return dict(self.packages)

    def interrupted(self):
        return self.half

    def repair(self):
        self.log.append("repair")
        self.half = ()

    def offered(self, names):
        wanted = set(names)
        return tuple(Package(name, f"{v}-1", URL) for v in (NEW, OLD) for name in NAMES if name in wanted)

    def simulate(self, transaction):
        if self.error:
            raise PackageError(self.error)
        after = self._after(transaction)
        changes = [
            Change("install", n, self.packages.get(n, ""), v) for n, v in after.items() if self.packages.get(n) != v
        ]
        return (*changes, *(Change("remove", name, self.packages[name]) for name in self.packages if name not in after))

    def _after(self, transaction):
        after = {**self.packages, **{package.name: package.version for package in transaction.install}}
        if {package.name for package in transaction.install} & set(NAMES):
            after.setdefault("libcuda1", transaction.install[0].version)
        return {name: version for name, version in after.items() if name not in transaction.remove}

    def apply(self, transaction):
        self.log.append("apply")
        self.packages = self._after(transaction)

    def refresh(self):
        self.log.append("refresh")

    def holds(self):
        return tuple(sorted(self.held))

    def hold(self, packages):
        self.held |= {package.name for package in packages}

    def unhold(self, names):
        self.held -= set(names)

    def has_credentials(self, _identifier, _url, credentials):
        return credentials is None

    def repositories(self):
        return tuple(self.urls)

    def add_repository(self, repository):
        self.urls.append(repository.url)
        self.log.append("add")
        return True

    @contextmanager
    def trial(self, repository):
        if self.trial_works:
            yield Manager(self.packages, self.held, [*self.urls, repository.url])
        else:
            yield None

    def remove_repository(self, _identifier):
        self.urls.clear()
        self.log.append("remove repository")
        return True

    def streams(self):
        return {}


class System:
    """A host in memory: what is on disk follows the packages, what is loaded follows the module commands."""

    def __init__(self, manager=None, loaded=None, **host):
        self.manager = manager or Manager()
        self.base = Host(
            DISTRIBUTIONS["debian", "12"],
            "x86_64",
            "6.1.0-50-amd64",
            (Gpu("0", "0x2330", "hopper"),),
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
            library=packages.get("libcuda1", "").partition("-")[0] or None,
            flavour="open" if version else None,
            source="nvidia" if packages else None,
            persistence_installed=True,
            persistence_active="nvidia-persistenced.service" in self.active,
            fabric_active="nvidia-fabricmanager.service" in self.active,
            imex=Imex(
                IMEX_UNIT in self.active,
                IMEX_UNIT in self.enabled,
                self.masked,
                tuple(self.files[NODES_FILE].split()) if self.files.get(NODES_FILE) else None,
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
        return self.load_error

    def unload(self, name):
        self.log.append(f"unload {name}")
        if name == "nvidia" and self.unload_error:
            return self.unload_error
        if name == "nvidia":
            self.loaded = None
        return ""

    def module_exists(self, name, _kernel):
        return name == "ipmi_msghandler"

    def is_blocked(self, _name):
        return self.blocked

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


def test_a_bare_host_ends_with_a_loaded_held_and_pinned_driver():
    system = System()
    report = run_stage(system, DesiredDriver(), check=False)
    assert report.changed
    assert report.version == system.loaded == NEW
    assert set(NAMES) <= system.manager.held
    assert system.pinned == preferences(NEW)
    assert system.active == system.enabled == {"nvidia-persistenced.service"}
    assert system.log.index("load ipmi_msghandler") < system.log.index("load nvidia")
    assert not run_stage(system, DesiredDriver(), check=False).changed
    assert report.as_result()["diff"][1]["before"] == ""


def test_check_mode_touches_nothing_and_predicts_the_reload():
    system = ready()
    before = dict(system.manager.packages)
    report = run_stage(system, DesiredDriver(version=NEW), check=True)
    assert report.changed
    assert report.after["libcuda1"] == f"{NEW}-1"
    assert f"reload driver {NEW}" in [step.what for step in report.steps]
    assert (system.manager.packages, system.manager.log, system.log, system.record) == (before, [], [], None)


def test_what_the_repositories_lack_is_recorded_so_that_the_next_plan_knows():
    system = ready()
    system.base = replace(system.base, kernel_packages=())
    assert not run_stage(system, DesiredDriver(), check=True).changed
    assert system.not_offered is None
    report = run_stage(system, DesiredDriver(), check=False)
    assert not report.changed
    assert "do not offer linux-headers-amd64" in " ".join(report.warnings)
    assert system.not_offered == ("6.1.0-50-amd64", ("linux-headers-amd64",))
    system.base = replace(system.base, kernel_packages=("linux-headers-amd64",))
    run_stage(system, DesiredDriver(), check=False)
    assert system.not_offered == ("6.1.0-50-amd64", ())


def secure(system):
    """Return a fresh host with Secure Boot, whose DKMS makes a key."""
    signing = Signing("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub", missing=("dkms",))
    system.base = replace(system.base, secure_boot=True, signing=signing)

    def create(host):
        assert "dkms" in system.manager.packages
        system.log.append(f"create {host.signing.certificate}")
        system.base = replace(host, signing=replace(signing, exists=True, enrolled=False, missing=()))

    system.create_signing_key = create
    return system


def test_with_secure_boot_the_run_makes_a_key_and_stops_until_a_person_has_enrolled_it():
    system = secure(System())
    report = run_stage(system, DesiredDriver(), check=True)
    steps = ["install_prerequisites", "create_signing_key"]
    assert [step.kind.key for step in report.steps] == steps
    assert "would stop after these steps. Secure Boot: " in report.warnings[-1]
    assert (system.manager.packages, system.log) == ({}, [])
    with pytest.raises(Stopped, match=r"mokutil --import /var/lib/dkms/mok\.pub") as stopped:
        run_stage(system, DesiredDriver(), check=False)
    assert [step["kind"] for step in stopped.value.steps] == steps
    assert list(system.manager.packages) == ["dkms"]
    assert system.log == ["create /var/lib/dkms/mok.pub"]
    with pytest.raises(Refused, match="is not enrolled"):
        run_stage(system, DesiredDriver(), check=False)
    system.base = replace(system.base, signing=replace(system.base.signing, enrolled=True))
    assert run_stage(system, DesiredDriver(), check=False).version == system.loaded == NEW


def test_a_repository_is_added_first_and_taken_away_again_when_it_lacks_the_version():
    system = System(Manager(urls=()))
    with pytest.raises(Refused, match="nearest"):
        run_stage(system, DesiredDriver(version="580.999.01"), check=False)
    assert system.manager.log == ["add", "refresh", "remove repository"]


def test_on_a_bare_host_check_mode_tries_the_repository_and_shows_everything():
    system = System(Manager(urls=()))
    report = run_stage(system, DesiredDriver(), check=True)
    assert [step.kind.key for step in report.steps][:4] == [
        "add_repository",
        "pin_driver",
        "install_driver",
        "hold_driver",
    ]
    assert report.after["libcuda1"] == f"{NEW}-1"
    assert not report.warnings
    assert (system.manager.urls, system.manager.packages, system.manager.log) == ([], {}, [])
    steps, packages, repository, pin = report.as_result()["diff"]
    assert f"install driver {NEW}" in steps["after"]
    assert f'"libcuda1": "{NEW}-1"' in packages["after"]
    assert repository["after"].startswith(f"{URL}\nsigned by ")
    assert pin["after"] == preferences(NEW)
    # zypper cannot try a repository.
    system.manager.trial_works = False
    assert "not complete" in run_stage(system, DesiredDriver(), check=True).warnings[-1]


def test_an_upgrade_reloads_in_the_right_order_and_can_be_taken_back():
    system = ready()
    report = run_stage(system, DesiredDriver(version=NEW), check=False)
    assert not report.reboot
    order = [line for line in system.log if line.startswith(("stop", "unload", "load nvidia", "start"))]
    assert order[:4] == ["stop nvidia-persistenced.service", "unload nvidia_drm", "unload nvidia_uvm", "unload nvidia"]
    assert order[4] == "load nvidia"
    assert order[-1] == "start nvidia-persistenced.service"
    assert (system.record.version, system.record.pending) == (OLD, "")
    run_stage(system, DesiredDriver(state="previous"), check=False)
    assert system.loaded == OLD
    assert not run_stage(system, DesiredDriver(state="previous"), check=False).changed


def test_a_driver_in_use_needs_a_reboot_and_says_who():
    system = ready()
    system.user_list = (User(42, "python3"),)
    report = run_stage(system, DesiredDriver(version=NEW), check=False)
    assert report.reboot == ("python3 (42) uses the driver",)
    assert system.loaded == OLD
    assert report.as_result()["reboot_required"] is True


def test_a_module_that_cannot_be_unloaded_leaves_the_host_as_it_was():
    system = ready()
    system.unload_error = "rmmod: Module nvidia is in use"
    report = run_stage(system, DesiredDriver(version=NEW), check=False)
    assert "could not be unloaded" in report.reboot[0]
    assert {"load nvidia_uvm", "load nvidia_drm"} <= set(system.log)
    assert "nvidia-persistenced.service" in system.active


def test_an_installation_that_builds_nothing_is_a_failure_and_the_running_driver_is_left_alone():
    system = ready()
    system.manager.packages = full(OLD)
    system.builds = False
    with pytest.raises(Failed, match="module on disk for kernel"):
        run_stage(system, DesiredDriver(version=NEW), check=False)
    assert system.loaded == OLD
    assert system.record.pending == ""


def test_a_driver_that_does_not_load_is_a_failure():
    system = System()
    system.load_error = "modprobe: ERROR: Key was rejected by service"
    with pytest.raises(Failed, match="Key was rejected"):
        run_stage(system, DesiredDriver(), check=False)
    system = System()
    system.smi = 15
    with pytest.raises(Failed, match="fell off the bus"):
        run_stage(system, DesiredDriver(), check=False)


def test_a_run_that_was_cut_off_is_repaired_first():
    system = ready()
    system.manager.half = ("libcuda1",)
    report = run_stage(system, DesiredDriver(), check=False)
    assert system.manager.log[0] == "repair"
    assert report.steps[0].kind.key == "repair_package_database"


def test_removal():
    system = ready()
    report = run_stage(system, DesiredDriver(state="absent"), check=False)
    assert not system.manager.packages
    assert system.loaded is None
    assert not system.manager.held
    assert not report.reboot
    assert not run_stage(system, DesiredDriver(state="absent"), check=False).changed


def test_a_removal_that_was_cut_off_after_the_packages_is_finished():
    system = System()
    system.pinned = "a pin"
    system.files[PERSISTENCE_DROP_IN] = "x"
    system.manager.held = {"libcuda1"}
    desired = DesiredDriver(state="absent")
    planned = run_stage(system, desired, check=True)
    report = run_stage(system, desired, check=False)
    assert [step.kind.key for step in planned.steps] == [step.kind.key for step in report.steps]
    assert (system.pinned, system.manager.urls, set(system.manager.held)) == (None, [], set())
    assert system.files == {PERSISTENCE_DROP_IN: None}
    assert not run_stage(system, desired, check=False).changed


def test_a_removal_takes_the_block_of_nouveau_out_of_the_initramfs_and_leaves_no_link_behind():
    system = System()
    link = wants_link(PERSISTENCE_UNIT)
    system.files = {NOUVEAU_FILE: "blacklist nouveau", link: "a link to a unit that is gone"}
    report = run_stage(system, DesiredDriver(state="absent"), check=False)
    assert [(step.kind.key, step.target) for step in report.steps if step.kind is not Kind.REMOVE_REMAINS] == [
        ("remove_file", NOUVEAU_FILE),
        ("renew_initramfs", "initramfs"),
        ("remove_file", link),
    ]
    assert system.log == ["update-initramfs -u -k 6.1.0-50-amd64", f"reload {PERSISTENCE_UNIT}"]
    assert not run_stage(system, DesiredDriver(state="absent"), check=False).changed


def test_older_lists_are_fetched_anew_before_a_version_is_refused():
    system = System()
    offered, fetched = system.manager.offered, []
    system.manager.offered = lambda names: offered(names) if fetched else ()
    with pytest.raises(Refused, match="do not offer"):
        run_stage(system, DesiredDriver(), check=True)
    system.manager.refresh = lambda: fetched.append(1)
    assert run_stage(system, DesiredDriver(), check=False).version == NEW
    system = System()
    system.manager.offered = lambda _names: ()

    def refresh():
        raise PackageError("Failed to fetch the package lists: the server is dead")

    system.manager.refresh = refresh
    with pytest.raises(PackageError, match=r"do not offer.*the server is dead"):
        run_stage(system, DesiredDriver(), check=False)


def test_nouveau_is_blocked_and_needs_a_reboot_when_it_is_loaded():
    system = System(nouveau_loaded=True)
    system.blocked = False
    report = run_stage(system, DesiredDriver(), check=False)
    assert "nouveau" in report.reboot[0]
    assert "blacklist nouveau" in system.files["/etc/modprobe.d/gpufleet-nouveau.conf"]
    assert "update-initramfs -u -k 6.1.0-50-amd64" in system.log


HGX_B200 = Gpu("0", "0x2901", "blackwell", "b200-180gb")


def nvlink5_host(**changed):
    """A host with the wanted driver, whose fabric manager runs already."""
    packages = {**full(NEW), "nvlsm": "2025.06.11-1"}
    system = System(Manager(packages, packages), loaded=NEW, fabric_installed=True, **changed)
    system.base = replace(system.base, gpus=(HGX_B200,))
    system.active = system.enabled = {"nvidia-fabricmanager.service", "nvidia-persistenced.service"}
    return system


@pytest.mark.proves("fabric", "host", rows=["nvlink5-host"])
def test_the_modules_of_nvlink5_are_loaded_now_and_at_every_boot():
    system = nvlink5_host(lacking_modules=("mlx5_ib", "ib_umad"))
    report = run_stage(system, DesiredDriver(version=NEW), check=False)
    assert {"create_file", "load_kernel_modules"} <= {step.kind.key for step in report.steps}
    assert system.files[MODULES_FILE].splitlines()[1:] == ["mlx5_core", "mlx5_ib", "ib_umad"]
    assert [line for line in system.log if line.startswith("load ")] == ["load mlx5_ib", "load ib_umad"]
    system.base = replace(system.base, lacking_modules=())
    assert not run_stage(system, DesiredDriver(version=NEW), check=False).changed


def test_check_mode_loads_no_module_of_nvlink5():
    system = nvlink5_host(lacking_modules=("ib_umad",))
    report = run_stage(system, DesiredDriver(version=NEW), check=True)
    assert "load_kernel_modules" in {step.kind.key for step in report.steps}
    assert MODULES_FILE not in system.files
    assert "load ib_umad" not in system.log


@pytest.mark.parametrize("gpu", [Gpu("0", "0x2330", "hopper", "h100-80gb-sxm"), HGX_B200])
def test_a_host_without_the_fabric_manager_loads_no_module_of_nvlink5(gpu):
    system = nvlink5_host(lacking_modules=("ib_umad",))
    system.base = replace(system.base, gpus=(gpu,))
    never = "never" if gpu is HGX_B200 else "auto"
    run_stage(system, DesiredDriver(version=NEW, fabric_manager=never), check=False)
    assert MODULES_FILE not in system.files
    assert "load ib_umad" not in system.log


def test_a_module_of_nvlink5_that_cannot_be_loaded_is_said():
    system = nvlink5_host(lacking_modules=("mlx5_ib",))
    system.load_error = "Module mlx5_ib not found"
    with pytest.raises(Failed, match="kernel module mlx5_ib of NVLink 5 cannot be loaded: Module mlx5_ib not found"):
        run_stage(system, DesiredDriver(version=NEW), check=False)


def test_the_stage_plans_the_fabric_of_nvlink5_by_the_gpu():
    card = {"address": "0", "device_id": "0x2901", "kind": "gpu", "architecture": "blackwell", "board": "b200-180gb"}
    manager = {"installed": True, "active": True, "version": OLD}
    packages = {**full(OLD), "nvlsm": "2025.06.11-1"}
    host = {**facts(packages=packages, holds=list(packages)), "pci": [card]}
    host["fabric"] = {"nvswitches": 0, "manager": manager, "lacking_modules": ["ib_umad"]}
    assert [str(step) for step in stage(host, {}).steps] == [
        "load ib_umad (the fabric manager does not start without them)"
    ]
    host["fabric"]["lacking_modules"] = []
    assert not stage(host, {}).needed
    host["fabric"]["manager"] = {"installed": True, "active": False, "version": OLD}
    assert [step.kind.key for step in stage(host, {}).steps] == ["start_service"]
    host["pci"] = [{**card, "device_id": "0x2941", "board": "gb200-186gb"}]
    assert not stage(host, {}).needed
    assert [refusal.thing for refusal in stage(host, {"nvidia_driver_fabric_manager": "always"}).refusals] == [
        "nvidia_driver_fabric_manager"
    ]


def test_ubuntus_persistence_unit_gets_a_drop_in():
    unit = "# /lib/x\n[Unit]\nStopWhenUnneeded=true\n[Service]\nExecStart=/usr/bin/nvidia-persistenced --user nvpd --no-persistence-mode --verbose\n"
    system = System()
    system.unit = unit
    run_stage(system, DesiredDriver(), check=False)
    text = system.files[PERSISTENCE_DROP_IN]
    assert "StopWhenUnneeded=false" in text
    assert "ExecStart=\nExecStart=/usr/bin/nvidia-persistenced --user nvpd --persistence-mode --verbose\n" in text
    assert f"reload {PERSISTENCE_UNIT}" in system.log
    assert not run_stage(system, DesiredDriver(), check=False).changed
    assert persistence_drop_in(UNIT) is None
    assert without_drop_in(system.unit_text("x")) == unit
    assert not has_install_section(unit)


def test_what_cannot_be_resolved_is_said():
    system = System()
    system.manager.error = "Failed to resolve x"
    with pytest.raises(PackageError, match="Failed to resolve x"):
        run_stage(system, DesiredDriver(), check=False)


@pytest.mark.parametrize(
    ("changed", "needed", "blockers"),
    [
        ({"loaded": "1"}, False, 0),
        ({"loaded": "1", "other_flavour": True}, True, 0),
        ({"loaded": None}, True, 0),
        ({"loaded": None, "allowed": False}, True, 1),
        ({"loaded": "0", "users": (User(1, "nvidia-persistenced"[:15]),)}, True, 0),
        ({"loaded": "0", "users": (User(1, "python3"),), "allowed": False}, True, 2),
        ({"loaded": "1", "nouveau_loaded": True}, True, 1),
        ({"loaded": None, "wanted": None}, False, 0),
    ],
)
def test_reload_plans(changed, needed, blockers):
    base = {
        "loaded": None,
        "wanted": "1",
        "modules": ("nvidia",),
        "users": (),
        "active": ("nvidia-persistenced.service",),
        "nouveau_loaded": False,
        "allowed": True,
    }
    plan = plan_reload(**{**base, **changed})
    assert (plan.needed, len(plan.blockers)) == (needed, blockers)
    assert plan.possible == (needed and not blockers)


def test_reference_counts_that_the_drivers_own_modules_explain():
    modules = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
    assert still_used({"nvidia": 3, "nvidia_modeset": 1, "nvidia_uvm": 0, "nvidia_drm": None}, modules) == ()
    assert still_used({"nvidia": 4, "nvidia_modeset": 1, "nvidia_uvm": 1, "nvidia_drm": 0}, modules) == (
        "nvidia_uvm has 1 users, 0 of them modules of the driver",
        "nvidia has 4 users, 3 of them modules of the driver",
    )


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


def test_the_stage_is_not_needed_only_when_the_facts_prove_it():
    assert not stage(FACTS, {}).needed
    assert not stage({**FACTS, "pci": []}, {}).needed
    assert not stage(facts(packages={}), {"nvidia_driver_state": "absent"}).needed


@pytest.mark.parametrize(
    ("driver", "desired"),
    [
        ({"packages": {}}, {}),
        ({"loaded_version": None}, {}),
        ({"holds": []}, {}),
        ({}, {"nvidia_driver_hold": False}),
        ({"persistence_daemon": {"installed": True, "active": False}}, {}),
        ({"nouveau_loaded": True}, {}),
        ({}, {"nvidia_driver_branch": "595"}),
        ({}, {"nvidia_driver_state": "absent"}),
        ({}, {"nvidia_driver_state": "previous"}),
        ({}, {"nvidia_driver_fabric_manager": "always"}),
    ],
)
def test_the_stage_is_needed(driver, desired):
    planned = stage(facts(**driver), desired)
    assert planned.needed
    assert planned.steps or planned.unknown
    assert not planned.refusals


HELD = {"pid": 4711, "command": "python3", "devices": ["/dev/nvidia0"], "container_id": None}
DAEMON = {**HELD, "pid": 12, "command": "nv-hostengine"}


@pytest.mark.parametrize(
    ("holders", "desired", "who", "reboot"),
    [
        (
            None,
            {},
            ["the host, which needs a reboot if anything but NVIDIA's services has the driver open"],
            "possible",
        ),
        ([], {}, [], None),
        # A service of the host is stopped for the change; the same program in a container is not.
        ([DAEMON], {}, [], None),
        ([{**DAEMON, "container_id": "a"}], {}, ["nv-hostengine (12) uses the driver"], "needed"),
        ([HELD], {}, ["needs a reboot (nvidia_driver_reboot is false): python3 (4711) uses the driver"], "needed"),
        (
            [HELD],
            {"nvidia_driver_reboot": True},
            ["the host, which is rebooted: python3 (4711) uses"],
            "needed",
        ),
        ([], {"nvidia_driver_reload": "never"}, ["nvidia_driver_reload is never"], "needed"),
        ([{**HELD, "pid": pid} for pid in range(5)], {}, ["python3 (2) uses the driver, 2 more"], "needed"),
    ],
)
@pytest.mark.parametrize("change", [{"nvidia_driver_branch": "595"}, {"nvidia_driver_state": "absent"}])
def test_the_plan_says_whom_another_driver_disturbs_and_whether_the_host_reboots(holders, desired, who, reboot, change):
    given = {**FACTS, "gpus": [{"gpu_instances": [{}, {}]}, {"gpu_instances": None}]}
    (step,) = stage({**given, **({"holders": holders} if holders is not None else {})}, {**change, **desired}).steps
    assert step.disturbs[:2] == ("every process that uses a GPU", "2 MIG instances, which a reload destroys")
    assert len(step.disturbs) == 2 + len(who)
    assert all(part in found for part, found in zip(who, step.disturbs[2:]))
    assert step.data.get("reboot") == reboot


def test_on_a_bare_host_a_driver_disturbs_nobody_but_nouveau_asks_for_a_reboot():
    bare = {**FACTS, "driver": {}}
    (step,) = stage(bare, {}).steps
    assert (step.kind.key, step.disturbs, dict(step.data)) == (
        "install_driver",
        (),
        {"version": "", "branch": "580", "before": "packages"},
    )
    taken = stage({**FACTS, "driver": {"nouveau_loaded": True}}, {}).steps[0]
    assert "nouveau holds the GPUs" in taken.disturbs[0] and taken.data["reboot"] == "needed"


@pytest.mark.parametrize(
    ("desired", "thing"),
    [
        ({"nvidia_driver_version": "580.126.09"}, "nvidia_driver_version"),
        ({"nvidia_driver_branch": "570"}, "nvidia_driver_branch"),
        ({"nvidia_driver_branch": "abc"}, "nvidia_driver_branch"),
        ({"nvidia_driver_source": "distribution", "nvidia_driver_branch": "535"}, "nvidia_driver_source"),
    ],
)
def test_the_stage_refuses(desired, thing):
    assert thing in [refusal.thing for refusal in stage(FACTS, desired).refusals]


def test_the_stage_bears_a_bare_host():
    assert stage({}, {}).refusals
    bare = {**FACTS, "driver": None, "fabric": None, "pci": None}
    assert stage(bare, {}).needed
    secure = {**FACTS, "host": {**FACTS["host"], "secure_boot": True}, "driver": {}}
    assert "Secure Boot" in " ".join(stage(secure, {}).warnings)
