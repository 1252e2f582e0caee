# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Actions called as the controller calls them, without a play: a task, the host's variables, and what is displayed."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from ansible import constants
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import lease_renewal
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import upgrade_lease, upgrade_node, upgrade_waves

from ....result_shape import misshapen

#: Facts of a host with two GPUs and no driver.
BARE = {
    "schema": 1,
    "host": {
        "name": "gpu-1",
        "distribution": {"id": "debian", "version": "12", "codename": "bookworm", "family": "debian"},
        "package_manager": "apt",
        "architecture": "x86_64",
        "kernel_headers": True,
    },
    "pci": [
        {"address": f"0000:{bus}:00.0", "device_id": "0x2330", "kind": "gpu", "board": "h100-80gb-sxm"}
        for bus in ("18", "2a")
    ],
    "nvml": {"available": False, "reason": "libnvidia-ml.so.1 is not installed"},
    "gpus": None,
    "runtimes": {"containerd": {"version": "2.1.5", "active": True, "config_path": "/etc/containerd/config.toml"}},
}


@pytest.fixture
def bare_facts():
    return BARE


class Shown:
    """Stands in for Ansible's display."""

    def __init__(self):
        self.lines = []
        self.warnings = []

    def display(self, text, color=None, stderr=False):  # noqa: ARG002
        self.lines.append(text)
        self.on_stderr = stderr

    def v(self, text):
        self.lines.append(text)

    def warning(self, text):
        self.warnings.append(text)

    @property
    def text(self):
        return "\n".join(self.lines)


@pytest.fixture
def call(monkeypatch):
    """Return a function that runs an action and returns its result and what it showed."""

    def run(module, arguments, variables, check_mode=False, action="action"):
        loader = DataLoader()
        task = SimpleNamespace(
            args=arguments, check_mode=check_mode, diff=False, async_val=0, action=action, environment=None
        )
        made = module.ActionModule(
            task=task,
            connection=MagicMock(),
            play_context=MagicMock(),
            loader=loader,
            templar=Templar(loader=loader, variables=variables),
            shared_loader_obj=MagicMock(),
        )
        shown = Shown()
        monkeypatch.setattr(made, "_display", shown)
        result = made.run(task_vars=variables)
        assert misshapen(result) == []
        return result, shown

    return run


@pytest.fixture
def renewed(monkeypatch):
    """The leases for which a process that renews them would be started."""
    started = []
    monkeypatch.setattr(lease_renewal, "start", lambda *arguments: started.append(arguments))
    return started


@pytest.fixture
def run_folder(monkeypatch, tmp_path):
    """The folder of one run of Ansible."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(upgrade_waves, "_PAUSE", 0.02)
    monkeypatch.setattr(upgrade_waves, "_SHORTEST", 5.0)
    return str(tmp_path)


@pytest.fixture
def on_cluster(monkeypatch):
    """Return a function that has the actions of rollouts talk to a cluster in memory."""

    def use(cluster):
        for action in (upgrade_lease, upgrade_node, upgrade_waves):
            monkeypatch.setattr(action.ActionModule, "cluster", lambda _self, _arguments: cluster)
        return cluster

    return use
