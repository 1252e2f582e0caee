# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boards of pci.ids whose MIG profiles no source gives, so that the table does not have them: the gate of C(site) and C(plan) take what the driver
offers, and without a driver both say what to do.

What the drivers offer here is made up, for nothing is published.
"""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import find_board
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import fleet_plan, site_gate

from ...host_documents import UNLISTED, UNLISTED_FACTS

#: H100 SXM5 94GB, H20 HBM3e 141GB and A800 SXM4 40GB.
DEVICES = {"0x2339": 95830, "0x232C": 143771, "0x20BD": 40960}
POOL = {"nvidia_mig_strategy": "mixed", "gpu_kubernetes_cluster": "one"}
LAYOUTS = [
    [{"devices": "all", "instances": {"2g.48gb": 2}}],
    {"node": {"2g.48gb": 2}},
    [{"devices": [0], "instances": {"2g.48gb": 1, "1g.24gb": 2}}],
]


def live(device):
    (card,) = UNLISTED_FACTS["pci"]
    card = {**card, "device_id": device, "address": UNLISTED["pci_address"]}
    return {**UNLISTED_FACTS, "pci": [card], "gpus": [{**UNLISTED, "memory_mib": DEVICES[device]}]}


def bare(device, bare_facts):
    return {**bare_facts, "pci": [{**card, "board": None} for card in live(device)["pci"]]}


@pytest.fixture
def judged(call):
    """Return what the gate and the plan say of one host."""

    def run(facts, **variables):
        hostvars = {"a": {"gpu_facts_host": {"gpu": facts}, **POOL, **variables}}
        task_vars = {"groups": {"gpu_hosts": ["a"], "pool": ["a"]}, "hostvars": hostvars}
        gate, _shown = call(site_gate, {"hosts": ["a"]}, task_vars)
        plan, shown = call(fleet_plan, {}, task_vars)
        return gate, plan["plan"]["hosts"]["a"], shown.text

    return run


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_live_driver_says_what_the_board_can(device, layout, judged):
    assert find_board(device) is None
    # Somebody uses the GPU, so that its driver stays as it is.
    gate, planned, text = judged(live(device), nvidia_mig_layout=layout, nvidia_driver_state="unmanaged")
    assert gate["to_change"] == ["a"] and not gate["refusals"] and "failed" not in gate
    steps = planned["stages"]["mig"]["steps"]
    assert steps and all(step["kind"] == "create_gpu_instance" for step in steps)
    assert "2g.48gb at 0:2" in text


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", [*LAYOUTS, "all-balanced", "all-enabled"])
def test_without_a_driver_the_refusal_says_how_to_get_there(device, layout, judged, bare_facts):
    facts = bare(device, bare_facts)
    gate, planned, _text = judged(facts, nvidia_mig_layout=layout)
    assert [refusal["hosts"] for refusal in gate["refusals"]] == [["a"]] and gate["failed"]
    said = f"the table of boards does not have GPU 0 (0000:2a:00.0), device {device}: only its driver says which MIG profiles it has"
    remedy = """Run gpufleet.nvidia.site once with -e '{"nvidia_mig_layout": []}', which installs the driver, and then with the layout."""
    (refusal,) = planned["stages"]["mig"]["refusals"]
    assert said in gate["msg"] and remedy in gate["msg"]
    assert said in refusal["reason"] and remedy == refusal["remedy"]
    # What the refusal says to do is not refused.
    gate, _planned, _text = judged(facts, nvidia_mig_layout=[])
    assert gate["to_change"] == ["a"] and not gate["refusals"]
