# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo's hosts as nodes that Argo CD brings to what was rendered and pushed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml
from demo import Demo

#: Its image is one of those that is not available here.
WITHOUT_EXPORTER = "gpu_kubernetes_dcgm_exporter=false"


@dataclass(frozen=True)
class GitOps(Demo):
    """A demo with Argo CD beside its cluster."""

    @cached_property
    def url(self) -> str:
        """Of the git repository; starts Argo CD where it does not run."""
        return self.lab("argocd").splitlines()[-1]

    def variables(self) -> list[str]:
        """For a play: the tree for this repository."""
        return ["-e", f"gpu_kubernetes_gitops_repository={self.url}", "-e", WITHOUT_EXPORTER]

    def publish(self, message: str) -> str:
        """Push the rendered tree; return the commit."""
        self.lab("publish", str(self.folder / "gitops"), "--message", message)
        return self.head

    @property
    def head(self) -> str:
        command = ["git", "ls-remote", self.url, "refs/heads/main"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]

    def applications(self) -> dict[str, dict[str, Any]]:
        return {item["metadata"]["name"]: item for item in self.get("applications", "-n", "argocd")["items"]}

    def expected(self) -> set[str]:
        """The Applications that the tree holds, and the one above them."""
        files = (self.tree / "argocd").glob("*.yaml")
        return {"gpufleet", *(yaml.safe_load(path.read_text())["metadata"]["name"] for path in files)}

    def unfinished(self, commit: str) -> dict[str, str]:
        """What is not synced to a commit, or not healthy: name to its state; empty when all is done."""
        found = self.applications()
        states = {name: state(found[name], commit) if name in found else "not there yet" for name in self.expected()}
        removed = dict.fromkeys(found.keys() - self.expected(), "to be removed")
        return {name: text for name, text in {**states, **removed}.items() if text}


def state(application: dict[str, Any], commit: str) -> str:
    """Empty when the application is synced to the commit and healthy."""
    status = application.get("status", {})
    sync, health = status.get("sync", {}), status.get("health", {})
    if commit not in {sync.get("revision"), *sync.get("revisions", [])}:
        return "has not seen the commit"
    found = (sync.get("status"), health.get("status"))
    if found == ("Synced", "Healthy"):
        return ""
    reasons = [condition["message"] for condition in status.get("conditions", [])]
    operation = status.get("operationState", {})
    if operation.get("phase") not in (None, "Succeeded"):
        reasons.append(f"{operation['phase']}: {operation.get('message', '')}")
    return " ".join([f"{found[0]}, {found[1]}", *reasons])
