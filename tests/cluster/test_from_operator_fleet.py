# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Driver and container toolkit of three real nodes move from the GPU Operator to the hosts: a run that is killed, and a canary that fails.

The operator is a stand-in, as in C(test_from_operator.py).
"""

from __future__ import annotations

import json

import pytest
from adopted_nodes import OFFERED, OURS, STATE, THEIRS, TO_HOST, operated_lab
from demo import devices, wait_for
from killed_run import counting
from operator_daemon_sets import DRIVER, NAMESPACE, OPERANDS, PLUGIN, PREFIX
from workloads import IMAGE

pytestmark = pytest.mark.by_name

FIRST, SECOND, THIRD = NODES = ("operated-1", "operated-2", "operated-3")
#: A CUDA program that does not run with the host's driver on one node: what a canary is for.
PROOF, BROKEN = "/usr/local/bin/cuda-proof", "/etc/new-driver-is-broken"
#: In the order of a run; C(left) and C(driver) are within C(installing).
STEPS = ("started", "waiting-for-jobs", "evicting", "installing", "left", "driver", "verifying", "returning")
REASON = "gpufleet.github.io/upgrade-failed-reason"


@pytest.fixture(scope="module")
def operated(tmp_path_factory):
    with operated_lab(tmp_path_factory.mktemp("from-operator-fleet"), *NODES) as found:
        for node in NODES:
            found.sh(
                f"printf '#!/bin/sh\\nif [ -e {BROKEN} ]; then echo CUDA error 999; exit 1; fi\\n' > {PROOF}; chmod +x {PROOF}",
                node,
            )
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "sliced"}}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "sliced"},
            "spec": budget,
        }
        found.kubectl("create", "-f", "-", text=json.dumps(body))
        replicas(found, 3)
        found.describe(TO_HOST)
        found.operator.upgrade(found.tree)
        assert found.enabled == (True, True)
        yield found


def replicas(operated, count):
    """Have so many pods on MIG devices, each on one of its own, and return on which nodes they run."""
    operated.kubectl("scale", "deployment", "sliced", f"--replicas={count}")
    pods = wait_for(lambda: len(found := operated.running()) == count and found, 120)
    seen = [operated.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L") for pod in pods]
    assert len({device for listing in seen for device in devices(listing)}) == count
    return sorted(pod["spec"]["nodeName"] for pod in pods)


def as_the_operator_has_it(operated, node):
    """No run has touched the node."""
    assert not operated.record(STATE, node) and not operated.node(node)["spec"].get("unschedulable")
    assert operated.brought_by("true", node) and operated.driver(node) == THEIRS
    assert operated.operands(node) == set(OPERANDS)
    assert operated.offered()[node] == OFFERED


def start_job(operated, node):
    """A pod without a GPU, for which a run is to wait."""
    overrides = json.dumps({"spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}]}})
    named = ("job", f"--image={IMAGE}", "--labels=app=job", f"--overrides={overrides}")
    operated.kubectl("run", *named, "--restart=Never", "--command", "--", "sleep", "86400")
    wait_for(
        lambda: [pod["status"]["phase"] for pod in operated.get("pods", "-l", "app=job")["items"]] == ["Running"], 60
    )


def test_a_migration_to_the_host_that_is_killed_at_every_step_is_resumed_on_one_of_three_real_nodes(operated):
    """Each run starts from what the one before it left on the node. Afterwards the cluster is mixed."""
    limited, jobs = ("--limit", THIRD), {"gpu_node_wait_for_jobs": "app=job"}

    def another_run():
        """While a run holds the Lease."""
        refused = operated.run("migrate", *limited, "-e", json.dumps(operated.options))
        assert refused.returncode != 0 and "has held the fleet lock since" in refused.stdout, refused.stdout[-3000:]
        assert operated.record(STATE, THIRD) == "waiting-for-jobs"

    with counting(operated) as fewest:
        for step in STEPS:
            waits = step == "waiting-for-jobs"
            if waits:
                start_job(operated, THIRD)
            operated.migrate_killed(step, *limited, node=THIRD, at_work=another_run if waits else None, **jobs)
            assert operated.record(STATE, THIRD) not in ("", "done", "failed", "refused"), step
            assert operated.node(THIRD)["spec"]["unschedulable"], step
            assert (operated.labels(THIRD)[f"{PREFIX}driver"] == "false") is (
                STEPS.index(step) > STEPS.index("installing")
            ), step
            for node in (FIRST, SECOND):
                as_the_operator_has_it(operated, node)
            if waits:
                assert operated.get("pods", "-l", "app=job")["items"], "nothing of it was touched"
                operated.kubectl("delete", "pod", "job", "--grace-period=0", "--force")
            if step == "driver":
                assert operated.driver(THIRD) == OURS
        printed = operated.migrate(*limited, **jobs)
        assert f"1 cut off earlier ({THIRD})" in printed
        operated.has_moved(THIRD)
    assert fewest["sliced"] >= 2, "the pods' budget is kept"

    # A mixed cluster: the tree that is rendered again is the same, and the same pods run on all nodes.
    operated.describe(TO_HOST)
    operated.operator.upgrade(operated.tree)
    assert operated.enabled == (True, True), "until the last node is moved"
    for node in (FIRST, SECOND):
        as_the_operator_has_it(operated, node)
    operated.has_moved(THIRD)
    plan = operated.plan()
    assert "0 to change" in plan, plan[-3000:]
    assert replicas(operated, 6) == sorted(NODES * 2)
    replicas(operated, 3)
    assert "changed=0" in operated.migrate(*limited).rpartition("PLAY RECAP")[2]


def test_a_canary_that_fails_leaves_the_other_real_nodes_alone_and_all_are_moved_once_it_is_mended(operated):
    """Two nodes at a time would be allowed, and two of them to be out of service; then one of three."""
    operated.sh(f"touch {BROKEN}", FIRST)
    proof = {"nvidia_health_cuda_check": [PROOF]}
    wide = {**proof, "gpu_upgrade_max_parallel": 2, "gpu_upgrade_max_unavailable": "2"}
    limited = ("--limit", f"{FIRST},{SECOND}")
    refused = operated.run("migrate", *limited, "-e", json.dumps({**operated.options, **wide}))
    assert refused.returncode != 0
    assert operated.record(STATE, FIRST) == "failed", refused.stdout[-3000:]
    assert "CUDA error 999" in operated.record(REASON, FIRST)
    assert operated.node(FIRST)["spec"]["unschedulable"], "nothing goes back by itself"
    assert operated.brought_by("false", FIRST) and operated.driver(FIRST) == OURS
    as_the_operator_has_it(operated, SECOND)
    assert f"left as they were: {SECOND}" in refused.stdout
    wait_for(lambda: len(operated.running()) == 3, 120)

    again = operated.run("migrate", *limited, "-e", json.dumps({**operated.options, **wide}))
    assert again.returncode != 0 and "1 failed" in again.stdout + again.stderr, (
        "it is tried again only where that is asked for"
    )
    as_the_operator_has_it(operated, SECOND)

    operated.sh(f"rm {BROKEN}", FIRST)
    options = {**proof, "gpu_upgrade_max_parallel": 3, "gpu_upgrade_max_unavailable": "1", "gpu_upgrade_canary": 0}
    operated.migrate(**options, gpu_upgrade_retry=True)
    for node in NODES:
        operated.has_moved(node)
    assert DRIVER not in {app for node in NODES for app in operated.operands(node)}
    assert replicas(operated, 6) == sorted(NODES * 2)

    # All pools are moved: the values follow, and nothing of the nodes changes.
    operated.describe({key: value for key, value in TO_HOST.items() if not key.endswith("_migrate_from")})
    assert operated.enabled == (False, False)
    operated.operator.upgrade(operated.tree)
    wait_for(lambda: not operated.get("daemonsets", "-n", NAMESPACE, "-l", f"app={DRIVER}")["items"], 60)
    wait_for(lambda: operated.operator.ready(PLUGIN), 120)
    for node in NODES:
        operated.has_moved(node)
    assert "3 as described, 0 to change" in operated.plan()
