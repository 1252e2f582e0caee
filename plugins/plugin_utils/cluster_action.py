# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the actions that talk to the cluster have in common."""

from __future__ import annotations

from typing import Any

from ansible import constants
from ansible.errors import AnsibleAction, AnsibleError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease, lease_renewal
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError, Cluster, at_once
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ControllerAction


class ClusterAction(ControllerAction):
    """An action that talks to the cluster: refusals and the API's errors end it with their message."""

    COMMON = {
        "kubernetes": {"type": "bool", "default": True},
        "kubeconfig": {"type": "path", "default": ""},
        "context": {"type": "str", "default": ""},
        "api_timeout": {"type": "int", "default": 300},
    }

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            return super().run(tmp, task_vars)
        except (Refused, ApiError, AnsibleError) as error:
            if isinstance(error, AnsibleAction):
                raise
            return {"changed": False, "failed": True, "msg": getattr(error, "message", None) or str(error)}

    def hold_lease(
        self, cluster: Cluster, arguments: dict[str, Any], namespace: str, seconds: int, force: bool = False
    ) -> None:
        """Take the lease of the fleet for this run, and have it renewed until the run ends.

        :param seconds: for which it holds when nothing renews it any more.
        :param force: whether to take it from a run that has it.
        """
        here = cluster_lease.this_run()
        cluster_lease.take(cluster, namespace, here, seconds, force)
        folder = constants.DEFAULT_LOCAL_TMP
        lease_renewal.start(arguments["kubeconfig"], arguments["context"], namespace, here, seconds, folder)

    def cluster(self, arguments: dict[str, Any]) -> Cluster:
        """Return the connection to the API server."""
        return Cluster(arguments["kubeconfig"], arguments["context"], arguments["api_timeout"], at_once(self._display))
