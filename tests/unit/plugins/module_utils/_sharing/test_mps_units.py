# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import Daemon
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_instances, mps_units

DAEMON = Daemon(
    name="node",
    devices=("GPU-1", "GPU-2"),
    pipe_directory="/run/nvidia/mps/nvidia.com/gpu/pipe",
    log_directory="/var/log/nvidia-mps/node",
    limits_mib=(4096, 8192),
    percentage=25.0,
    priority=1,
    multi_user=False,
)


def directives(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize("multi_user", [False, True])
def test_an_environment_file_can_be_read_back(multi_user):
    daemon = dataclasses.replace(DAEMON, multi_user=multi_user)
    text = mps_units.environment_text(daemon)
    assert mps_units.daemon_of(text) == daemon
    assert directives(text) == {
        "CUDA_MPS_PIPE_DIRECTORY": daemon.pipe_directory,
        "CUDA_MPS_LOG_DIRECTORY": daemon.log_directory,
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "CUDA_MPS_PROTOCOL_VERSION": "2",
        "MPS_OPTIONS": "-M" if multi_user else "",
    }


def test_protocol_3_is_an_option_of_the_daemon():
    daemon = dataclasses.replace(DAEMON, protocol=3, multi_user=True)
    text = mps_units.environment_text(daemon)
    assert mps_units.daemon_of(text) == daemon
    assert directives(text)["CUDA_MPS_PROTOCOL_VERSION"] == "3"
    assert directives(text)["MPS_OPTIONS"] == "-p 3 -m"


def test_a_file_from_before_there_was_a_choice_is_of_protocol_2():
    text = mps_units.environment_text(DAEMON).replace(', "protocol": 2', "")
    assert "protocol" not in text
    assert mps_units.daemon_of(text) == DAEMON


@pytest.mark.parametrize(
    "text", ["", "CUDA_VISIBLE_DEVICES=0\n", "# {\n", '# {"name": "node"}\n', '# {"limits_mib": 1}', "# {}[]"]
)
def test_a_file_of_somebody_else_describes_no_daemon(text):
    assert mps_units.daemon_of(text) is None


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("CUDA_VISIBLE_DEVICES=GPU-1,GPU-2", "CUDA_VISIBLE_DEVICES=GPU-1"),
        ("MPS_OPTIONS=", "MPS_OPTIONS=-M"),
        ("MPS_OPTIONS=", "MPS_OPTIONS=\nCUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING=1"),
    ],
)
def test_a_file_that_somebody_changed_is_known(line, changed):
    lines = mps_units.environment_text(DAEMON).splitlines()
    assert line in lines
    assert not mps_units.is_changed("\n".join(lines), DAEMON)
    text = "\n".join(changed if one == line else one for one in lines)
    assert mps_units.is_changed(text, DAEMON)
    assert mps_units.daemon_of(text) == DAEMON, "what is set again after a crash is still known"


def test_the_unit_sets_the_settings_again_after_a_crash():
    found = directives(mps_units.unit_text("/lib/host.pyz", "/usr/bin/python3.11"))
    assert found["ExecStartPost"] == "/usr/bin/python3.11 /lib/host.pyz mps-settings %i"
    assert found["ExecStop"] == "/usr/bin/python3.11 /lib/host.pyz mps-quit %i"
    assert found["Restart"] == "on-failure"
    assert found["ExecStartPre"].endswith("${CUDA_MPS_PIPE_DIRECTORY} ${CUDA_MPS_LOG_DIRECTORY}")
    assert "gpufleet-mig.service" in found["After"] and "kubelet.service" in found["Before"]


def test_names():
    assert mps_units.instance("gpu0") == "gpufleet-mps@gpu0.service"
    assert mps_units.environment_path("gpu0") == "/etc/gpufleet/mps/gpu0.env"
    # systemd wants the unit of a mount to be called as its path.
    where = directives(mps_units.SHM_UNIT_TEXT)["Where"]
    assert where.strip("/").replace("/", "-") + ".mount" == mps_units.SHM_UNIT


def test_shared_memory_of_pods_is_a_tmpfs_of_its_own():
    found = directives(mps_units.SHM_UNIT_TEXT)
    assert (found["What"], found["Type"], found["Where"]) == ("tmpfs", "tmpfs", "/run/nvidia/mps/shm")
    assert {"nosuid", "nodev", "noexec"} <= set(found["Options"].split(","))
    # The daemon's /dev/shm is what its clients get, and it does not start before that is mounted.
    daemon = directives(mps_units.SHM_DROP_IN_TEXT)
    assert daemon["BindPaths"] == f"{found['Where']}:/dev/shm"
    assert daemon["RequiresMountsFor"] == found["Where"]
    assert mps_units.shm_drop_in("node") == "gpufleet-mps@node.service.d/shm.conf"


@pytest.mark.parametrize(
    ("unit", "ours"),
    [
        ("gpufleet-mps@node.service", True),
        ("gpufleet-mps@mig0-7-0.service", True),
        ("gpufleet-mps.service", False),
        (None, False),
    ],
)
def test_our_units_are_known_by_their_names(unit, ours):
    assert mps_instances.is_instance(unit) is ours
