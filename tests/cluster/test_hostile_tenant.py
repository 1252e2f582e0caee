# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every playbook of day two on a real node that a tenant shares who makes trouble: each ends as it does without them, and in time."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from dataclasses import replace

import hostile_tenant
import pytest
from demo import wait_for
from pool_nodes import CDI

#: The driver that the lab's nodes have, and one to upgrade to.
OLD, NEW = "580.178.04", "595.91.07"
LAYOUT = {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
NIGHT = {"3g.40gb": 1, "1g.10gb": 4}
PLUGIN = "app.kubernetes.io/name=nvidia-device-plugin"
#: What the plugin's chart has beside it, with the same label.
BESIDE = ("-mps-control-daemon", "-gpu-feature-discovery")
#: What a run may take longer than one without the tenant, who is not waited for: less than any of the waits that a run has.
PATIENCE = {"gpu_node_clients_timeout": 90, "gpu_node_ready_timeout": 240, "gpu_node_evict_timeout": 60}
TO_CLAIMS = {"nvidia_sharing_backend": "dra", "nvidia_sharing_migrate_from": "mps"}
BACK = {"nvidia_sharing_backend": "mps", "nvidia_sharing_migrate_from": "dra"}


def described(nodes, layout=None, **variables):
    nodes.describe(
        {
            "nvidia_toolkit_device_injection": "cdi",
            "nvidia_mig_strategy": "mixed",
            "nvidia_mig_layout": [{"devices": "all", "instances": layout or LAYOUT}],
            **variables,
        }
    )


def of_driver(version):
    branch = version.partition(".")[0]
    return {"nvidia_driver_state": "present", "nvidia_driver_branch": branch, "nvidia_driver_version": version}


def device_plugin(nodes):
    """The DaemonSet that the tenant's pods imitate."""
    (found,) = [
        one
        for one in nodes.get("daemonsets", "-n", "nvidia-gpu", "-l", PLUGIN)["items"]
        if not one["metadata"]["name"].endswith(BESIDE)
    ]
    return found


def forged(mark):
    """How many records with this mark the kernel of this machine has printed."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    return sum(1 for line in log.splitlines() if mark in line)


@pytest.fixture(scope="module")
def attacked(make_pools):
    nodes = make_pools({"training": [CDI]})
    described(nodes)
    nodes.site()
    nodes.offers_what_is_rendered(300)
    real = device_plugin(nodes)
    mark = f"mark-{uuid.uuid4().hex[:8]}"
    before = {name: nodes.report(name) for name in ("plan", "inspect")}
    items = hostile_tenant.objects(CDI, real["metadata"]["uid"], mark)
    nodes.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    try:
        wait_for(lambda: running(nodes) >= {"never-ready", "looks-like-the-plugin", "writes-to-the-kernels-log"}, 120)
        wait_for(lambda: forged(mark) >= 2, 60)
        yield nodes, before
    finally:
        nodes.kubectl("delete", "resourceslice", "forged", "--ignore-not-found")
        nodes.kubectl("delete", "namespace", hostile_tenant.NAMESPACE, "--timeout=120s")


def running(nodes):
    """What of the tenant runs."""
    pods = nodes.get("pods", "-n", hostile_tenant.NAMESPACE)["items"]
    return {pod["metadata"]["labels"]["tenant"] for pod in pods if pod["status"]["phase"] == "Running"}


def run(nodes, playbook, **values):
    """Run a playbook, which must end well and within what it takes on an honest node, and say nothing of the tenant."""
    given = {"gpu_cluster_kubeconfig": nodes.lab("kubeconfig").strip(), **PATIENCE, **values}
    began = time.monotonic()
    shown = nodes.play(playbook, "-e", json.dumps(given))
    assert time.monotonic() - began < 600
    for word in ("never-ready", "says-it-serves", "looks-like-the-plugin", "ffff:ff"):
        assert word not in shown, shown[-4000:]
    return shown


def works(nodes):
    """The node is in service, and offers what is rendered."""
    wait_for(lambda: not nodes.get("node", CDI)["spec"].get("unschedulable"), 10)
    nodes.offers_what_is_rendered(120)
    assert "gpufleet.github.io/gpu-clients" not in nodes.labels(CDI)
    assert running(nodes) >= {"never-ready", "looks-like-the-plugin"}, "the tenant is there still"


def verify(nodes, _before):
    assert f"{CDI}: as described; works" in run(nodes, "verify")


def heal(nodes, _before):
    """The records in the kernel's log are nobody's fault."""
    assert "drain" not in run(nodes, "heal").lower()


def repartition(nodes, _before):
    for layout in (NIGHT, LAYOUT):
        described(nodes, layout)
        run(nodes, "repartition")
        works(nodes)


def upgrade(nodes, _before):
    """And back. The plugin leaves while the driver changes; the tenant's DaemonSet would have to, too, if it were one."""
    rollout = {"gpu_upgrade_canary": 0, "gpu_upgrade_max_unavailable": "100%", "gpu_upgrade_retry": True}
    for playbook, version in (("upgrade", NEW), ("rollback", OLD)):
        described(nodes, **of_driver(version))
        run(nodes, playbook, **rollout)
        assert nodes.lab("exec", CDI, "--", "cat", "/sys/module/nvidia/version").strip() == version
        works(nodes)


def migrate(nodes, _before):
    """To claims and back. What the tenant says to serve them need not be ready, and forged slices need not leave."""
    for variables, server in ((TO_CLAIMS, "dra"), (BACK, "device-plugin")):
        described(nodes, **variables)
        nodes.play("render")
        nodes.lab("charts", str(nodes.tree))
        run(nodes, "migrate")
        assert nodes.labels(CDI)["gpufleet.github.io/migrated-to"] == server
        assert not nodes.get("node", CDI)["spec"].get("unschedulable")
    described(nodes)
    nodes.site()


def remove(nodes, _before):
    """And everything again. It touches nothing where somebody uses a GPU, which the tenant does not."""
    for release in nodes.releases():
        nodes.helm("uninstall", release, "--no-hooks", "--wait")
    run(nodes, "remove")
    nodes.lab("exec", CDI, "--", "test", "!", "-e", "/usr/local/lib/gpufleet")
    nodes.site()


def plan(nodes, before):
    assert nodes.report("plan")["hosts"] == before["plan"]["hosts"]


def inspect(nodes, before):
    found = nodes.report("inspect")
    assert {name: found[name] for name in ("mismatches", "total")} == {
        name: before["inspect"][name] for name in ("mismatches", "total")
    }


def site(nodes, _before):
    run(nodes, "site")


def doctor(nodes, _before):
    run(nodes, "doctor")


def adopt(nodes, _before):
    """It names what looks like a device plugin, and reads the real one."""
    inventory, directory = nodes.folder / "unknown.json", nodes.folder / "adopted"
    known = json.loads(nodes.inventory.read_text())["all"]
    hosts = known["children"]["gpu_hosts"]["children"]["training"]["hosts"]
    inventory.write_text(json.dumps({"all": {"vars": known["vars"], "hosts": hosts}}))
    found = replace(nodes, inventory=inventory)
    shown = " ".join(run(found, "adopt", gpu_adopt_directory=str(directory)).split())
    assert f"decided nothing: {hostile_tenant.NAMESPACE}/is-a-plugin" in shown
    written = "".join(path.read_text() for path in directory.rglob("*.yml"))
    assert "gpu_kubernetes_namespace: nvidia-gpu" in written and "nvidia_mig_strategy: mixed" in written


#: The first three by default.
EVERY = (verify, heal, plan, inspect, site, doctor, adopt, repartition, upgrade, migrate, remove)


@pytest.mark.parametrize(
    "playbook",
    [
        pytest.param(one, marks=[pytest.mark.by_name] * (number > 2), id=one.__name__)
        for number, one in enumerate(EVERY)
    ],
)
def test_a_playbook_ends_as_if_the_tenant_were_not_there(attacked, playbook):
    nodes, before = attacked
    described(nodes)
    playbook(nodes, before)
    works(nodes)
