# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.rack_drivers import ActionModule

GROUPS = {"rack_a": ["a1", "a2", "a3", "a4"]}


class Spoken(ActionModule):
    """The action without Ansible around it; its warnings are kept."""

    def __init__(self):
        self.warnings = []

    @property
    def _display(self):
        return self

    def warning(self, text):
        self.warnings.append(text)


def content(text):
    return {"content": base64.b64encode(text.encode()).decode()}


def test_only_versions_are_taken_of_what_hosts_say():
    action = Spoken()
    read = [
        {"item": "a1", **content("580.178.04\n")},
        {"item": "a2", **content("595.91.07\n")},
        {"item": "a3", "unreachable": True, "msg": "no route"},
        {"item": "a4", **content("\x1b[2J580.1\n")},
        {"item": "b1", "content": "\u00ff not base64"},
    ]
    arguments = {"racks": ["rack_a", "gone"], "read": read, "rolled_back": ["a1"]}
    result = action.act(arguments, {"groups": GROUPS})
    assert list(result["mixed_racks"]) == ["rack_a"] and not result["changed"]
    assert action.warnings == list(result["mixed_racks"].values())
    assert "580.178.04 on a1, 595.91.07 on a2. Its IMEX domain" in action.warnings[0]
    assert "a3" not in action.warnings[0] and "\x1b" not in action.warnings[0]
