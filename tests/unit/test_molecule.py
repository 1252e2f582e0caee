# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of the Molecule scenarios names what there is: a scenario takes minutes to say that it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import STAGES

MOLECULE = Path(__file__).resolve().parents[2] / "extensions" / "molecule"
SCENARIOS = yaml.safe_load((MOLECULE / "scenarios.yml").read_text(encoding="utf-8"))["scenarios"]
#: What a scenario may need: the keys of scenario_fits.
NEEDS = yaml.safe_load((MOLECULE / "shared" / "verify.yml").read_text(encoding="utf-8"))[0]["vars"]["scenario_fits"]


def test_every_scenario_has_a_folder_and_every_folder_is_one():
    assert set(SCENARIOS) == {path.parent.name for path in MOLECULE.glob("*/molecule.yml")}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_names_stages_checks_and_playbooks_that_there_are(name):
    scenario = SCENARIOS[name]
    assert set(scenario.get("stages", [])) <= set(STAGES)
    assert all((MOLECULE / "shared" / "checks" / f"{check}.yml").exists() for check in scenario["checks"])
    assert "needs" not in scenario or scenario["needs"] in NEEDS
    playbooks = re.findall(r"\.\./shared/(\S+)", (MOLECULE / name / "molecule.yml").read_text(encoding="utf-8"))
    assert all((MOLECULE / "shared" / playbook).exists() for playbook in playbooks)
