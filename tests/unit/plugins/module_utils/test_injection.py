# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One decision: how devices reach containers."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils import _injection as injection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._injection import Injection, read, refuse_runtime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES


@pytest.mark.parametrize(
    ("runtime", "method"),
    [
        ("containerd", "cdi"),
        ("crio", "cdi"),
        ("k3s", "cdi"),
        ("rke2", "cdi"),
        ("none", "cdi"),
        ("docker", "envvar"),
    ],
)
def test_auto_depends_on_the_named_runtime_alone(runtime, method):
    assert read({"nvidia_toolkit_runtime": runtime}).method == method
    assert read({"nvidia_toolkit_runtime": runtime, "nvidia_toolkit_device_injection": "auto"}).method == method


@pytest.mark.parametrize(
    ("method", "envvar", "mounts", "strategy", "runtime_class", "sys_admin"),
    [
        ("cdi", False, False, "cdi-cri", False, True),
        ("volume_mounts", False, True, "volume-mounts", True, True),
        ("envvar", True, False, "envvar", True, False),
    ],
)
def test_what_follows_from_each(method, envvar, mounts, strategy, runtime_class, sys_admin):
    chosen = Injection(method)
    assert (chosen.accepts_envvar, chosen.accepts_volume_mounts, chosen.strategy) == (envvar, mounts, strategy)
    assert chosen.pods_need_runtime_class is runtime_class
    assert chosen.driver_pods_need_sys_admin is sys_admin
    assert not Injection(method, default_runtime=True).pods_need_runtime_class


@pytest.mark.parametrize("method", ["auto", "cdi"])
def test_cdi_without_a_specification_names_both_variables(method):
    with pytest.raises(Refused) as refusal:
        read({"nvidia_toolkit_device_injection": method, "nvidia_toolkit_cdi": False})
    assert refusal.value.thing == "nvidia_toolkit_device_injection"
    assert "nvidia_toolkit_cdi is false" in refusal.value.reason
    assert read({"nvidia_toolkit_device_injection": "volume_mounts", "nvidia_toolkit_cdi": False}).method


@pytest.mark.parametrize(
    ("runtime", "version", "refused"),
    [
        ("containerd", "1.6.20", True),
        ("containerd", "1.7.1", True),
        ("containerd", "1.7.2", False),
        ("containerd", "v2.4.2", False),
        ("containerd", None, False),
        ("crio", "1.27.9", True),
        ("crio", "1.28.0", False),
        ("k3s", "v1.28.5+k3s1", True),
        ("k3s", "v1.34.1+k3s1", False),
        ("rke2", "v1.28.15+rke2r1", True),
        ("docker", "24.0.9", True),
        ("docker", "25.0.0", False),
        ("none", "1.0", False),
    ],
)
def test_a_runtime_that_cannot_do_it(runtime, version, refused):
    refusal = refuse_runtime(Injection("cdi"), runtime, version)
    assert (refusal is not None) is refused
    if refusal:
        assert version in refusal.reason
        assert "nvidia_toolkit_device_injection: volume_mounts" in refusal.remedy
    for method in ("volume_mounts", "envvar"):
        assert refuse_runtime(Injection(method), runtime, version) is None


def test_every_method_has_a_strategy_and_every_runtime_one_of_them():
    assert set(injection.STRATEGIES) == set(injection.METHODS)
    assert {runtime.injection for runtime in RUNTIMES.values()} <= set(injection.METHODS)


@pytest.mark.parametrize(
    ("runtime", "accepted"),
    [
        ({"version": "2.1.5"}, True),
        ({"version": "2.1.5", "nvidia": True, "cdi": None}, True),
        ({"version": "2.1.5", "nvidia": True, "cdi": False}, False),
        ({"version": "1.7.22", "nvidia": True, "cdi": True}, True),
        ({"version": "1.7.22", "nvidia": True, "cdi": None}, False),
        ({"version": "1.7.22"}, True),
        ({"version": "1.6.20", "nvidia": True, "cdi": True}, False),
    ],
)
def test_a_runtime_that_could_inject_and_is_told_not_to_does_not(runtime, accepted):
    """Read from its configuration; one that was not read proves nothing."""
    assert injection.accepted_by(view_of({"runtimes": {"containerd": runtime}})) == {"cdi": accepted}
