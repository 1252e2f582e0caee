# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show on the controller what the checks of all hosts found, and write it down."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import write_whole
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.verification import CHECKS, verification
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit, check
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import FleetAction, described, registered
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of, plain, said

_COLORS = {"passed": "green", "failed": "red", "warning": "yellow", "skipped": "cyan"}


class ActionModule(FleetAction):
    _requires_connection = False
    _VALID_ARGS = frozenset({"hosts", "report"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        task_vars = described(task_vars)
        result = super().run(tmp, task_vars)
        result["changed"] = False
        _checked, arguments = self.validate_argument_spec(
            argument_spec={
                "hosts": {"type": "list", "elements": "str", "required": True},
                "report": {"type": "path", "default": ""},
            }
        )
        hosts = {}
        for host in plain(arguments["hosts"]):
            variables = task_vars["hostvars"][host]
            health = plain(variables.get("nvidia_health_result") or {})
            node = plain(variables.get("gpu_verify_node") or {})
            _facts, unread = facts_of(registered(variables, "gpu_facts_host"))
            checks = health.get("checks")
            try:
                if checks is not None:
                    check(CHECKS, checks)
            except Unfit as unfit:
                checks, unread = None, f"its checks do not fit: {unfit.message}"
            hosts[host] = verification(
                checks,
                node.get("checks"),
                unread=unread,
                refused=_sentence(str(plain(variables.get("__gpu_verify_refused") or ""))),
                unasked=said(node) if node.get("failed") or node.get("unreachable") else "",
            )
        for host, found in hosts.items():
            self._display.display(f"\n{host}: {found.summary}")
            for one in found.checks:
                text = f"  {one['status']:8} {one['name']:14} {one['evidence']}"
                self._display.display(text, color=_COLORS.get(one["status"]))
                if one["next_step"]:
                    self._display.display(f"           next: {one['next_step']}")
        document = {host: found.as_dict() for host, found in hosts.items()}
        result["hosts"] = document
        result["healthy"] = all(found.healthy for found in hosts.values())
        if arguments["report"]:
            text = json.dumps(document, indent=1, sort_keys=True) + "\n"
            write_whole(os.path.abspath(arguments["report"]), text)
        bad = [host for host, found in hosts.items() if not found.healthy]
        result["msg"] = (
            f"{len(bad)} of {len(hosts)} hosts are not as described: {', '.join(bad)}."
            if bad
            else f"All {len(hosts)} hosts are as described."
        )
        return result


def _sentence(message: str) -> str:
    """Return a refusal of several lines as one."""
    return "; ".join(line for line in message.splitlines() if line and line != "Nothing was touched.")
