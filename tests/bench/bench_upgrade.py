# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a rollout over 10,000 simulated nodes takes beside the least possible time: by the simulation that the unit tests run."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.waves import Budget

NODES, SEED = 10_000, 7
_SIMULATION = Path(__file__).parents[1] / "unit" / "plugins" / "plugin_utils" / "fleet" / "test_waves.py"


def run() -> dict[str, float]:
    simulation = _load()
    found = {}
    for key, failure_rate, max_failures in (("no_failures", 0.0, 0), ("failures", 0.005, NODES)):
        budget = Budget(canary=1, max_parallel=0, max_unavailable="10%", max_failures=max_failures)
        for how in ("slots", "waves"):
            _nodes, ticks, least, _decision = simulation.simulate(
                NODES, budget, SEED, failure_rate, in_waves=how == "waves"
            )
            found[f"upgrade.{how}_ratio_to_least_time_10000_nodes_{key}"] = ticks / least
    return found


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("waves_simulation", _SIMULATION)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"there is no simulation in {_SIMULATION}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
