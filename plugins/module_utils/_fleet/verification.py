# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the checks of a host, and of its node in the cluster, say together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verification:
    """The checks of one host, in the order in which the first failure is the one to mend."""

    checks: tuple[Mapping[str, Any], ...]

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(check for check in self.checks if check["status"] == "failed")

    @property
    def healthy(self) -> bool:
        return not self.failed

    @property
    def summary(self) -> str:
        if self.failed:
            return f"not as described, first failure: {self.failed[0]['name']}"
        warnings = sum(1 for check in self.checks if check["status"] == "warning")
        return "as described" + (f", {warnings} warnings" if warnings else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "healthy": self.healthy,
            "failed_check": self.failed[0]["name"] if self.failed else None,
            "checks": [dict(check) for check in self.checks],
        }


def verification(
    host: Sequence[Mapping[str, Any]] | None, node: Sequence[Mapping[str, Any]] | None, error: str | None = None
) -> Verification:
    """Return what is known of one host.

    :param host: the checks of M(gpufleet.nvidia.health); None when the host could not be read.
    :param node: the checks of its Node object; None when no cluster was asked.
    :param error: why the cluster could not be asked.
    """
    if host is None:
        unread = {
            "name": "reach",
            "status": "failed",
            "evidence": "the host could not be read, or its description was refused",
            "next_step": "See the message of the task that failed, or try: ansible <host> -m ansible.builtin.ping",
        }
        return Verification((unread, *(node or ())))
    if node is None and error:
        asked = {
            "name": "node",
            "status": "failed",
            "evidence": str(error),
            "next_step": "Check the kubeconfig and that the API server can be reached.",
        }
        return Verification((*host, asked))
    return Verification((*host, *(node or ())))
