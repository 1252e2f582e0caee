# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps on a node beside NVSentinel, on a real API server with RBAC: its objects are there, and the test does with them what its release 1.28 publishes.

What fault-quarantine and janitor write: fault-quarantine/pkg/common/common.go, docs/tutorials/integrating-external-remediation.md. The definition of
ExternalRemediationRequest has the fields of its own (charts/janitor/crds/external_remediation.crd.yaml) that are used here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
import yaml
from fleet import REPOSITORY, documented_role

GROUP, REQUEST = "nvsentinel.dgxc.nvidia.com", "extrr-1"
NEW, OLD = f"{GROUP}/managed", "k8saas.nvidia.com/ManagedByNVSentinel"
TEXT, TIME = {"type": "string"}, {"type": "string", "format": "RFC3339"}
CONDITION = {"type": TEXT, "status": TEXT, "reason": TEXT, "message": TEXT, "lastTransitionTime": TIME}
EVENT = {"type": "object", "properties": {"nodeName": TEXT}}
SPEC = {"type": "object", "properties": {"healthEvent": EVENT}}
CONDITIONS = {"type": "array", "items": {"type": "object", "properties": CONDITION}}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"externalremediationrequests.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Cluster",
        "names": {
            "kind": "ExternalRemediationRequest",
            "plural": "externalremediationrequests",
            "singular": "externalremediationrequest",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": SPEC,
                            "status": {"type": "object", "properties": {"conditions": CONDITIONS}},
                        },
                    }
                },
            }
        ],
    },
}
REQUESTED = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "ExternalRemediationRequest",
    "metadata": {"name": REQUEST},
    "spec": {"healthEvent": {"nodeName": "a"}},
}
EVENTS = ("quarantineHealthEvent", "quarantineHealthEventIsCordoned")


@pytest.fixture(scope="module")
def plane():
    from nodes.control_plane import control_plane

    with control_plane() as found:
        text = (REPOSITORY / "docs" / "heal.md").read_text(encoding="utf-8")
        (role,) = re.findall(r"```yaml\n(kind: ClusterRole\n.*?)```", text, re.DOTALL)
        found.allow_operator(f"{documented_role()}---\n{role}")
        found.kubectl("create", "-f", "-", text=yaml.safe_dump(DEFINITION))
        found.kubectl("wait", "--for=condition=Established", f"crd/externalremediationrequests.{GROUP}")
        yield found


@pytest.fixture
def node(plane):
    """A node in service that NVSentinel manages."""
    labels = {f"{GROUP}/driver.installed": "true", "nvidia.com/gpu.present": "true"}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": labels}}
    plane.kubectl("create", "-f", "-", text=yaml.safe_dump(document))
    yield lambda: read(plane, "node", "a")
    plane.kubectl("delete", "node", "a")


def read(plane, *what):
    return json.loads(plane.kubectl("get", *what, "-o", "json").stdout)


def step(plane, action, state, **options):
    """Run an action as a playbook does, with the rights that the documentation asks for."""
    given = {"action": action, "node": "a", "state": state, "kubeconfig": str(plane.operator), **options}
    command = [REPOSITORY / ".venv" / "bin" / "ansible", "localhost", "-i", "localhost,", "-m", "gpufleet.nvidia.node"]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
        "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }
    return subprocess.run(
        [*command, "-a", json.dumps(given)], capture_output=True, text=True, check=False, env=environment
    )


def managed(node):
    """Whether fault-quarantine acts on the node: neither label may be false."""
    labels = node["metadata"]["labels"]
    return "false" not in (labels.get(NEW), labels.get(OLD))


def quarantine(plane):
    """As fault-quarantine does after a fatal event."""
    notes = {EVENTS[0]: "[{}]", EVENTS[1]: "True"}
    patch = {"metadata": {"annotations": notes}, "spec": {"unschedulable": True}}
    plane.kubectl("patch", "node", "a", "--type=merge", "-p", json.dumps(patch))


def release(plane):
    """As janitor does with a new request: taint and label in one update, then its condition."""
    plane.kubectl("create", "-f", "-", text=yaml.safe_dump(REQUESTED))
    taint = {"key": f"{GROUP}/external-remediation", "value": REQUEST, "effect": "NoSchedule"}
    patch = {"metadata": {"labels": {NEW: "false"}}, "spec": {"taints": [taint]}}
    plane.kubectl("patch", "node", "a", "--type=merge", "-p", json.dumps(patch))
    status = {"NVSentinelOwnershipReleased": "True", "ExternalRemediationComplete": "Unknown"}
    conditions = [{"type": name, "status": value} for name, value in status.items()]
    merge = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": {"conditions": conditions}}))
    plane.kubectl("patch", f"externalremediationrequests.{GROUP}", REQUEST, *merge)


def conditions(plane):
    found = read(plane, f"externalremediationrequests.{GROUP}", REQUEST)["status"]["conditions"]
    return {one["type"]: one for one in found}


def test_it_leaves_a_node_alone_from_the_cordon_to_the_uncordon(plane, node):
    assert managed(node())
    for _resumed in range(2):
        done = step(plane, "repartition_node", "started")
        assert done.returncode == 0, done.stdout
        assert node()["spec"]["unschedulable"] and not managed(node())
    done = step(plane, "repartition_node", "done")
    assert done.returncode == 0, done.stdout
    assert "unschedulable" not in node()["spec"] and managed(node())
    assert not {NEW, OLD} & node()["metadata"]["labels"].keys()


def test_a_node_that_it_has_quarantined_is_not_taken(plane, node):
    quarantine(plane)
    before = node()
    done = step(plane, "upgrade_node", "started", target="580", origin="570")
    assert done.returncode != 0
    assert "NVSentinel has quarantined it" in done.stdout, done.stdout
    assert node() == before


def test_a_request_for_repair_is_answered_and_it_takes_the_node_back(plane, node):
    quarantine(plane)
    release(plane)
    plan = {"action": "nothing", "remediation": REQUEST}
    options = {"plan": plan, "members": ["a"], "nvsentinel": "remediate"}
    for state in ("started", "done"):
        assert conditions(plane)["ExternalRemediationComplete"]["status"] == "Unknown"
        done = step(plane, "heal_node", state, **options)
        assert done.returncode == 0, done.stdout
    found = conditions(plane)
    assert found["NVSentinelOwnershipReleased"]["status"] == "True", "the list was written as a whole"
    assert (found["ExternalRemediationComplete"]["status"], found["ExternalRemediationComplete"]["reason"]) == (
        "True",
        "Repaired",
    )
    # Its uncordon is its own: janitor removes the label and the taint, and fault-quarantine then sees a healthy node.
    assert node()["spec"]["unschedulable"] and node()["metadata"]["annotations"].keys() >= {*EVENTS}
    plane.kubectl("label", "node", "a", f"{NEW}-")
    assert managed(node())
