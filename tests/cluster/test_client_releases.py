# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The oldest and the newest release of the kubernetes client that meta/ee-requirements.txt allows, against a real API server.

Each is installed with what it needs into a folder of its own, which is asked before what the other tests run with; the newest is whatever the package
registry has now.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
COLLECTIONS = REPOSITORY / "build" / "collections"
REQUIREMENT = next(
    Requirement(line)
    for line in (REPOSITORY / "meta" / "ee-requirements.txt").read_text(encoding="utf-8").splitlines()
    if line.startswith("kubernetes")
)
_BOUNDS = {part.operator: part.version for part in REQUIREMENT.specifier}
OLDEST = f"{_BOUNDS['>=']}.0.0"
RELEASES = {"oldest": f"kubernetes=={OLDEST}", "newest": str(REQUIREMENT)}


@pytest.fixture(scope="module", params=RELEASES)
def client(request, tmp_path_factory):
    """The folder with that release of the client."""
    folder = tmp_path_factory.mktemp(request.param)
    options = ["--quiet", "--no-compile", "--disable-pip-version-check", "--target", folder]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, RELEASES[request.param]], check=True)
    return folder


@pytest.fixture(scope="module")
def plane():
    from nodes.control_plane import control_plane

    with control_plane() as found:
        for name in ("a", "b"):
            create(found, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        yield found


def create(plane, document):
    plane.kubectl("apply", "-f", "-", text=yaml.safe_dump(document))


def workloads(plane):
    """Three pods on node a; a budget that nobody computes, so that it allows nothing, keeps one of them."""
    for name in ("free", "kept", "other"):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
            # There is no kubelet that would say that it has ended.
            "spec": {
                "nodeName": "a",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "work", "image": "work"}],
            },
        }
        create(plane, pod)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    create(plane, budget)


@pytest.fixture
def answers(plane, client, tmp_path):
    workloads(plane)
    dead = tmp_path / "dead"
    dead.write_text(re.sub(r"https://127\.0\.0\.1:[0-9]+", "https://127.0.0.1:9", plane.kubeconfig.read_text()))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, HERE / "client_calls.py", COLLECTIONS, plane.kubeconfig, plane.operator, dead]
    alone = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(client)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=alone)
    assert done.returncode == 0, done.stderr[-4000:]
    # The client writes certificates of a kubeconfig to files, and removes them when it ends.
    assert not list(temporary.iterdir()), "no cache of discovery is left for others to read or to fill"
    return json.loads(done.stdout)


def test_every_call_answers_the_same_with_every_release(answers, request):
    release = answers.pop("release")
    if "oldest" in request.node.name:
        assert release == OLDEST
    else:
        assert int(release.partition(".")[0]) == int(_BOUNDS["<"]) - 1, "nothing newer than that is allowed"
    status, refused = answers.pop("refused patch")
    assert status == 422
    assert refused.startswith('Failed to change node a: Node "a" is invalid: metadata.labels: Invalid value: ')
    assert answers == {
        "nodes": ["a", "b"],
        "missing node": [404, 'Failed to read node nobody: nodes "nobody" not found'],
        "patched": {"annotations": {"gpufleet.github.io/two": "2"}, "label": "y", "unschedulable": True},
        "uncordoned": None,
        "pods": ["free", "kept", "other"],
        "pods on a": ["free", "kept", "other"],
        "pods on b": [],
        "labelled pods": ["kept"],
        "daemon sets": [],
        "evict another": None,
        "evict kept": (
            "Failed to evict pod default/kept: Cannot evict pod as it would violate the pod's disruption budget. "
            "The disruption budget kept is still being processed by the server."
        ),
        "evict": None,
        "evict again": None,
        "deleted": [None, None, None],
        "status": {"nvidia.com/gpu": "2"},
        "left": ["kept"],
        "pages": [["a"], ["b"]],
        "no lease": None,
        "lease": [True, False, True, False, {"holderIdentity": "me", "leaseDurationSeconds": 60}],
        "forbidden": [
            403,
            'Failed to list the nodes: nodes is forbidden: User "operator" cannot list resource "nodes" in API group "" at the cluster '
            "scope",
        ],
        "dead": [0, "Failed to list the nodes: [Errno 111] Connection refused"],
        "waits": 1,
    }  # fmt: skip
