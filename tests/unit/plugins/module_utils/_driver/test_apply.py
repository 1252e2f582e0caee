# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage from beginning to end, on a host in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import PackageError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.running import (
    NOUVEAU_FILE,
    PERSISTENCE_DROP_IN,
    has_install_section,
    persistence_drop_in,
    without_drop_in,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Signing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.steps import preferences
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import DkmsFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import PERSISTENCE_UNIT, wants_link
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import PreviousDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import HOLDER, User
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._driver.host_double import (
    NAMES,
    NEW,
    OLD,
    UNIT,
    URL,
    Manager,
    System,
    full,
    ready,
)


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
    assert report.diff_parts()[0]["before"] == ""


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
    with pytest.raises(Failure, match=r"mokutil --import /var/lib/dkms/mok\.pub") as stopped:
        run_stage(system, DesiredDriver(), check=False)
    assert [step["kind"] for step in stopped.value.more["steps"]] == steps
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
    assert system.manager.changes == ["add_repository", "refresh", "remove_repository"]


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
    # Whether the branch is still supported is up to the day.
    assert all("ended in" in warning for warning in report.warnings)
    assert (system.manager.urls, system.manager.packages, system.manager.log) == ([], {}, [])
    packages, repository, pin = report.diff_parts()
    assert any(f"install driver {NEW}" in str(step) for step in report.steps)
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


@pytest.mark.parametrize("change", [{"version": NEW}, {"state": "absent"}, {"state": "previous"}])
@pytest.mark.parametrize("check", [False, True])
def test_a_driver_in_use_is_refused_before_a_package_moves(change, check):
    system = ready()
    system.record = PreviousDriver(NEW, full(NEW), "open", "nvidia")
    system.user_list = (User(HOLDER, "python3", 42),)
    with pytest.raises(
        Refused, match=r"is in use by python3 \(PID 42\).*gpufleet\.nvidia\.upgrade.*nvidia_driver_disruption: force"
    ):
        run_stage(system, DesiredDriver(**change), check=check)
    assert (system.manager.packages, system.manager.log, system.log, system.files) == (full(OLD), [], [], {})


def test_what_does_not_touch_the_loaded_driver_is_done_under_its_users():
    system = ready()
    system.manager.held = set()
    system.user_list = (User(HOLDER, "python3", 42),)
    report = run_stage(system, DesiredDriver(), check=False)
    assert [step.kind for step in report.steps] == [Kind.HOLD_PACKAGES]


@pytest.mark.parametrize("allowed", [{"disruption": "force"}, {"reboot": True}])
def test_a_driver_in_use_that_is_allowed_waits_for_a_reboot_and_says_for_whom(allowed):
    system = ready()
    system.user_list = (User(HOLDER, "python3", 42),)
    report = run_stage(system, DesiredDriver(version=NEW, **allowed), check=False)
    assert report.reboot == ("python3 (PID 42) uses the driver",)
    assert system.loaded == OLD
    (waiting,) = report.pending
    assert waiting.kind is Kind.RELOAD_DRIVER and waiting not in report.steps
    again = run_stage(system, DesiredDriver(version=NEW, **allowed), check=False)
    assert (again.changed, again.pending, again.reboot) == (False, report.pending, report.reboot)
    # What leads on is not another run of the same.
    with pytest.raises(
        Refused, match=f"packages are of driver {NEW}, and driver {OLD} is loaded and is in use.*upgrade.*reboot"
    ):
        run_stage(system, DesiredDriver(version=NEW), check=False)


def test_packages_that_cannot_be_finished_leave_a_sentence_that_leads_on():
    system = ready()

    def cut_off(_transaction):
        system.manager.half = ("libcuda1",)
        raise PackageError("Failed to install packages: No space left on device.")

    system.manager.apply = cut_off
    with pytest.raises(
        PackageError,
        match=r"No space left on device\. The package manager was cut off at libcuda1\. Run again: its database is repaired first",
    ):
        run_stage(system, DesiredDriver(version=NEW), check=False)
    system = ready()
    system.load_error = "Key was rejected by service"
    with pytest.raises(Failure, match=r"still needed: load driver.*could not be loaded: Key was rejected"):
        run_stage(system, DesiredDriver(version=NEW), check=False)
    system = ready()

    def cannot_stop(name):
        raise CommandError(["systemctl", "stop", name], "exit status 1")

    system.stop = cannot_stop
    with pytest.raises(
        Failure, match=rf"systemctl stop.*packages are of driver {NEW} and the loaded module is of {OLD}: reboot"
    ):
        run_stage(system, DesiredDriver(version=NEW), check=False)


def test_whatever_else_is_left_fails_with_its_own_sentence():
    system = ready()
    system.manager.hold = lambda _packages: None
    with pytest.raises(Failure, match=r"still needed: hold libcuda1, .*unattended upgrades must not move the driver"):
        run_stage(system, DesiredDriver(version=NEW), check=False)
    assert system.loaded == OLD
    system = ready()
    system.start = lambda name: system.log.append(f"start {name}")
    with pytest.raises(Failure, match=r"still needed: start nvidia-persistenced\.service"):
        run_stage(system, DesiredDriver(version=NEW), check=False)


def test_a_persistence_daemon_that_was_masked_runs_again():
    system = ready()
    unit, read = "nvidia-persistenced.service", system.read
    for names in (system.active, system.enabled):
        names.discard(unit)
    system.unit_exists = lambda _name: f"unmask {unit}" in system.log
    system.read = lambda: replace(read(), masked=() if system.unit_exists(unit) else (unit,))
    report = run_stage(system, DesiredDriver(version=OLD), check=False)
    assert [step.kind for step in report.steps] == [Kind.UNMASK_SERVICE, Kind.ENABLE_SERVICE, Kind.START_SERVICE]
    assert unit in system.active & system.enabled
    assert not run_stage(system, DesiredDriver(version=OLD), check=False).changed


def test_a_module_that_cannot_be_unloaded_leaves_the_host_as_it_was():
    system = ready()
    system.unload_error = "rmmod: Module nvidia is in use"
    report = run_stage(system, DesiredDriver(version=NEW), check=False)
    assert "could not be unloaded" in report.reboot[0] and [step.kind for step in report.pending] == [
        Kind.RELOAD_DRIVER
    ]
    assert {"load nvidia_uvm", "load nvidia_drm"} <= set(system.log)
    assert "nvidia-persistenced.service" in system.active


def test_an_installation_that_builds_nothing_is_a_failure_and_the_running_driver_is_left_alone():
    system = ready()
    system.manager.packages = full(OLD)
    system.builds = False
    with pytest.raises(Failure, match=r"DKMS does not have its source .*Do not reboot.*gpufleet.nvidia.rollback"):
        run_stage(system, DesiredDriver(version=NEW), check=False)
    assert system.loaded == OLD and not [line for line in system.log if line.startswith("unload")]
    assert system.record.pending == ""


def without_module(loaded=OLD):
    """Return a host whose kernel lost the module that DKMS knows how to build, loaded as it may be."""
    system = ready()
    system.loaded, system.builds, system.known_builds = loaded, False, (DkmsFacts("nvidia", OLD, None, "added"),)
    return system


def test_a_kernel_without_the_module_gets_it_built_and_nothing_is_reloaded_for_it():
    system = without_module()
    # The loaded driver is the right one: whoever uses it goes on.
    system.user_list = (User(HOLDER, "python3", 42),)
    assert [step.kind for step in run_stage(system, DesiredDriver(), check=True).steps] == [Kind.BUILD_MODULE]
    report = run_stage(system, DesiredDriver(), check=False)
    assert system.log == [f"build nvidia {OLD} for {system.base.kernel}"] and not report.reboot
    assert not run_stage(system, DesiredDriver(), check=False).changed
    system = without_module(loaded=None)
    run_stage(system, DesiredDriver(), check=False)
    assert system.loaded == OLD and system.log[0].startswith("build")


def test_a_module_that_cannot_be_built_is_a_failure_with_the_first_error_of_its_log():
    system = without_module()
    system.build_error = "nv.c:1: error: too few arguments (see /var/lib/dkms/nvidia/1/build/make.log)"
    with pytest.raises(Failure, match=r"build the module of driver .* error: too few arguments \(see .*make\.log\)"):
        run_stage(system, DesiredDriver(), check=False)


def test_a_driver_whose_packages_did_not_build_for_the_next_kernel_is_built_for_it_in_the_same_run():
    system = ready()
    system.known_builds = (DkmsFacts("nvidia", NEW, None, "added"),)
    system.base = replace(system.base, next_kernel="6.1.0-51-amd64")
    system.build_module = lambda step: setattr(system, "base", replace(system.base, next_module=step.data["version"]))
    report = run_stage(system, DesiredDriver(version=NEW), check=False)
    (built,) = (step for step in report.steps if step.kind is Kind.BUILD_MODULE)
    assert built.target == "6.1.0-51-amd64" and "is booted next" in built.why
    assert not run_stage(system, DesiredDriver(version=NEW), check=False).changed


def test_a_driver_that_does_not_load_is_a_failure():
    system = System()
    system.load_error = "modprobe: ERROR: Key was rejected by service"
    with pytest.raises(Failure, match="Key was rejected"):
        run_stage(system, DesiredDriver(), check=False)
    system = System()
    system.smi = 15
    with pytest.raises(Failure, match="nvidia-smi ended with 15: a GPU has fallen off the bus"):
        run_stage(system, DesiredDriver(), check=False)


def test_a_run_that_was_cut_off_is_repaired_first():
    system = ready()
    system.manager.half = ("libcuda1",)
    report = run_stage(system, DesiredDriver(), check=False)
    assert system.manager.changes[0] == "repair"
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
        ("remove_file", link),
        ("renew_initramfs", "initramfs"),
    ]
    assert system.log == [f"reload {PERSISTENCE_UNIT}", "update-initramfs -u -k 6.1.0-50-amd64"]
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
    with pytest.raises(Refused, match=r"nouveau holds the GPUs.*nvidia_driver_reboot: true"):
        run_stage(system, DesiredDriver(), check=False)
    assert not system.manager.packages
    report = run_stage(system, DesiredDriver(reboot=True), check=False)
    assert "nouveau" in report.reboot[0]
    assert "blacklist nouveau" in system.files["/etc/modprobe.d/gpufleet-nouveau.conf"]
    assert "update-initramfs -u -k 6.1.0-50-amd64" in system.log


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
    system.manager.fails["simulate"] = "Failed to resolve x"
    with pytest.raises(PackageError, match="Failed to resolve x"):
        run_stage(system, DesiredDriver(), check=False)
