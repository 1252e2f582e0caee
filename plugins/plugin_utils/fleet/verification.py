# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the checks of a host, and of its node in the cluster, say together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import OUTPUT, fields, items, text

#: What M(gpufleet.nvidia.health) answers under C(checks).
CHECKS = items(
    fields(
        {
            "name": text(64),
            "status": text(pattern="passed|failed|warning|skipped|unproven"),
            "evidence": OUTPUT,
            "next_step": OUTPUT,
        },
        required=("name", "status", "evidence", "next_step"),
    ),
    256,
)


@dataclass(frozen=True)
class Verification:
    """The checks of one host, in the order in which the first failure is the one to fix."""

    checks: tuple[Mapping[str, Any], ...]

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(check for check in self.checks if check["status"] == "failed")

    @property
    def unproven(self) -> tuple[str, ...]:
        """The names of the checks that nothing on the host could show."""
        return tuple(check["name"] for check in self.checks if check["status"] == "unproven")

    @property
    def healthy(self) -> bool:
        return not self.failed

    @property
    def summary(self) -> str:
        if self.failed:
            return f"not as described, first failure: {self.failed[0]['name']}"
        warnings = sum(1 for check in self.checks if check["status"] == "warning")
        return (
            "as described"
            + (f", {warnings} warnings" if warnings else "")
            + (f", not proven: {', '.join(self.unproven)}" if self.unproven else "")
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy,
            "failed_check": self.failed[0]["name"] if self.failed else None,
            "checks": [dict(check) for check in self.checks],
        }


#: The checks of a node in the cluster, in order.
_OF_NODE = ("node", "device plugin", "allocatable", "labels")


def verification(
    host: Sequence[Mapping[str, Any]] | None,
    node: Sequence[Mapping[str, Any]] | None,
    *,
    unread: str = "",
    refused: str = "",
    unasked: str = "",
) -> Verification:
    """Return what is known of one host. What could not be checked is named, with the reason.

    :param host: the checks of M(gpufleet.nvidia.health); None when the host could not be read.
    :param node: the checks of its Node object; None when there are none.
    :param unread: why the host could not be read.
    :param refused: why the host's description cannot be taken: it was checked without one.
    :param unasked: why the cluster could not be asked; empty when none was to be.
    """
    checks = list(of_host(host, unread).checks)
    if refused:
        step = "Correct the variables of the host, or the host itself: it was checked without its description"
        checks.append(_check("description", "failed", refused, step))
    cause = next((str(check["name"]) for check in checks if check["name"] in ("reach", "description")), None)
    if node is None and unasked:
        step = "Check the kubeconfig and that the API server can be reached."
        node = [_check("node", "failed", unasked, step)]
    elif node is None:
        reason = f"the check {cause} failed" if cause else "no cluster was asked: gpu_cluster_kubeconfig is not set"
        return Verification((*checks, *(_check(name, "skipped", reason) for name in _OF_NODE)))
    there = {check["name"] for check in node}
    return Verification(
        (*checks, *node, *(_check(name, "skipped", "the check node failed") for name in _OF_NODE if name not in there))
    )


def of_host(host: Sequence[Mapping[str, Any]] | None, unread: str) -> Verification:
    """Return what is known of a host itself: its checks, or the one that says why it could not be read."""
    if host is not None:
        return Verification(tuple(host))
    step = "See the message of the task that failed, or try: ansible <host> --become -m ansible.builtin.ping"
    return Verification((_check("reach", "failed", unread or "the host could not be read", step),))


def _check(name: str, status: str, evidence: str, step: str = "") -> dict[str, str]:
    return {"name": name, "status": status, "evidence": evidence.strip().rstrip("."), "next_step": step}
