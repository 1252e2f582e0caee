# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When an acceptance that a host owes is paid: by site, and by the proof of heal."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.environment import ACCEPTANCE_RECORD

ROLES = Path(__file__).parents[3] / "roles"
#: Role to its task file, and the variable with what the diagnostic said there.
PAID_BY = {
    "nvidia_health": ("main.yml", "nvidia_health_result"),
    "gpu_heal": ("prove.yml", "__gpu_heal_proof"),
}


def is_paid(role, owed, accepted):
    """Whether the role removes the record of what the host owes."""
    name, proof = PAID_BY[role]
    tasks = yaml.safe_load((ROLES / role / "tasks" / name).read_text(encoding="utf-8"))
    proven = next(position for position, task in enumerate(tasks) if task.get("register") == proof)
    (paid,) = [position for position, task in enumerate(tasks) if ACCEPTANCE_RECORD in str(task)]
    assert "gpufleet.nvidia.health" in tasks[proven] and proven < paid
    assert tasks[paid]["gpufleet.nvidia.host_module"]["file"] == {"path": ACCEPTANCE_RECORD, "state": "absent"}
    variables = {"gpu_facts_host": {"gpu": {"recorded": owed}}, proof: {"healthy": True, "accepted": accepted}}
    if role == "nvidia_health":
        own = yaml.safe_load((ROLES / role / "vars" / "main.yml").read_text(encoding="utf-8"))
        variables["__nvidia_health_owed"] = trust_as_template(own["__nvidia_health_owed"])
    conditions = " and ".join(f"({condition})" for condition in tasks[paid]["when"])
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(f"{{{{ {conditions} }}}}"))


@pytest.mark.parametrize("role", PAID_BY)
@pytest.mark.parametrize(
    ("owed", "accepted", "paid"),
    [
        ({"acceptance_owed": True}, True, True),
        # Healthy, by level 1 beside the programs on other GPUs, or without a level.
        ({"acceptance_owed": True}, False, False),
        ({"acceptance_owed": False}, True, False),
        (None, True, False),
    ],
)
def test_the_diagnostic_at_the_level_that_is_asked_for_pays_what_is_owed_and_nothing_else_does(
    role, owed, accepted, paid
):
    assert is_paid(role, owed, accepted) is paid
