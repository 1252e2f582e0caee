# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The toolkit on a played host: what is planned, done, read back, and what a cut or a refusal leaves."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import (
    Change,
    Package,
    PackageError,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.cdi_state import CdiState
from ansible_collections.gpufleet.nvidia.plugins.module_utils._injection import Injection, choose
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import NotInEffect, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.config import PATH, low_level_runtimes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import DesiredToolkit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.packages import PACKAGES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.plan import check_simulation, plan, select
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.state import ToolkitState, settings
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

stage = by_document(stage_of_facts)

VERSIONS = ("1.20.2", "1.19.1", "1.19.0")
DESIRED = DesiredToolkit(cdi=False)


class PlayedManager(PackageManager):
    """apt, with a repository that has three versions."""

    def __init__(self):
        super().__init__({"bash": "5"}, offers=[Package(name, f"{v}-1") for name in PACKAGES for v in VERSIONS])

    def offered(self, names):
        return super().offered(names) if self.urls else ()


class PlayedSystem(apply.ToolkitSystem):
    def __init__(self, manager):
        super().__init__(lambda _url, _credentials: b"", manager, {"ID": "debian", "VERSION_ID": "12"})
        self.config = None
        self.key = "right"
        self.low_level_runtime = None
        self.specifications = ()
        self.removed = []

    def read(self, _desired):
        manager = self.manager
        packages = {n: v for n, v in manager.installed().items() if "nvidia" in n}
        return ToolkitState(
            packages,
            manager.holds(),
            repository=bool(manager.urls),
            interrupted=manager.interrupted(),
            missing_for_holds=manager.missing_for_holds(),
            **settings(self.config),
            low_level_runtime=self.low_level_runtime,
            specifications=self.specifications,
        )

    def repository(self, _desired):
        if self.key != "right":
            raise Refused("key", "it is another one")
        return type("Repository", (), {"url": "https://x", "identifier": "nvidia-container-toolkit"})

    def write_config(self, text):
        self.config = text

    def remove_file(self, path):
        self.removed.append(path)
        if path == PATH:
            self.config = None
        else:
            self.specifications = ()


@pytest.fixture
def host():
    return PlayedSystem(PlayedManager())


def run(host, desired=DESIRED, check=False):
    return apply.run_stage(host, desired, check)


def actions(report):
    return [step.kind.key for step in report.plan.steps]


def test_from_nothing_and_again(host):
    assert actions(run(host, check=True)) == ["add_repository", "install_toolkit", "hold_packages", "accept_devices"]
    assert host.manager.log == []
    report = run(host)
    assert actions(report) == ["add_repository", "install_toolkit", "hold_packages", "accept_devices"]
    assert report.version == "1.20.2"
    assert {host.manager.packages[name] for name in PACKAGES} == {"1.20.2-1"}
    assert host.manager.held == set(PACKAGES)
    again = run(host)
    assert not again.plan.changes
    assert again.version == "1.20.2"


def test_the_low_level_runtime_outside_of_path_is_named(host):
    run(host)
    host.low_level_runtime = "/usr/libexec/crio/crun"
    assert actions(run(host)) == ["name_low_level_runtime"]
    assert low_level_runtimes(host.config) == ["/usr/libexec/crio/crun", "runc", "crun"]
    assert actions(run(host)) == []
    both = DesiredToolkit(cdi=False, injection=Injection("envvar"))
    host.low_level_runtime = "/usr/libexec/crio/runc"
    assert actions(run(host, both)) == ["name_low_level_runtime", "accept_devices"]


def test_what_holding_needs_is_installed_before_the_packages(host):
    host.manager.needed = ("a-plugin",)
    assert actions(run(host))[:3] == ["add_repository", "install_prerequisites", "install_toolkit"]
    assert host.manager.packages["a-plugin"] == ""
    assert not run(host).plan.changes


def test_up_and_down(host):
    run(host)
    assert run(host, DesiredToolkit(version="1.19.1", cdi=False)).version == "1.19.1"
    assert run(host).version == "1.20.2"
    assert host.manager.held == set(PACKAGES)


def test_one_package_of_another_version_is_put_right(host):
    run(host)
    host.manager.packages["libnvidia-container1"] = "1.19.1-1"
    report = run(host)
    assert "libnvidia-container1 is 1.19.1-1" in report.plan.steps[0].why
    assert host.manager.packages["libnvidia-container1"] == "1.20.2-1"


def test_below_the_floor_is_refused_before_anything_and_allowed_loudly(host):
    old = DesiredToolkit(version="1.19.0", cdi=False)
    with pytest.raises(Refused, match="below the security floor"):
        run(host, old)
    assert host.manager.log == []
    report = run(host, DesiredToolkit(version="1.19.0", cdi=False, allow_vulnerable=True))
    assert report.plan.warnings[0].startswith("VULNERABLE")


def test_another_key_is_refused_before_the_first_step(host):
    host.key = "wrong"
    with pytest.raises(Refused, match="it is another one"):
        run(host)
    assert host.manager.log == []


def test_a_repository_that_cannot_be_read_is_taken_out_again(host):
    host.manager.fails["refresh"] = "no network"
    with pytest.raises(PackageError, match="no network"):
        run(host)
    assert not host.manager.urls
    assert run(host).version == "1.20.2"


def test_a_version_that_is_not_offered(host):
    with pytest.raises(Refused, match=r"has no 1.21.0 of .*All four packages are offered at 1.20.2, 1.19.1, 1.19.0"):
        run(host, DesiredToolkit(version="1.21.0", cdi=False))
    with pytest.raises(Refused, match="Check that it is the toolkit's repository"):
        select((), "1.20.2")


def test_a_cut_transaction_is_repaired_and_completed(host):
    run(host)
    host.manager.fails["apply"] = "killed"
    with pytest.raises(PackageError, match="killed"):
        run(host, DesiredToolkit(version="1.19.1", cdi=False))
    # Nothing is left unpinned.
    assert host.manager.held == set(PACKAGES)
    host.manager.half = ("nvidia-container-toolkit",)
    report = run(host, DesiredToolkit(version="1.19.1", cdi=False))
    assert actions(report) == ["repair_package_database", "install_toolkit", "hold_packages"]


def test_holds_are_off_while_apt_repairs_and_on_afterwards(host, monkeypatch):
    run(host)
    seen = []
    repair = host.manager.repair
    monkeypatch.setattr(host.manager, "repair", lambda: (seen.append(set(host.manager.held)), repair()))
    host.manager.half = ("bash",)
    assert actions(run(host)) == ["repair_package_database"]
    assert seen == [set()]
    assert host.manager.held == set(PACKAGES)
    host.manager.half = ("bash",)
    host.manager.fails["repair"] = "no way out"
    with pytest.raises(PackageError, match="no way out"):
        run(host)
    assert host.manager.held == set(PACKAGES)


def test_a_resolver_that_wants_more_is_refused(host):
    host.manager.extra = (Change("remove", "docker-ce", "27", ""),)
    with pytest.raises(Refused, match="would remove docker-ce 27"):
        run(host)
    assert "apply" not in host.manager.changes
    with pytest.raises(Refused, match=r"would install a 2 in place of 1"):
        check_simulation((Change("install", "a", "", "2"),), (Package("a", "1"),))


def test_check_mode_asks_the_resolver_when_it_can(host):
    run(host)
    host.manager.log.clear()
    host.manager.asked.clear()
    assert run(host, DesiredToolkit(version="1.19.1", cdi=False), check=True).version == "1.19.1"
    assert len(host.manager.asked) == 1 and host.manager.asked[0].ignore_holds and host.manager.log == []


def test_check_mode_tries_a_repository_that_is_not_configured(host):
    with pytest.raises(Refused, match="All four packages are offered at"):
        run(host, DesiredToolkit(version="1.21.0", cdi=False), check=True)
    assert not host.manager.urls
    host.manager.trial_works = False
    assert run(host, DesiredToolkit(version="1.21.0", cdi=False), check=True).plan.changes


def test_predecessors_go_in_the_same_transaction(host):
    host.manager.packages["nvidia-docker2"] = "2.13.0-1"
    run(host)
    assert "nvidia-docker2" not in host.manager.packages
    assert [one.allow_downgrades for one in host.manager.asked] == [True]
    host.manager.packages["nvidia-docker2"] = "2.13.0-1"
    assert "predecessor" in plan(host.read(DESIRED), DESIRED).steps[0].why


def test_the_way_back_for_the_environment_variable(host):
    run(host)
    assert actions(run(host, DesiredToolkit(cdi=False, injection=Injection("envvar")))) == ["accept_devices"]
    assert host.config == ""


def test_hold_is_taken_off(host):
    run(host)
    assert actions(run(host, DesiredToolkit(cdi=False, hold=False))) == ["release_packages"]
    assert not host.manager.held


def test_a_site_that_manages_its_repository(host):
    host.manager.urls.append("https://site")
    report = run(host, DesiredToolkit(cdi=False, repository=DesiredRepository(manage=False)))
    assert actions(report) == ["install_toolkit", "hold_packages", "accept_devices"]


def test_absent(host):
    run(host)
    absent = DesiredToolkit(present=False)
    assert run(host, absent, check=True).version == ""
    host.specifications = ("/var/run/cdi/nvidia.yaml",)
    gone = ["release_packages", "uninstall_toolkit", "remove_file", "remove_file", "remove_repository"]
    assert actions(run(host, absent)) == gone
    # The packages' scripts make the settings, and the toolkit generates the specification: no package manager knows of them.
    assert host.removed == [PATH, "/var/run/cdi/nvidia.yaml"]
    assert not run(host, absent).plan.changes
    host.manager.half = ("x",)
    assert actions(run(host, absent)) == ["repair_package_database"]
    # The lock of a package that is gone keeps the next one out.
    host.manager.held = {PACKAGES[0], "vim"}
    assert actions(run(host, absent)) == ["release_packages"]
    assert host.manager.held == {"vim"}


def test_what_does_not_stick_is_a_failure(host, monkeypatch):
    monkeypatch.setattr(host.manager, "hold", lambda _packages: None)
    with pytest.raises(NotInEffect, match="still needed: hold"):
        run(host)


def test_cdi_and_its_units(host, monkeypatch):
    done = []
    states = [
        ToolkitState({}, driver_loaded=True),
        ToolkitState(
            dict.fromkeys(PACKAGES, "1.20.2-1"),
            PACKAGES,
            repository=True,
            config=None,
            cdi=CdiState("there is none", ("/etc/cdi/nvidia.yaml",)),
            cdi_unit=False,
        ),
    ]
    first = plan(states[0], DesiredToolkit())
    assert [s.kind.key for s in first.steps][-1] == "generate_cdi_specification"
    second = plan(states[1], DesiredToolkit())
    assert [s.kind.key for s in second.steps] == [
        "accept_devices",
        "enable_service",
        "generate_cdi_specification",
        "move_aside",
    ]
    monkeypatch.setattr(host, "enable_refresh", lambda: done.append("enable"))
    monkeypatch.setattr(apply.cdi_generator, "refresh", lambda: done.append("generate"))
    monkeypatch.setattr(host, "move_aside", done.append, raising=False)
    for step in second.steps[1:]:
        apply._appliers(host, DESIRED)[step.kind](states[1], step)
    assert done == ["enable", "generate", "/etc/cdi/nvidia.yaml"]


def test_old_source_files_go_first(host, monkeypatch):
    removed = []
    monkeypatch.setattr(host, "remove_file", removed.append)
    made = plan(ToolkitState(repository=False, old_sources=("/etc/apt/sources.list.d/x.list",)), DESIRED)
    assert [s.kind.key for s in made.steps][:2] == ["remove_file", "add_repository"]
    apply._appliers(host, DESIRED)[made.steps[0].kind](None, made.steps[0])
    assert removed == ["/etc/apt/sources.list.d/x.list"]


class TestStage:
    VARIABLES = {
        "nvidia_toolkit_version": "1.20.2",
        "nvidia_toolkit_runtime": "containerd",
        "nvidia_toolkit_cdi": True,
        "nvidia_toolkit_device_injection": "auto",
        "nvidia_toolkit_hold": True,
        "nvidia_toolkit_allow_vulnerable": False,
        "nvidia_toolkit_manage_repository": True,
        "nvidia_toolkit_repository_url": "",
        "nvidia_toolkit_repository_key_url": "",
        "nvidia_toolkit_repository_key_file": "",
        "nvidia_toolkit_repository_key_fingerprint": "",
    }
    INSTALLED = {
        "packages": dict.fromkeys(PACKAGES, "1.20.2-1"),
        "accept_envvar_unprivileged": False,
        "accept_volume_mounts": False,
    }
    SPECIFICATION = {"path": "/var/run/cdi/nvidia.yaml", "kind": "nvidia.com/gpu", "missing": [], "stale": []}

    def run(self, toolkit=None, gpus=None, cdi=(), identifier="debian", **variables):
        facts = {
            "host": {"distribution": {"id": identifier, "version": "12"}},
            "toolkit": self.INSTALLED if toolkit is None else toolkit,
            "gpus": gpus,
            "cdi": list(cdi),
        }
        return stage(facts, {**self.VARIABLES, **variables})

    def test_proven(self):
        assert not self.run().needed
        assert not self.run({**self.INSTALLED, "holds": list(PACKAGES)}).needed
        assert not self.run(gpus=[{"index": 0}], cdi=[self.SPECIFICATION]).needed

    def test_not_wanted(self):
        assert not self.run({}, nvidia_toolkit_runtime="none").needed

    @pytest.mark.parametrize(
        ("changes", "step"),
        [
            ({"toolkit": {"packages": {}}}, "install_toolkit"),
            ({"toolkit": {**INSTALLED, "accept_envvar_unprivileged": True}}, "accept_devices"),
            ({"toolkit": {**INSTALLED, "accept_volume_mounts": True}}, "accept_devices"),
            ({"nvidia_toolkit_device_injection": "envvar"}, "accept_devices"),
            ({"nvidia_toolkit_device_injection": "volume_mounts"}, "accept_devices"),
            ({"toolkit": {**INSTALLED, "holds": []}}, "hold_packages"),
            ({"toolkit": {**INSTALLED, "holds": list(PACKAGES[1:])}}, "hold_packages"),
            ({"toolkit": {**INSTALLED, "holds": list(PACKAGES)}, "nvidia_toolkit_hold": False}, "release_packages"),
            ({"gpus": [{"index": 0}]}, "generate_cdi_specification"),
            ({"gpus": [{"index": 0}], "cdi": [{**SPECIFICATION, "stale": ["1"]}]}, "generate_cdi_specification"),
        ],
    )
    def test_needed(self, changes, step):
        made = self.run(**changes)
        assert made.needed
        assert step in [s.kind.key for s in made.steps]

    def test_the_specification_is_made_again_after_the_toolkit(self):
        made = self.run({"packages": {}}, gpus=[{"index": 0}], cdi=[self.SPECIFICATION])
        assert made.steps[-1].why == "the toolkit changes"

    @pytest.mark.parametrize(
        ("packages", "driver", "container", "warned"),
        [
            ({}, "systemd", "0" * 64, True),
            (INSTALLED["packages"], "systemd", "0" * 64, False),
            ({}, "cgroupfs", "0" * 64, False),
            ({}, "systemd", None, False),
        ],
    )
    def test_what_the_scripts_of_packages_may_take_from_containers(self, packages, driver, container, warned):
        facts = {
            "host": {"distribution": {"id": "debian", "version": "12"}},
            "toolkit": {**self.INSTALLED, "packages": packages},
            "runtimes": {"containerd": {"cgroup_drivers": {"runc": driver}}},
            "holders": [{"pid": 812, "command": "python3", "container_id": container, "devices": ["/dev/nvidia0"]}],
        }
        warnings = stage(facts, self.VARIABLES).warnings
        assert [warning for warning in warnings if "python3 (PID 812). Drain" in warning] == list(warnings) * warned

    def test_the_low_level_runtime_of_crio(self):
        facts = {
            "host": {"distribution": {"id": "debian", "version": "12"}},
            "toolkit": {**self.INSTALLED, "low_level_runtimes": ["runc", "crun"]},
            "runtimes": {"crio": {"version": "1.35.0", "low_level_runtime": "/usr/libexec/crio/crun"}},
        }
        variables = {**self.VARIABLES, "nvidia_toolkit_runtime": "crio"}
        assert [str(step) for step in stage(facts, variables).steps] == [
            "have nvidia-container-runtime call /usr/libexec/crio/crun (CRI-O itself uses this one, but "
            "/etc/nvidia-container-runtime/config.toml has runc, crun)"
        ]
        facts["toolkit"]["low_level_runtimes"] = ["/usr/libexec/crio/crun", "runc"]
        assert not stage(facts, variables).needed
        # Facts of an older reading prove nothing.
        del facts["toolkit"]["low_level_runtimes"]
        assert not stage(facts, variables).needed

    @pytest.mark.parametrize(
        ("runtime", "method", "warned"),
        [
            ("docker", "auto", False),
            ("docker", "envvar", False),
            ("docker", "cdi", True),
            ("docker", "volume_mounts", True),
            ("containerd", "cdi", False),
        ],
    )
    def test_docker_hosts_that_refuse_the_variable_are_warned(self, host, runtime, method, warned):
        made = self.run(nvidia_toolkit_runtime=runtime, nvidia_toolkit_device_injection=method)
        chosen = choose(method, runtime)
        planned = plan(host.read(None), DesiredToolkit(cdi=False, runtime=runtime, injection=Injection(chosen)))
        for warnings in (made.warnings, planned.warnings):
            assert any("'docker run --gpus'" in text and "nvidia.com/gpu=all" in text for text in warnings) is warned

    def test_unknown_packages(self):
        assert self.run({"packages": None}).unread

    def test_refusals(self):
        assert "security floor" in self.run(nvidia_toolkit_version="1.17.0").refusals[0].message
        assert "arch 12 is not supported" in self.run(identifier="arch").refusals[0].message
        warned = self.run(nvidia_toolkit_version="1.17.0", nvidia_toolkit_allow_vulnerable=True)
        assert warned.needed
        assert warned.warnings

    def test_bare_host(self):
        assert stage({}, self.VARIABLES).refusals
