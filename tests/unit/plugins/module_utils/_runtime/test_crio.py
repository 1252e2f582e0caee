# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import loads
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import crio
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import DesiredRuntime

PRESENT, DEFAULT, ABSENT = DesiredRuntime(), DesiredRuntime(default=True), DesiredRuntime(present=False)
CTK = """
[crio]
  [crio.runtime]
    [crio.runtime.runtimes]
      [crio.runtime.runtimes.nvidia]
        runtime_path = "/usr/bin/nvidia-container-runtime"
        runtime_type = "oci"
"""


#: 10-crio.conf of upstream's packages (cri-o/packaging), which keep the programs outside of PATH.
PACKAGED = """
[crio.runtime]
default_runtime = "crun"

[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = [
    "io.containers.trace-syscall",
]

[crio.runtime.runtimes.runc]
runtime_path = "/usr/libexec/crio/runc"
runtime_root = "/run/runc"
monitor_path = "/usr/libexec/crio/conmon"
"""
#: What 'crio config --default' prints of CRI-O 1.31 and newer (pkg/config/template.go).
BUILT_IN = """
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = ""
runtime_type = "oci"
runtime_root = "/run/crun"
inherit_default_runtime = false
runtime_config_path = ""
container_min_memory = "500KiB"
monitor_path = ""
monitor_cgroup = "system.slice"
monitor_exec_cgroup = ""
monitor_env = [
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
]
privileged_without_host_devices = false
"""


def after(files, desired, handler=None):
    return {change.path: change.after for change in crio.edit(files, desired, handler).changed}


def ours(config, built_in=BUILT_IN):
    text = after({}, PRESENT, crio.handler_of(built_in, config))[crio.DROP_IN]
    return loads(text)["crio"]["runtime"]["runtimes"]["nvidia"]


def test_the_handler_has_the_settings_of_the_default_one():
    # The default's name is commented out where it is the built-in one.
    assert ours(PACKAGED.replace("default_runtime", "# default_runtime")) == {
        "runtime_path": "/usr/bin/nvidia-container-runtime",
        "runtime_type": "oci",
        "runtime_root": "/run/crun",
        "monitor_path": "/usr/libexec/crio/conmon",
        "allowed_annotations": ["io.containers.trace-syscall"],
    }
    assert ours(PACKAGED.replace('"crun"', '"runc"', 1))["runtime_root"] == "/run/runc"


def test_what_is_commented_out_is_the_built_in_handler():
    assert ours("# [crio.runtime.runtimes.crun]\n") == {
        "runtime_path": "/usr/bin/nvidia-container-runtime",
        "runtime_type": "oci",
        "runtime_root": "/run/crun",
        "container_min_memory": "500KiB",
        "monitor_cgroup": "system.slice",
        "monitor_env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
    }


def test_settings_that_would_replace_our_program_are_not_taken():
    more = 'platform_runtime_paths = {"linux/amd64" = "/x"}\ninherit_default_runtime = true\n'
    assert set(ours(PACKAGED.replace('runtime_root = "/run/crun"\n', more))) == {
        "runtime_path",
        "runtime_type",
        "monitor_path",
        "allowed_annotations",
    }


@pytest.mark.parametrize(
    ("default", "handlers", "name"),
    [
        ("crun", {"crun": {}, "runc": {}}, "crun"),
        ("nvidia", {"crun": {}, "nvidia": {}}, "crun"),
        ("nvidia-legacy", {"nvidia-legacy": {}, "crun": {}, "runc": {}}, "runc"),
        ("kata", {"kata": {"runtime_type": "vm"}, "runc": {"runtime_type": "oci"}}, "runc"),
        ("site", {"site": {"runtime_type": ""}}, "site"),
        (None, {"kata": {}}, None),
    ],
)
def test_which_handler_is_the_low_level_one(default, handlers, name):
    found = crio.low_level_handler(default, handlers)
    assert (found and found.name) == name


def test_the_absolute_path_of_its_program():
    assert crio.Handler("crun", {"runtime_path": "/usr/libexec/crio/crun"}).program == "/usr/libexec/crio/crun"
    assert crio.Handler("crun", {"runtime_path": ""}).program is None


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


@pytest.mark.proves("runtime", "", rows=["crio"])
def test_effective():
    found = crio.effective(CTK + "[crio.runtime.runtimes.crun]\nruntime_path = '/usr/bin/crun'\n")
    assert found.shortfalls(PRESENT) == ()
    assert found.runtimes == ("crun", "nvidia")
    assert found.default_runtime is None
    assert crio.effective("").binary is None
