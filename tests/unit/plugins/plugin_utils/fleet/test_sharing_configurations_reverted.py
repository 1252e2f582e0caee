# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A label by hand, where the inventory chooses."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.capacity import gpus_of_inventory
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.sharing_configurations import LABEL, read

WRITTEN = {"gpu_kubernetes_sharing_configurations": {"two": {"replicas": 2}, "four": {"replicas": 4}}}


@pytest.mark.parametrize(
    ("chosen", "label", "said"),
    [("two", "four", True), ("two", "default", True), ("two", "two", False), ("two", None, False), ("", "four", False)],
)
def test_what_the_rendered_labels_revert_is_said(chosen, label, said):
    gpus = gpus_of_inventory([{"board": "l40s-48gb", "count": 2}])
    found = read({**WRITTEN, "gpu_kubernetes_sharing_configuration": chosen}, gpus)
    text = found.reverted({"metadata": {"labels": {LABEL: label} if label else {}}})
    assert bool(text) == said
    assert not said or f"{LABEL}={label}: the rendered labels set it to two again" in text
