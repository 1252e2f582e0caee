# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of container runtimes is the one place that knows them all."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import kubelet_resources, units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.state import READERS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import DISTRIBUTIONS, KUBELETS, RUNTIMES, UNITS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_units

ROOT = Path(__file__).resolve().parents[4]
#: Who names a runtime besides the table: its editors and engines, its configuration's readers, the order in which adopt looks, and what only one of them is.
NAMED = {
    "module_utils/_driver/runner.py",
    "module_utils/_facts/environment.py",
    "module_utils/_health/software.py",
    "module_utils/_injection.py",
    "module_utils/_runtime/plan.py",
    "module_utils/_runtime/engines.py",
    "module_utils/_runtimes.py",
    "module_utils/_toolkit/desired.py",
    "module_utils/_toolkit/apply.py",
    "modules/container_toolkit.py",
    "plugin_utils/fleet/adopt.py",
}


def test_a_runtime_is_named_in_the_table_and_by_who_reads_or_writes_its_configuration_alone():
    names = re.compile(rf"[\"']({'|'.join(RUNTIMES)})[\"']")
    found = set()
    for path in (ROOT / "plugins").rglob("*.py"):
        code = re.sub(
            r"\((?:\*cri|\"crio\"|\"plugins\")[^)]*\)|^\s*name = .*$|_output\([^)]*\)|\(\"containerd\", \"[a-z_]+\"\)",
            "",
            path.read_text(),
            flags=re.M,
        )
        if names.search(code):
            found.add(path.relative_to(ROOT / "plugins").as_posix())
    assert found <= NAMED | {
        f"module_utils/_runtime/{name}.py"
        for name in ("containerd", "containerd_keys", "crio", "docker", "rancher", "state")
    }


def test_who_answers_for_each_runtime_knows_all_of_the_table():
    assert set(READERS) == set(RUNTIMES)


def test_units_of_all_runtimes_are_read_and_wait_for_what_the_host_restores():
    assert set(UNITS) <= set(host.UNITS)
    # A distribution that is only seen changes no unit of any host.
    configured = {f"{unit}.service" for row in RUNTIMES.values() for unit in row.units}
    assert configured | set(KUBELETS) <= set(units.CLIENTS)
    for text in (mps_units.unit_text("python3", "program"), mps_units.SHM_UNIT_TEXT):
        assert f"Before={' '.join(KUBELETS)}\n" in text
    assert ("kubelet.service", *(f"{row.agent}.service" for row in DISTRIBUTIONS.values())) == kubelet_resources.UNITS
    assert all(row.agent in row.units for row in DISTRIBUTIONS.values())
