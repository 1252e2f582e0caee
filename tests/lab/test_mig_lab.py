# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MIG through the role nvidia_mig on lab hosts: real systemd, real boots, the real nvidia-ctk, virtual GPUs.

Here a GPU switches MIG on without a reset; test_mig_ampere_lab.py has those that cannot. The tests run in order: each begins with what the one before
left. What a GPU has is read by `virtual-gpu show`, which reads the hardware without NVML, and not from what the role says.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mig_fleet import JOURNAL, Mig, layout, wait

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOPPER = "mig-hopper"
RECORD = "/etc/gpufleet/mig.json"
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
TOOLS = Path(__file__).resolve().parent / "real_tools"
#: Shows a program /proc/modules of the virtual machine: a kernel without modules has none.
SHOWN = "/opt/with-machine /run/virtual-gpu"


@pytest.fixture(scope="module")
def mig(make_fleet):
    boards = [{"board": "h100-80gb-sxm", "count": 2}]
    made = make_fleet("mig", {"name": HOPPER, "group": "training", "boards": boards, "driver": "installed"})
    toolkit = made.play("site", "--tags", "toolkit")
    assert toolkit.rc == 0, toolkit.text
    return Mig(made)


FIRST = [layout(p3g_40gb=1, p2g_20gb=1, p1g_10gb=2)]


def test_check_and_diff_show_the_plan_and_touch_nothing(mig):
    before = mig.gpus(HOPPER)
    run = mig.start(HOPPER, FIRST, "--check", "--diff")
    answer = run.end()
    assert answer["changed"] and len(answer["created"]) == 8
    steps, gpus = answer["diff"]
    assert steps["after"].startswith("enable MIG GPU 0 ")
    assert "3g.40gb" in gpus["after"] and "3g.40gb" not in gpus["before"]
    assert mig.gpus(HOPPER) == before
    assert mig.lab.status(HOPPER, f"test -e {RECORD} -o -e {JOURNAL}") != 0


def test_apply_and_a_second_run_that_has_nothing_to_do(mig):
    answer = mig.settled(HOPPER, FIRST)
    assert mig.modes(HOPPER) == [True, True]
    assert [mig.counts(HOPPER, index) for index in (0, 1)] == [{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}] * 2
    assert answer["reset"] == [] and not answer["reboot_required"], "Hopper switches MIG on without a reset"
    assert mig.journal(HOPPER)[2] == "reached"


def test_the_cdi_specification_names_the_devices_that_are_there(mig):
    named, present = mig.cdi(HOPPER)
    assert len(present) == 8 and named == present


def test_what_can_stay_stays_busy_or_not(mig):
    pid = mig.occupy(HOPPER, "job", profile="1g.10gb")
    kept = {one for one in mig.instances(HOPPER) if one[0] in ("3g.40gb", "1g.10gb")}
    gone = {one[2] for one in mig.instances(HOPPER) if one[0] == "2g.20gb"}
    answer = mig.settled(HOPPER, [layout(devices=[0], p3g_40gb=1, p1g_10gb=4), *FIRST])
    assert kept <= set(mig.instances(HOPPER))
    assert mig.counts(HOPPER) == {"3g.40gb": 1, "1g.10gb": 4}
    assert set(answer["stale_uuids"]) == gone
    assert len(answer["destroyed"]) == 1 and len(answer["created"]) == 2
    assert [process["pid"] for process in mig.gpus(HOPPER)[0]["processes"]] == [pid]
    named, present = mig.cdi(HOPPER)
    assert named == present and not named & gone


def test_refuse_idle_only_and_force(mig):
    before = [mig.instances(HOPPER, index) for index in (0, 1)]
    pid = mig.gpus(HOPPER)[0]["processes"][0]["pid"]
    desired = "all-7g.80gb"
    refused = mig.refused(HOPPER, desired)
    assert f"(PID {pid})" in refused["msg"]
    assert "nvidia_mig_disruption" in refused["msg"] and "Nothing was changed" in refused["msg"]
    assert [mig.instances(HOPPER, index) for index in (0, 1)] == before

    left = mig.run(HOPPER, desired, nvidia_mig_disruption="idle_only")
    assert list(left["left_alone"]) == ["0"]
    assert mig.instances(HOPPER) == before[0] and mig.counts(HOPPER, 1) == {"7g.80gb": 1}

    forced = mig.settled(HOPPER, desired, nvidia_mig_disruption="force")
    assert forced["terminated"] == [pid]
    assert mig.counts(HOPPER) == {"7g.80gb": 1}
    assert mig.lab.status(HOPPER, f"kill -0 {pid}") != 0


def test_what_the_kubelet_allocated_to_a_pod_without_a_process_is_refused(mig):
    """As a node has it: its kubelet's record, and the pod's folder for as long as there is the pod."""
    before = [mig.instances(HOPPER, index) for index in (0, 1)]
    entry = {"PodUID": "u1", "ContainerName": "main", "ResourceName": "nvidia.com/mig-7g.80gb"}
    written = json.dumps({"Data": {"PodDeviceEntries": [{**entry, "DeviceIDs": {"0": [before[0][0][2]]}}]}})
    record, pod = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", "/var/lib/kubelet/pods/u1"
    mig.lab.sh(HOPPER, f"mkdir -p {pod} /var/log/pods/team_notebook_u1 {record.rpartition('/')[0]}")
    try:
        mig.lab.sh(HOPPER, f"cat >{record} <<'END'\n{written}\nEND")
        refused = mig.refused(HOPPER, FIRST)
        assert "by pod team/notebook (nvidia.com/mig-7g.80gb)" in refused["msg"]
        assert "gpufleet.nvidia.repartition" in refused["msg"] and "Nothing was changed" in refused["msg"]
        mig.lab.sh(HOPPER, f"echo '{{' >{record}")
        assert "by unknown (" in mig.refused(HOPPER, FIRST)["msg"]
        assert [mig.instances(HOPPER, index) for index in (0, 1)] == before
        mig.lab.sh(HOPPER, f"rmdir {pod}; cat >{record} <<'END'\n{written}\nEND")
        answer = mig.start(HOPPER, FIRST, "--check").end()
        assert answer["changed"] and len(answer["destroyed"]) == 2, "the kubelet forgets pods that are gone only later"
    finally:
        mig.lab.sh(HOPPER, "rm -rf /var/lib/kubelet/device-plugins /var/lib/kubelet/pods /var/log/pods")


def test_an_impossible_layout_is_refused_with_the_nearest_ones(mig):
    before = mig.gpus(HOPPER)
    refused = mig.refused(HOPPER, [layout(p3g_40gb=2, p1g_10gb=1)])
    assert "memory" in refused["msg"] and "Nothing was changed" in refused["msg"]
    assert mig.gpus(HOPPER) == before


def test_services_are_named_or_restarted(mig):
    mig.lab.sh(
        HOPPER,
        "printf '[Service]\\nExecStart=/bin/sleep 9999\\n' > /etc/systemd/system/nvidia-dcgm.service\n"
        "systemctl daemon-reload\nsystemctl start nvidia-dcgm.service",
    )
    main_pid = "systemctl show --value --property=MainPID nvidia-dcgm.service"
    pid = mig.lab.sh(HOPPER, main_pid)
    named = mig.run(HOPPER, FIRST)
    assert named["clients_to_notify"] == ["nvidia-dcgm.service"]
    assert mig.lab.sh(HOPPER, main_pid) == pid
    restarted = mig.run(HOPPER, "all-1g.10gb", nvidia_mig_restart_services=["nvidia-dcgm"])
    assert restarted["restarted_services"] == ["nvidia-dcgm.service"] and restarted["clients_to_notify"] == []
    assert mig.lab.sh(HOPPER, main_pid) not in (pid, "0")


@pytest.mark.by_name
def test_exports_can_be_imported(mig):
    mig.settled(HOPPER, [layout(devices=[0], p3g_40gb=1, p1g_20gb=1), {"devices": [1], "enabled": False}])
    exported = mig.fleet.module(HOPPER, "mig_info")
    assert exported["last_change"]["outcome"] == "reached"
    assert mig.run(HOPPER, exported["layout"]).get("skipped")
    before = mig.instances(HOPPER)
    mig.run(HOPPER, "all-1g.10gb")
    mig.settled(HOPPER, {"mig_parted": exported["mig_parted"]})
    assert sorted(one[0] for one in mig.instances(HOPPER)) == sorted(one[0] for one in before)
    assert mig.modes(HOPPER) == [True, False]


def test_a_reboot_restores_the_layout_before_who_uses_it(mig):
    mig.settled(HOPPER, FIRST)
    before = [mig.instances(HOPPER, index) for index in (0, 1)]
    mig.lab.run("reboot", HOPPER)
    after = [mig.instances(HOPPER, index) for index in (0, 1)]
    assert [[one[:2] for one in gpu] for gpu in after] == [[one[:2] for one in gpu] for gpu in before]
    head, _steps, outcome = mig.journal(HOPPER)
    assert (head["program"], outcome) == ("boot", "reached")
    said = mig.lab.sh(HOPPER, "journalctl --boot --unit=gpufleet-mig.service --output=cat --no-pager")
    assert "8 GPU instances created, 0 destroyed" in said

    def stamp(unit, what):
        name = f"{what}TimestampMonotonic"
        return int(mig.lab.sh(HOPPER, f"systemctl show --value --property={name} {unit}"))

    restored = stamp("gpufleet-mig.service", "ExecMainExit")
    assert 0 < restored <= stamp("gpufleet-cdi.service", "ExecMainStart")
    assert stamp("gpufleet-cdi.service", "ExecMainExit") <= stamp("containerd.service", "ExecMainStart")
    named, present = mig.cdi(HOPPER)
    assert named == present
    assert mig.run(HOPPER, FIRST).get("skipped"), "the host is as described after its boot"


def test_a_power_cut_in_the_middle_of_a_change(mig):
    mig.hang(HOPPER, CREATE, nth=2)
    run = mig.start(HOPPER, "all-1g.10gb")
    mig.middle(HOPPER, "create GPU instance")
    mig.lab.run("power-cut", HOPPER)
    run.process.kill()
    run.process.wait()
    # The boot brings back what was recorded last: the layout before the change that was cut off.
    assert [mig.counts(HOPPER, index) for index in (0, 1)] == [{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}] * 2
    mig.settled(HOPPER, "all-1g.10gb")
    assert [mig.counts(HOPPER, index) for index in (0, 1)] == [{"1g.10gb": 7}] * 2


@pytest.mark.by_name
def test_kill_9_in_the_middle_of_a_change(mig):
    pid = mig.occupy(HOPPER, "survivor", profile="1g.10gb", start=3)
    busy = next(one for one in mig.instances(HOPPER) if one[1] == 3)
    mig.hang(HOPPER, CREATE)
    run = mig.start(HOPPER, FIRST)
    victim = mig.middle(HOPPER, "create GPU instance")
    mig.lab.sh(HOPPER, f"kill -9 {victim}")
    mig.clear(HOPPER)
    assert run.end()["failed"]
    assert mig.journal(HOPPER)[2] is None, "nobody wrote how the run ended"
    assert busy in mig.instances(HOPPER)
    answer = mig.settled(HOPPER, FIRST)
    assert answer["interrupted_run"]["outcome"] is None
    assert busy in mig.instances(HOPPER), "what was in use is where it was"
    assert [mig.counts(HOPPER, index) for index in (0, 1)] == [{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}] * 2
    assert mig.lab.status(HOPPER, f"kill -0 {pid}") == 0
    mig.leave(HOPPER, "survivor")


def test_an_error_that_stays_brings_the_former_layout_back(mig):
    mig.run(HOPPER, FIRST)
    before = [[one[:2] for one in mig.instances(HOPPER, index)] for index in (0, 1)]
    mig.lab.sh(HOPPER, f"virtual-gpu fail {CREATE} UNKNOWN --nth 2 --count 3")
    failed = mig.refused(HOPPER, "all-1g.10gb")
    mig.clear(HOPPER)
    assert failed["outcome"] == "restored" and "The former layout is restored" in failed["msg"]
    assert [[one[:2] for one in mig.instances(HOPPER, index)] for index in (0, 1)] == before
    named, present = mig.cdi(HOPPER)
    assert named == present, "the CDI specification follows a change that was taken back, too"


@pytest.mark.by_name
def test_of_two_runs_at_once_one_waits_or_refuses(mig):
    mig.hang(HOPPER, CREATE)
    first = mig.start(HOPPER, "all-1g.10gb")
    holder = mig.middle(HOPPER, "create GPU instance")
    refused = mig.refused(HOPPER, "all-7g.80gb", nvidia_mig_lock_timeout=0)
    assert f"process {holder}" in refused["msg"] and "lock_timeout" in refused["msg"]
    second = mig.start(HOPPER, FIRST, nvidia_mig_lock_timeout=1000)
    opened = "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -c /run/gpufleet/lock"
    wait(lambda: mig.lab.sh(HOPPER, opened, check=False).strip() == "2")
    mig.clear(HOPPER)
    assert first.end()["changed"]
    assert second.end()["changed"]
    assert [mig.counts(HOPPER, index) for index in (0, 1)] == [{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}] * 2
    assert mig.run(HOPPER, FIRST).get("skipped")


def test_the_real_tools_see_what_is_there_and_what_they_make_is_seen(mig):
    sys.path.insert(0, str(TOOLS))
    try:
        import install
    finally:
        sys.path.remove(str(TOOLS))
    names = ("nvidia-mig-parted", "gpu-feature-discovery")
    playbook = mig.fleet.folder / "tools.yml"
    sources = [TOOLS / "with-machine", *(install.install(install.TOOLS[name]) for name in names)]
    copies = [{"ansible.builtin.copy": {"src": str(file), "dest": "/opt/", "mode": "0755"}} for file in sources]
    playbook.write_text(
        yaml.safe_dump([{"hosts": HOPPER, "gather_facts": False, "become": True, "tasks": copies}]), encoding="utf-8"
    )
    sent = mig.fleet.play(playbook)
    assert sent.rc == 0, sent.text

    ours = mig.fleet.module(HOPPER, "mig_info", {"label": "ours"})["mig_parted"]
    mig.lab.sh(HOPPER, f"cat > /root/ours.yaml <<'END'\n{yaml.safe_dump(ours)}\nEND")
    mig.lab.sh(HOPPER, f"{SHOWN} /opt/nvidia-mig-parted assert --config-file /root/ours.yaml --selected-config ours")
    exported = yaml.safe_load(mig.lab.sh(HOPPER, f"{SHOWN} /opt/nvidia-mig-parted export"))["mig-configs"]["current"]
    assert [entry["mig-devices"] for entry in exported] == [{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}]
    labels = dict(
        line.split("=", 1)
        for line in mig.lab.sh(
            HOPPER,
            f"{SHOWN} /opt/gpu-feature-discovery --oneshot --no-timestamp --use-node-feature-api=false --mig-strategy=mixed "
            "--output-file=/root/labels --machine-type-file=/dev/null >/dev/null 2>&1; cat /root/labels",
        ).splitlines()
    )
    assert {name: labels[f"nvidia.com/mig-{name}.count"] for name in ("3g.40gb", "2g.20gb", "1g.10gb")} == {
        "3g.40gb": "2",
        "2g.20gb": "2",
        "1g.10gb": "4",
    }

    theirs = {
        "version": "v1",
        "mig-configs": {"theirs": [{"devices": "all", "mig-enabled": True, "mig-devices": {"2g.20gb": 3}}]},
    }
    mig.lab.sh(HOPPER, f"cat > /root/theirs.yaml <<'END'\n{yaml.safe_dump(theirs)}\nEND")
    mig.lab.sh(HOPPER, f"{SHOWN} /opt/nvidia-mig-parted apply --config-file /root/theirs.yaml --selected-config theirs")
    seen = mig.fleet.module(HOPPER, "mig_info", {"label": "theirs"})
    assert seen["layout"] == [{"devices": "all", "instances": {"2g.20gb": 3}}]


def test_absent_switches_mig_off_also_after_a_run_that_was_killed_and_keeps_it_off_over_a_reboot(mig):
    state = "systemctl show --value --property=ActiveState nvidia-dcgm"
    mig.lab.sh(HOPPER, "systemctl start nvidia-dcgm")
    mig.hang(HOPPER, "nvmlDeviceSetMigMode")
    services = {"nvidia_mig_restart_services": ["nvidia-dcgm"]}
    run = mig.start(HOPPER, "all-disabled", nvidia_mig_strategy="none", **services)
    victim = mig.middle(HOPPER, "set MIG mode off")
    assert mig.lab.sh(HOPPER, state).strip() == "inactive", "it is out of the way while the mode changes"
    mig.lab.sh(HOPPER, f"kill -9 {victim}")
    mig.clear(HOPPER)
    assert run.end()["failed"]

    answer = mig.fleet.module(HOPPER, "mig", {"state": "absent"})
    assert answer["changed"] and answer["restarted_services"] == ["nvidia-dcgm.service"]
    assert mig.lab.sh(HOPPER, state).strip() == "active", "the next run starts what the killed one had stopped"
    assert mig.modes(HOPPER) == [False, False]
    assert not mig.fleet.module(HOPPER, "mig", {"state": "absent"})["changed"]
    mig.lab.run("reboot", HOPPER)
    assert mig.modes(HOPPER) == [False, False]
