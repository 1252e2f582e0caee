# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import crio
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.toml_read import loads
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.wish import RuntimeWish

PRESENT, DEFAULT, ABSENT = RuntimeWish(), RuntimeWish(default=True), RuntimeWish(present=False)
CTK = """
[crio]
  [crio.runtime]
    [crio.runtime.runtimes]
      [crio.runtime.runtimes.nvidia]
        runtime_path = "/usr/bin/nvidia-container-runtime"
        runtime_type = "oci"
"""


def after(files, wish):
    return {change.path: change.after for change in crio.edit(files, wish).changed}


def test_a_drop_in_of_our_own():
    text = after({}, DEFAULT)[crio.DROP_IN]
    assert loads(text)["crio"]["runtime"] == {
        "default_runtime": "nvidia",
        "runtimes": {"nvidia": {"runtime_path": "/usr/bin/nvidia-container-runtime", "runtime_type": "oci"}},
    }
    assert "default_runtime" not in after({crio.DROP_IN: text}, PRESENT)[crio.DROP_IN]
    assert after({crio.DROP_IN: text}, DEFAULT) == {}
    assert after({crio.DROP_IN: text}, ABSENT) == {crio.DROP_IN: None}


@pytest.mark.parametrize("leftover", crio.LEFTOVERS)
def test_leftovers_leave_the_folder_that_crio_reads_whole(leftover):
    changes = after({leftover: CTK}, PRESENT)
    assert changes[leftover] is None
    assert changes["/etc/crio/99-nvidia.toml.disabled-by-gpufleet"] == CTK


@pytest.mark.parametrize(
    "text",
    [
        CTK + "[crio.image]\npause_image = 'x'\n",
        "[crio.runtime]\ndefault_runtime = 'runc'\n",
        CTK.replace("    [crio.runtime.runtimes]", "    log_level = 'debug'\n    [crio.runtime.runtimes]"),
        "# gpufleet.nvidia: begin\n" + CTK + "# gpufleet.nvidia: end\n",
    ],
)
def test_what_a_site_wrote_stays(text):
    assert crio.LEFTOVERS[1] not in after({crio.LEFTOVERS[1]: text}, PRESENT)


def test_effective():
    found = crio.effective(CTK + "[crio.runtime.runtimes.crun]\nruntime_path = '/usr/bin/crun'\n")
    assert found.shortfalls(PRESENT) == ()
    assert found.runtimes == ("crun", "nvidia")
    assert found.default_runtime is None
    assert crio.effective("").binary is None


@pytest.mark.parametrize(
    ("output", "version"),
    [("crio version 1.28.4\nVersion:        1.28.4\n", (1, 28, 4)), ("Version: 1.30.0", (1, 30, 0)), ("", ())],
)
def test_version(output, version):
    assert crio.parse_version(output) == version
