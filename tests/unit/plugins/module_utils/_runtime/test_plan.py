# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import (
    BINARY,
    DesiredRuntime,
    Effective,
    FileChange,
    Files,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.plan import Merged, Service, file_diffs, plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document

stage = by_document(stage_of_facts)

DESIRED = DesiredRuntime()
BEFORE = Merged(Effective(default_runtime="runc", runtimes=("runc",)), "before")
AFTER = Merged(Effective(DESIRED.binary, "runc", None, ("nvidia", "runc")), "after")
CHANGED = Files(
    (FileChange("/etc/x", "a", "b"), FileChange("/etc/y", None, "c"), FileChange("/etc/z", "d", None)), ("w",)
)
SAME = Files((FileChange("/etc/x", "a", "a"),))
ACTIVE = Service("containerd.service", active=True, containers=3)


def actions(runtime="containerd", files=CHANGED, before=BEFORE, after=AFTER, service=ACTIVE, **options):
    return [step.kind.key for step in plan(runtime, DESIRED, files, before, after, service, **options).steps]


def test_files_then_restart():
    made = plan("containerd", DESIRED, CHANGED, BEFORE, AFTER, ACTIVE)
    assert [step.kind.key for step in made.steps] == ["change_file", "create_file", "remove_file", "restart_service"]
    assert made.steps[-1].disturbs == (
        "starting and stopping containers for some seconds (3 running containers go on)",
    )
    assert made.warnings == ("w",)


def test_files_that_change_nothing_in_force_need_no_restart():
    assert actions(before=AFTER) == ["change_file", "create_file", "remove_file"]


def test_a_runtime_that_does_not_run_is_not_started():
    assert "restart_service" not in actions(service=Service("containerd.service"))


def test_nothing_to_do():
    assert actions(files=SAME, before=AFTER) == []


def test_an_earlier_run_that_was_cut_off_before_the_restart():
    pending = Service("containerd.service", active=True, restart_pending=True)
    assert actions(files=SAME, before=AFTER, service=pending) == ["restart_service"]


def test_restart_never_warns():
    made = plan("containerd", DESIRED, CHANGED, BEFORE, AFTER, ACTIVE, restart="never")
    assert "restart_service" not in [step.kind.key for step in made.steps]
    assert made.warnings[-1].endswith(
        "keeps its former configuration until it is restarted: its merged configuration changes"
    )


def test_a_unit_that_kills_containers_is_refused_unless_allowed():
    deadly = Service("containerd.service", active=True, kill_mode="control-group", containers=2)
    with pytest.raises(
        Refused, match="2 running containers would be lost, because its unit has KillMode=control-group"
    ):
        actions(service=deadly)
    made = plan("containerd", DESIRED, CHANGED, BEFORE, AFTER, deadly, disruption="force")
    assert made.steps[-1].disturbs == ("2 running containers, which are stopped",)
    idle = Service("containerd.service", active=True, kill_mode="control-group", containers=0)
    assert actions(service=idle)[-1] == "restart_service"


def test_a_former_toolkit_in_use_is_moved_only_with_a_restart_and_where_containers_may_be_lost():
    moved = Files((), moves=("/usr/local/nvidia/toolkit",))
    used = replace(moved, moved_of=2)
    with pytest.raises(Refused, match="uses it until it is restarted"):
        actions("k3s", moved, restart="never", disruption="force")
    for service in (ACTIVE, Service("k3s.service")):
        with pytest.raises(Refused, match="2 containers that were started with it run, and could not be ended"):
            actions("k3s", used, service=service)
    made = plan("k3s", DESIRED, used, BEFORE, AFTER, ACTIVE, disruption="force")
    assert "2 containers that were started with it, which cannot be ended" in made.steps[0].disturbs[0]
    for service in (ACTIVE, Service("k3s.service")):
        made = plan("k3s", DESIRED, moved, BEFORE, AFTER, service)
        assert (made.steps[0].kind, made.steps[0].disturbs) == (Kind.MOVE_ASIDE, ())


def test_docker_reloads_what_it_can_and_keeps_containers():
    runtimes = Files((FileChange("/etc/docker/daemon.json", "{}", '{"runtimes": {"nvidia": {}}}'),))
    features = Files((FileChange("/etc/docker/daemon.json", "{}", '{"features": {"cdi": true}}'),))
    plain = Service("docker.service", active=True, containers=1, keeps_containers=False)
    live = Service("docker.service", active=True, containers=1)
    assert actions("docker", runtimes, service=plain) == ["change_file", "reload_service"]
    with pytest.raises(Refused, match="live-restore is off"):
        actions("docker", features, service=plain)
    assert actions("docker", features, service=live) == ["change_file", "restart_service"]
    unknown = Service("docker.service", active=True, containers=None, keeps_containers=False)
    with pytest.raises(Refused, match="running containers would be lost"):
        actions("docker", features, service=unknown)


@pytest.mark.parametrize("runtime", ["containerd", "docker", "k3s"])
@pytest.mark.parametrize("restart", ["auto", "never"])
def test_a_runtime_is_restarted_once_whatever_is_wrong_with_it(runtime, restart):
    """Files, a former toolkit, a run that was cut off, a runtime that is dead: all of it together is one restart."""
    changed = Files((FileChange("/etc/x", "{}", '{"debug": true}'), FileChange("/etc/y", None, "{}")))
    moving = replace(changed, moves=("/usr/local/nvidia/toolkit",))
    for files, before, active, pending, broken in product(
        (Files(()), changed, moving), (BEFORE, AFTER), (True, False), (True, False), (True, False)
    ):
        if files is moving and active and restart == "never":
            continue
        service = replace(ACTIVE, active=active, restart_pending=pending)
        found = actions(runtime, files, before, AFTER, service, restart=restart, broken=broken)
        taken_over = [kind for kind in found if kind in ("restart_service", "reload_service", "start_service")]
        needed = (active and (before is not AFTER or pending)) or (broken and not active)
        assert len(taken_over) == (1 if needed and restart == "auto" else 0), (files, before, service, broken)


def test_a_configuration_that_would_not_take_effect_is_refused():
    with pytest.raises(Refused, match=r"containerd says that the runtime nvidia is not configured"):
        actions(after=BEFORE)


def test_diffs_show_the_files():
    assert file_diffs(CHANGED.changed)[0] == {
        "before_header": "/etc/x",
        "after_header": "/etc/x",
        "before": "a",
        "after": "b",
    }
    assert file_diffs(CHANGED.changed)[2]["after_header"] == "/etc/z (removed)"


class TestStage:
    VARIABLES = {
        "nvidia_toolkit_runtime": "containerd",
        "nvidia_toolkit_default_runtime": False,
        "nvidia_toolkit_cdi": True,
        "nvidia_toolkit_restart": "auto",
    }
    FACTS = {"version": "1.7.28", "nvidia": True, "default_runtime": "runc", "cdi": True}

    def run(self, found, **variables):
        return stage({"runtimes": {} if found is None else {"containerd": found}}, {**self.VARIABLES, **variables})

    def test_proven(self):
        assert not self.run(self.FACTS).needed
        drivers = {"nvidia": "systemd", "runc": "systemd"}
        assert not self.run({**self.FACTS, "binary": BINARY, "cgroup_drivers": drivers}).needed

    def test_containerd_2_has_cdi_without_being_told(self):
        assert not self.run({**self.FACTS, "version": "2.1.5", "cdi": None}).needed

    @pytest.mark.parametrize("version", ["1.6.20", "1.7.1"])
    def test_a_runtime_without_cdi_is_refused_unless_something_else_is_described(self, version):
        (refusal,) = self.run({**self.FACTS, "version": version}).refusals
        assert f"containerd {version} does not inject the CDI devices" in refusal.message
        assert not self.run(
            {**self.FACTS, "version": version, "cdi": None if version < "1.7" else True},
            nvidia_toolkit_device_injection="volume_mounts",
        ).refusals

    def test_none(self):
        assert not self.run(None, nvidia_toolkit_runtime="none").needed
        same = dict.fromkeys(("nvidia", "crun"), "/usr/libexec/crio/conmon")
        assert not self.run({**self.FACTS, "monitors": same}).needed

    @pytest.mark.parametrize(
        ("found", "variables", "step"),
        [
            ({"nvidia": False}, {}, "configure_runtime"),
            ({}, {"nvidia_toolkit_default_runtime": True}, "set_default_runtime"),
            ({"default_runtime": "nvidia"}, {}, "set_default_runtime"),
            ({"cdi": False}, {}, "enable_cdi"),
            ({"cdi": None}, {}, "enable_cdi"),
            ({"binary": "/opt/other"}, {}, "correct_runtime"),
            ({"binary": None}, {}, "correct_runtime"),
            ({"has_type": False}, {}, "correct_runtime"),
            ({"monitors": {"nvidia": None, "crun": "/usr/libexec/crio/conmon"}}, {}, "correct_runtime"),
            ({"cgroup_drivers": {"nvidia": "cgroupfs", "runc": "systemd"}}, {}, "correct_cgroups"),
            ({"sandboxers": {"nvidia": "shim", "runc": "podsandbox"}}, {}, "correct_runtime"),
            ({"absent": ["/opt/other"], "binary": "/opt/other"}, {}, "correct_runtime"),
        ],
    )
    def test_needed(self, found, variables, step):
        made = self.run({**self.FACTS, **found}, **variables)
        assert made.needed
        assert [s.kind.key for s in made.steps] == [step]

    @pytest.mark.parametrize(
        ("runtime", "found", "restart", "disturbs"),
        [
            ("containerd", {"nvidia": False}, "auto", "while containerd restarts (running pods go on)"),
            ("k3s", {"nvidia": False}, "auto", "while k3s restarts (running pods go on)"),
            ("crio", {"nvidia": False, "active": None}, "auto", "while CRI-O restarts (running pods go on)"),
            ("containerd", {"nvidia": False}, "never", ""),
            ("containerd", {"nvidia": False, "active": False}, "auto", ""),
            # Docker takes a runtime over by SIGHUP, but not the feature cdi.
            ("docker", {"nvidia": False}, "auto", ""),
            (
                "docker",
                {"cdi": False},
                "auto",
                "containers of Docker, which its restart stops where live-restore is off",
            ),
            ("docker", {"nvidia": False, "cdi": False}, "auto", "where live-restore is off"),
        ],
    )
    def test_the_restart_of_the_runtime_is_named_with_what_it_does_to_containers(
        self, runtime, found, restart, disturbs
    ):
        facts = {runtime: {**self.FACTS, "version": "29.1.3", "active": True, **found}}
        given = {**self.VARIABLES, "nvidia_toolkit_runtime": runtime, "nvidia_toolkit_restart": restart}
        named = [one for step in stage({"runtimes": facts}, given).steps for one in step.disturbs]
        assert len(named) == bool(disturbs) and disturbs in "".join(named)

    def test_a_leftover_is_moved_aside(self):
        made = self.run({**self.FACTS, "leftovers": ["/etc/containerd/conf.d/99-nvidia.toml"]})
        assert [(step.kind, step.target) for step in made.steps] == [
            (Kind.MOVE_ASIDE, "/etc/containerd/conf.d/99-nvidia.toml")
        ]

    def test_a_former_toolkit_is_named_and_moved_only_where_the_pool_says_so(self):
        former = "/usr/local/nvidia/toolkit"
        found = {"k3s": {**self.FACTS, "version": "1.33.1", "leftovers": [former]}}
        given = {**self.VARIABLES, "nvidia_toolkit_runtime": "k3s"}
        (refusal,) = stage({"runtimes": found}, given).refusals
        assert "takes nvidia-container-runtime from there before /usr/bin" in refusal.reason
        assert "nvidia_toolkit_move_former: true" in refusal.remedy
        moving = {**given, "nvidia_toolkit_move_former": True}
        made = stage({"runtimes": found}, moving)
        assert made.refusals == () and [step.kind for step in made.steps] == [Kind.MOVE_ASIDE]
        # The module refuses the same: containers run that were started with it.
        used = [{"program": f"{former}/nvidia-container-runtime", "name": str(number)} for number in range(2)]
        others = [{"program": "/usr/bin/nvidia-container-runtime", "name": "x"}]
        found["k3s"].update(active=True, containers=[*used, *others])
        (refusal,) = stage({"runtimes": found}, moving).refusals
        assert "2 containers that were started with it run" in refusal.reason
        (refusal,) = stage({"runtimes": found}, {**moving, "nvidia_toolkit_restart": "never"}).refusals
        assert refusal.reason == "k3s uses it until it is restarted"
        (step,) = stage({"runtimes": found}, {**moving, "nvidia_toolkit_disruption": "force"}).steps
        assert step.disturbs == ("2 containers that were started with it, which cannot be ended without it",)

    @pytest.mark.parametrize("installed", ["1.20.2-1", None])
    def test_a_program_that_is_gone_is_the_toolkits_to_install_or_refused(self, installed):
        toolkit = {"packages": {"nvidia-container-toolkit-base": installed} if installed else {}}
        found = {"containerd": {**self.FACTS, "binary": BINARY, "absent": [BINARY]}}
        made = stage({"runtimes": found, "toolkit": toolkit}, {**self.VARIABLES, "nvidia_toolkit_version": "1.20.2"})
        said = (
            "/usr/bin/nvidia-container-runtime: the runtime nvidia of containerd starts it, and it is not there. Install "
            "nvidia-container-toolkit-base (apt-get install --reinstall, dnf reinstall, zypper install --force) again."
        )
        assert [refusal.message for refusal in made.refusals] == ([said] if installed else []) and not made.steps

    def test_folders_of_cdi_that_lack_the_toolkits_are_refused_where_devices_come_by_cdi(self):
        found = {**self.FACTS, "cdi_folders": ["/etc/cdi"]}
        (refusal,) = self.run(found).refusals
        assert "they are /etc/cdi, and the toolkit writes /var/run/cdi/nvidia.yaml" in refusal.message
        assert not self.run(found, nvidia_toolkit_device_injection="volume_mounts").refusals
        assert not self.run({**found, "cdi_folders": ["/etc/cdi", "/var/run/cdi"]}).refusals
        own = [{"path": "/etc/cdi/nvidia.yaml", "own": True, "kind": "nvidia.com/gpu"}]
        assert not stage({"runtimes": {"containerd": found}, "cdi": own}, self.VARIABLES).refusals

    @pytest.mark.parametrize(
        ("containerd", "written", "refused"),
        [("1.7.15", "0.7.0", True), ("1.7.16", "0.7.0", False), ("1.7.15", "0.5.0", False), ("2.1.5", "1.0.0", False)],
    )
    def test_a_specification_that_containerd_refuses_is_named_where_devices_come_by_cdi(
        self, containerd, written, refused
    ):
        """nvidia-container-toolkit#1940 has the case with Podman's copy of the same library."""
        found = {"containerd": {**self.FACTS, "version": containerd}}
        own = [{"path": "/var/run/cdi/nvidia.yaml", "own": True, "kind": "nvidia.com/gpu", "version": written}]
        said = [refusal.message for refusal in stage({"runtimes": found, "cdi": own}, self.VARIABLES).refusals]
        wanted = (
            f"containerd {containerd}: it refuses CDI specifications of version 0.7.0, which the toolkit writes for this host: containers would get no "
            "GPU. Upgrade it to 1.7.16 or later, or set nvidia_toolkit_device_injection: volume_mounts."
        )
        assert said == ([wanted] if refused else [])
        mounts = {**self.VARIABLES, "nvidia_toolkit_device_injection": "volume_mounts"}
        assert not stage({"runtimes": found, "cdi": own}, mounts).refusals

    def test_not_installed_is_refused_with_what_is(self):
        assert "no container runtime is" in self.run(None).refusals[0].message
        made = stage({"runtimes": {"docker": {}}}, self.VARIABLES)
        assert "containerd is not installed (installed: docker)" in made.refusals[0].message

    @pytest.mark.parametrize("others", [{}, {"containerd": FACTS}])
    @pytest.mark.parametrize("runtime", ["containerd", "crio"])
    def test_a_node_of_k0s_is_refused_with_what_does_it_there(self, runtime, others):
        found = {"k0s": {"active": True, "own": True}, **others}
        made = stage({"runtimes": found}, {**self.VARIABLES, "nvidia_toolkit_runtime": runtime})
        (refusal,) = made.refusals
        assert refusal.thing == "nvidia_toolkit_runtime" and "the containerd of k0s" in refusal.reason
        assert "Set it to none" in refusal.remedy and "/etc/k0s/containerd.d/nvidia.toml" in refusal.remedy
        assert not stage({"runtimes": found}, {**self.VARIABLES, "nvidia_toolkit_runtime": "none"}).needed

    @pytest.mark.parametrize("k0s", [{"active": False, "own": True}, {"active": True, "own": False}])
    def test_a_node_of_k0s_without_pods_in_its_containerd_is_as_any_other(self, k0s):
        """Its worker was told the socket of the host's containerd, or it is a controller, or nothing runs."""
        found = {"containerd": self.FACTS}
        assert stage({"runtimes": {"k0s": k0s, **found}}, self.VARIABLES) == stage({"runtimes": found}, self.VARIABLES)
        (refusal,) = stage({"runtimes": {"k0s": k0s}}, self.VARIABLES).refusals
        assert "containerd is not installed (no container runtime is)" in refusal.message

    def test_docker_beside_k0s_is_set_up(self):
        found = {"docker": {"active": True, "version": "28.0.0"}}
        wanted = {**self.VARIABLES, "nvidia_toolkit_runtime": "docker"}
        beside = stage({"runtimes": {"k0s": {"active": True, "own": True}, **found}}, wanted)
        assert beside == stage({"runtimes": found}, wanted) and not beside.refusals

    def test_unknown_version(self):
        made = self.run({**self.FACTS, "version": None})
        assert made.needed
        assert made.unread

    def test_bare_host(self):
        assert stage({}, self.VARIABLES).refusals
