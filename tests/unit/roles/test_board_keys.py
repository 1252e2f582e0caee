# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-doc names the keys of all boards, and which of them have MIG."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import role_interface


def test_the_keys_of_all_boards_are_documented():
    option = role_interface("gpu_facts").options["gpu_facts_gpus"]["options"]["board"]
    _first, with_mig, without = (re.findall(r"V\(([^)]+)\)", text) for text in option["description"])
    assert with_mig == [board.key for board in BOARDS if board.profiles]
    assert without == [board.key for board in BOARDS if not board.profiles]
