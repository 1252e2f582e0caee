# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real helm, a real API server, and the trees that the generator makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]

sys.path[:0] = [str(HERE), str(REPOSITORY / "tests" / "lab")]


def pytest_configure(config):
    config.addinivalue_line("markers", "charts: needs the real helm, and kube-apiserver with etcd (built once)")


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(item.fspath).parents:
            item.add_marker(pytest.mark.charts)


@pytest.fixture(scope="session")
def helm(tmp_path_factory):
    """Return a function that runs the pinned helm and answers what it printed."""
    built = subprocess.run([HERE / "build-helm.sh"], stdout=subprocess.PIPE, text=True, check=True)
    binary = built.stdout.strip().splitlines()[-1]
    home = tmp_path_factory.mktemp("helm")

    def run(*arguments, check=True, **environment):
        done = subprocess.run(
            [binary, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={"PATH": "/usr/bin:/bin", "HOME": str(home), **environment},
        )
        if check and done.returncode:
            raise AssertionError(f"helm {' '.join(map(str, arguments))}:\n{done.stdout}\n{done.stderr}")
        return done

    return run


@pytest.fixture(scope="session")
def newest():
    """Return a real control plane of the newest release, which all files share."""
    from nodes.control_plane import control_plane

    with control_plane() as plane:
        yield plane


def _releases():
    from nodes.programs import KUBERNETES, OLDEST_KUBERNETES

    return [KUBERNETES, pytest.param(OLDEST_KUBERNETES, marks=pytest.mark.by_name)]


@pytest.fixture(scope="session", params=_releases())
def cluster(request):
    """Return a real control plane; a whole run asks everything of the oldest release, too."""
    from nodes.control_plane import control_plane
    from nodes.programs import KUBERNETES

    if request.param == KUBERNETES:
        yield request.getfixturevalue("newest")
    else:
        with control_plane(request.param) as plane:
            yield plane


@pytest.fixture(scope="session")
def installed(helm, cluster, tmp_path_factory):
    """Install the chart with helm; wait until the API server enforces what it was given."""
    from test_policies import CHART, DENY, EXEMPT, enforced

    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(json.dumps(DENY))
    for namespace in ("gpu", "work", "exempt"):
        cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("label", "namespace", "exempt", f"{EXEMPT}=true")
    answer = helm("install", "test", CHART, "--namespace", "gpu", "-f", values, KUBECONFIG=str(cluster.kubeconfig))
    assert "STATUS: deployed" in answer.stdout
    assert "helm test test --namespace gpu" in answer.stdout
    enforced(cluster)
    return cluster


@pytest.fixture(scope="session")
def demo_tree(tmp_path_factory):
    """Return the directory that ansible-playbook makes of the demo's inventory."""
    root = tmp_path_factory.mktemp("tree")
    render(REPOSITORY / "examples" / "fleet", root)
    return root / "clusters" / "demo"


def render(inventory, root, *arguments):
    """Run the playbook gpufleet.nvidia.render and return what it printed."""
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            str(inventory),
            "gpufleet.nvidia.render",
            "-e",
            f"gpu_kubernetes_output_directory={root}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
            "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
