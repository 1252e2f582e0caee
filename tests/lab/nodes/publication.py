# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rendered tree, pushed to the repository that Argo CD syncs, as a user does it.

One thing is another than at a site, and it is a commit of its own: no repository of the projects can be reached here, so the
Applications are sent to the lab's, with the versions that it has. Everything else is synced as it was rendered.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from hosts.commands import run
from hosts.progress import LabError, Progress

from .argocd import NAMESPACE, ArgoCD, commit_all
from .control_plane import ControlPlane

#: A chart among the sources of a rendered Application.
_CHART = re.compile(r"repoURL: (\S+)(\n\s+chart: (\S+)\n\s+targetRevision: )(\S+)")
#: A folder of definitions among them.
_DEFINITIONS = re.compile(r"repoURL: (https://github\.com/\S+)(\n\s+targetRevision: )(v\S+)(?=\n\s+path: )")
#: The Application that syncs the others.
ROOT = "gpufleet"


class Publication:
    """What is in the repository.

    :param argocd: whose repository it is.
    """

    def __init__(self, argocd: ArgoCD, plane: ControlPlane, progress: Progress) -> None:
        self._argocd = argocd
        self._plane = plane
        self._progress = progress
        self._checkout = argocd.data / "checkout"

    def publish(self, tree: Path, message: str) -> None:
        """Push the tree and, the first time, point a root Application at the Applications in it.

        :raises LabError: the tree has no cluster, or needs a chart that the lab has not.
        """
        clusters = sorted(path.name for path in tree.glob("clusters/*") if (path / "argocd").is_dir())
        if len(clusters) != 1:
            raise LabError(
                f"Failed to publish {tree}: it has Applications of {len(clusters)} clusters below clusters/, not of one. "
                "Render it with gpu_kubernetes_gitops: argocd."
            )
        self._clone()
        for entry in self._checkout.iterdir():
            if entry.name != ".git":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(tree, self._checkout, dirs_exist_ok=True)
        self._commit(message)
        for file in sorted((self._checkout / "clusters" / clusters[0] / "argocd").glob("*.yaml")):
            text, said = from_the_lab(
                file.read_text(encoding="utf-8"),
                self._argocd.charts(),
                self._argocd.charts_url,
                self._argocd.definitions_url,
            )
            file.write_text(text, encoding="utf-8")
            for line in said:
                self._progress.say(f"{file.stem}: {line}")
        self._commit("Take the charts from the lab's Helm repository")
        self._git("push", "--quiet", "origin", "main")
        self._progress.say(f"pushed {self._git('rev-parse', '--short', 'HEAD').strip()} to {self._argocd.git_url}")
        self._plane.kubectl("apply", "-f", "-", text=json.dumps(_root(self._argocd.git_url, clusters[0])))

    def _clone(self) -> None:
        if not self._checkout.is_dir():
            run(["git", "clone", "--quiet", self._argocd.git_url, self._checkout])
            self._git("checkout", "-q", "-B", "main")

    def _commit(self, message: str) -> None:
        commit_all(self._checkout, message)

    def _git(self, *arguments: str) -> str:
        return run(["git", "-C", self._checkout, *arguments])


def from_the_lab(text: str, versions: Mapping[str, str], url: str, definitions: str = "") -> tuple[str, list[str]]:
    """Return an Application whose charts come from C(url) and definitions from C(definitions), and a line for each that says what was put in place of what.

    :raises LabError: a chart that is not there.
    """
    said: list[str] = []

    def replace(found: re.Match[str]) -> str:
        repository, between, chart, version = found.groups()
        if chart not in versions:
            raise LabError(
                f"Failed to publish: the lab has no chart {chart}, only {', '.join(sorted(versions))}. Render without it."
            )
        said.append(f"chart {chart} {versions[chart]} of {url} in place of {version} of {repository}")
        return f"repoURL: {url}{between}{versions[chart]}"

    def replace_definitions(found: re.Match[str]) -> str:
        repository, between, tag = found.groups()
        said.append(f"definitions of {definitions} in place of {tag} of {repository}")
        return f"repoURL: {definitions}{between}main"

    return _DEFINITIONS.sub(replace_definitions, _CHART.sub(replace, text)), said


def _root(url: str, cluster: str) -> dict[str, object]:
    """As the documentation says: an Application of the folder argocd/."""
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": ROOT, "namespace": NAMESPACE},
        "spec": {
            "project": "default",
            "source": {"repoURL": url, "targetRevision": "main", "path": f"clusters/{cluster}/argocd"},
            "destination": {"name": "in-cluster", "namespace": NAMESPACE},
            "syncPolicy": {"automated": {"prune": True, "selfHeal": True}},
        },
    }
