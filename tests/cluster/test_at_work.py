# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repartition, verify and inspect real nodes at work."""

from __future__ import annotations

import json
import re

import pytest
from fleet import LAYOUT, NODES, OLD
from workloads import IMAGE, PLUGIN, PLUGIN_NAMESPACE, working

FIRST = NODES[0]
NIGHT = [{"devices": "all", "instances": {"3g.40gb": 1, "1g.10gb": 4}}]


@pytest.fixture
def at_work(fleet):
    """A pod on each kind of instance of the first node."""
    for name, profile, count in (("large", "3g.40gb", 1), ("middle", "2g.20gb", 2), ("small", "1g.10gb", 3)):
        resource = f"nvidia.com/mig-{profile}"
        fleet.workloads.workload(name, count, resource, nodeSelector={"kubernetes.io/hostname": FIRST})
    fleet.wait_for(lambda: fleet.workloads.complete("large", "middle", "small"))
    yield fleet
    fleet.forget()
    if "2g.20gb" not in fleet.sh(FIRST, "nvidia-smi -L"):
        assert fleet.run("repartition", "--limit", FIRST, "--skip-tags", "cluster", driver=OLD).status == 0


def uids(fleet, name):
    return set(fleet.workloads.places(name))


def rendered(fleet):
    """Return the files of the cluster's tree by path, and what it predicts of every node."""
    (folder,) = fleet.folder.glob("gitops/clusters/*")
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    document = json.loads(files["capacity.json"])
    return files, {node: entry["resources"] for node, entry in document["nodes"].items()}


def test_a_new_layout_evicts_only_the_pods_on_instances_that_go(at_work):
    """On one of three nodes that the inventory describes alike; the tree of the cluster follows it there and back."""
    described = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": LAYOUT}
    inventory = at_work.folder / "day.yml"
    inventory.write_text(json.dumps({"gpu_hosts": {"vars": described}}))
    arguments = ("repartition", "-i", str(inventory))
    options = {"driver": OLD, **dict.fromkeys(described)}
    day = at_work.run(*arguments, **options)
    assert day.status == 0, day.output[-3000:]
    by_day, resources = rendered(at_work)
    assert [resources[node]["nvidia.com/mig-1g.10gb"] for node in NODES] == [4, 4, 4]

    # A tenant's pod with the plugin's labels is no concern of ours: neither restarted nor waited for.
    tenant = {**working(), "nodeName": FIRST}
    labels = f"--labels=app=tenant,{PLUGIN}"
    at_work.plane.kubectl("run", "tenant", f"--image={IMAGE}", labels, f"--overrides={json.dumps({'spec': tenant})}")
    claimed = uids(at_work, "tenant")
    before = {name: uids(at_work, name) for name in ("large", "middle", "small")}
    options["nvidia_mig_layout"] = NIGHT
    shown = at_work.run(*arguments, "--check", "--limit", FIRST, **options)
    assert shown.status == 0, shown.output[-3000:]
    assert rendered(at_work)[0] == by_day
    assert "devices deleted: 2; evicted: default/middle-" in shown.output
    assert {name: uids(at_work, name) for name in before} == before, "check mode touches nothing"

    run = at_work.run(*arguments, "--limit", FIRST, **options)
    assert run.status == 0, run.output[-3000:]
    assert uids(at_work, "large") == before["large"]
    assert uids(at_work, "small") == before["small"]
    assert not uids(at_work, "middle") & before["middle"], "their instances are gone"
    assert {pod["status"]["phase"] for pod in at_work.workloads.pods("middle")} == {"Pending"}
    assert at_work.workloads.offered(FIRST) == {"nvidia.com/mig-1g.10gb": 8, "nvidia.com/mig-3g.40gb": 2}
    assert not at_work.cordoned(FIRST)
    assert not at_work.workloads.annotations(FIRST)

    by_night, resources = rendered(at_work)
    assert [resources[node]["nvidia.com/mig-1g.10gb"] for node in NODES] == [8, 4, 4]
    assert ["nvidia.com/mig-2g.20gb" in resources[node] for node in NODES] == [False, True, True]
    served = ("values/", "objects/", "node-labels/")
    changed = [name for name, text in by_night.items() if name.startswith(served) and by_day.get(name) != text]
    assert not changed, "the layout is the host's alone: no node gets another label, and no plugin starts again by it"

    back = at_work.run(*arguments, "--limit", FIRST, **{**options, "nvidia_mig_layout": None})
    assert back.status == 0, back.output[-3000:]
    assert rendered(at_work)[0] == by_day
    assert uids(at_work, "large") == before["large"]
    assert uids(at_work, "small") == before["small"], "three of eight fit beside two larger instances"
    assert uids(at_work, "tenant") == claimed
    at_work.plane.kubectl("delete", "pod", "tenant", "--grace-period=1")


def test_a_repartition_that_is_cut_off_is_finished_by_the_next_run(at_work):
    arguments = ("repartition", "--limit", FIRST, "--skip-tags", "cluster")
    kept = uids(at_work, "large")
    run = at_work.start(*arguments, driver=OLD, nvidia_mig_layout=NIGHT)
    at_work.wait_for(lambda: at_work.sh(FIRST, "nvidia-smi -L").count("MIG 1g.10gb") == 8)
    # The layout is the new one; the node is not given back yet.
    run.kill()
    assert at_work.cordoned(FIRST)
    again = at_work.run(*arguments, driver=OLD, nvidia_mig_layout=NIGHT)
    assert again.status == 0, again.output[-3000:]
    assert not at_work.cordoned(FIRST)
    assert not at_work.workloads.annotations(FIRST)
    assert at_work.workloads.offered(FIRST)["nvidia.com/mig-1g.10gb"] == 8
    assert uids(at_work, "large") == kept
    third = at_work.run(*arguments, driver=OLD, nvidia_mig_layout=NIGHT)
    assert third.status == 0
    assert "changed=0" in third.output, "nothing is left to continue"


@pytest.fixture
def no_new_plugin(at_work):
    """The image of the device plugin is gone from the first node, and no registry has it: who runs goes on, nobody starts."""
    shown = at_work.plane.kubectl("get", "pods", "-n", PLUGIN_NAMESPACE, "-l", PLUGIN, "-o", "json").stdout
    images = {container["image"] for pod in json.loads(shown)["items"] for container in pod["spec"]["containers"]}
    at_work.sh(FIRST, f"ctr --namespace k8s.io images rm --sync {' '.join(images)}")

    def back():
        at_work.sh(FIRST, "rm -r /var/lib/containerd/gpufleet-lab-images && /usr/lib/gpufleet-lab/import-images")

    yield back
    back()


def test_a_node_whose_plugin_does_not_come_back_stays_out_of_service(at_work, no_new_plugin):
    at_work.sh(FIRST, "echo '{}' > /var/lib/gpufleet/repartition.json")
    arguments = ("repartition", "--limit", FIRST, "--skip-tags", "cluster")
    run = at_work.run(*arguments, driver=OLD, gpu_node_ready_timeout=10)
    assert run.status != 0
    assert "plugin pods: nvidia-gpu/nvidia-device-plugin-" in run.output, run.output[-3000:]
    assert at_work.cordoned(FIRST)
    no_new_plugin()
    again = at_work.run(*arguments, driver=OLD)
    assert again.status == 0, again.output[-3000:]
    assert not at_work.cordoned(FIRST)


def test_verify_finds_a_node_that_offers_something_else(at_work, tmp_path):
    report = tmp_path / "verify.json"
    options = {"gpu_cluster_kubeconfig": str(at_work.plane.kubeconfig), "gpu_verify_report": str(report), "driver": OLD}
    good = at_work.run("verify", "--limit", FIRST, **options)
    assert good.status == 0, good.output[-3000:]
    # A kubelet that runs would say the truth again; one that is silent is missed after 40 s only.
    at_work.sh(FIRST, "systemctl stop kubelet")
    try:
        patch = {"status": {"allocatable": {"nvidia.com/mig-1g.10gb": "3"}}}
        at_work.plane.kubectl("patch", "node", FIRST, "--subresource=status", "-p", json.dumps(patch))
        bad = at_work.run("verify", "--limit", FIRST, **options)
    finally:
        at_work.sh(FIRST, "systemctl start kubelet")
    assert bad.status != 0
    found = json.loads(report.read_text())[FIRST]
    assert found["failed_check"] == "allocatable"
    assert "nvidia.com/mig-1g.10gb: 3 instead of 4" in bad.output
    at_work.wait_for(lambda: at_work.workloads.offered(FIRST)["nvidia.com/mig-1g.10gb"] == 4)


def test_a_plan_against_the_cluster_names_the_pods_that_a_change_disturbs(at_work, tmp_path):
    report = tmp_path / "plan.json"
    options = {"gpu_cluster_kubeconfig": str(at_work.plane.kubeconfig), "gpu_plan_report": str(report)}
    run = at_work.run("plan", "--limit", FIRST, **options)
    assert run.status != 0, "there is drift"
    found = json.loads(report.read_text())["hosts"][FIRST]
    assert "driver" in found["changes"]
    assert len([who for who in found["disturbs"] if who.startswith("pod default/")]) == 6
    assert found["node"]["differs"] == []
    assert found["reboot"] == "needed", "the plugin's pod has the driver open"
    (host,) = [who for who in found["disturbs"] if who.startswith("the host, ")]
    assert re.search(r"needs a reboot .*: nvidia-device-p \(PID \d+.*\) uses the driver", host)
    assert "8 MIG instances, which a reload destroys" in " ".join(found["disturbs"])
    assert "0 to change, 1 impossible" in run.output
    (refused,) = found["impossible"]
    assert "is in use by" in refused and refused.count("pod default/") == 6 and "gpufleet.nvidia.upgrade" in refused
    wrong = at_work.run("plan", "--limit", FIRST, gpu_cluster_kubecnofig="x")
    assert wrong.status != 0
    assert "Did you mean gpu_cluster_kubeconfig?" in wrong.output
    assert "Read the host" not in wrong.output, "nothing was asked of any host"


def test_inspect_shows_who_holds_what(at_work, tmp_path):
    page = tmp_path / "gpus.html"
    run = at_work.run(
        "inspect",
        driver=OLD,
        gpu_cluster_kubeconfig=str(at_work.plane.kubeconfig),
        gpu_inspect_unit="units",
        gpu_inspect_html=str(page),
    )
    assert run.status == 0, run.output[-3000:]
    rows = [line.split() for line in run.output.splitlines() if line.startswith("gpu-node-")]
    assert rows[0][-1] == "6/8"
    assert [row[-1] for row in rows[1:3]] == ["0/8", "0/8"]
    assert "6/24 (25%)" in run.output
    assert "default/large-" in page.read_text()
