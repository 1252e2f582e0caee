# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import kubelet_resources
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.kubelet_resources import (
    CHECKPOINT,
    plan,
    remembered,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused

RUNS = {"kubelet.service": Unit("kubelet.service", "loaded", "active")}
STOPPED = {"kubelet.service": Unit("kubelet.service", "loaded", "inactive")}


def checkpoint(registered=("nvidia.com/gpu",), held=()):
    """What a kubelet 1.34 writes."""
    entries = [
        {"PodUID": uid, "ContainerName": "c", "ResourceName": name, "DeviceIDs": {"-1": ["x"]}, "AllocResp": "aa=="}
        for uid, name in held
    ]
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": {name: ["x"] for name in registered}}
    return json.dumps({"Data": data, "Checksum": 1})


@pytest.mark.parametrize("text", [None, checkpoint(()), checkpoint(("example.com/nic",), [("pod", "example.com/nic")])])
def test_a_kubelet_that_remembers_nothing_of_nvidia_is_left_alone(text):
    assert not plan(remembered(text, RUNS), ["pod"]).changes


def test_the_checkpoint_goes_while_the_kubelet_is_stopped():
    found = plan(remembered(checkpoint(("nvidia.com/gpu", "example.com/nic")), RUNS), ["other"])
    (step,) = found.steps
    assert (step.kind.key, step.target, step.data) == ("remove_file", CHECKPOINT, {"unit": "kubelet.service"})
    assert "the device plugins of example.com/nic register again" in step.why
    assert (found.before, found.after) == (
        {"resources": ["example.com/nic", "nvidia.com/gpu"]},
        {"resources": ["example.com/nic"]},
    )


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "example.com/nic"])
def test_a_pod_that_holds_a_device_of_anybody_is_not_forgotten(resource):
    found = remembered(checkpoint(("nvidia.com/gpu", resource), [("pod", resource)]), RUNS)
    assert plan(found, ["another"]).changes, "the kubelet keeps the entries of pods that ended"
    with pytest.raises(Refused, match=f"hold devices of {resource}"):
        plan(found, ["pod"])


def test_a_kubelet_that_an_earlier_run_stopped_is_started_and_nothing_else():
    (step,) = plan(remembered(None, STOPPED), []).steps
    assert (step.kind.key, step.target) == ("start_service", "kubelet.service")
    (step,) = plan(remembered(checkpoint(), STOPPED), [], start_only=True).steps
    assert step.kind.key == "start_service"
    assert not plan(remembered(checkpoint(), RUNS), [], start_only=True).changes


@pytest.mark.parametrize("text", ["", "{", "[]", '{"Data": 3}', '{"Data": {"PodDeviceEntries": [{"PodUID": 1}]}}'])
def test_what_no_kubelet_writes_is_refused(text):
    with pytest.raises(Refused, match="it is not what a kubelet writes"):
        remembered(text, RUNS)


def test_a_host_without_a_known_kubelet_is_refused():
    with pytest.raises(Refused, match=r"none of kubelet.service, k3s-agent.service, .* is on this host"):
        plan(remembered(checkpoint(), {}), [])


@pytest.fixture
def host(monkeypatch, tmp_path):
    """A kubelet without a systemd; returns what it was told."""
    path = tmp_path / "checkpoint"
    path.write_text(checkpoint())
    told, state = [], {"active": "active"}
    monkeypatch.setattr(kubelet_resources, "CHECKPOINT", str(path))

    def change(verb, active):
        def act(unit):
            told.append((verb, unit, path.exists()))
            state["active"] = active

        return act

    monkeypatch.setattr(kubelet_resources.systemd, "stop", change("stop", "inactive"))
    monkeypatch.setattr(kubelet_resources.systemd, "start", change("start", "active"))
    monkeypatch.setattr(
        kubelet_resources.systemd,
        "units",
        lambda names: {name: Unit(name, "loaded" if name in RUNS else "not-found", state["active"]) for name in names},
    )
    return path, told


def test_it_is_stopped_before_and_started_after(host):
    path, told = host
    planned = plan(kubelet_resources.read(), [])
    kubelet_resources.apply(planned)
    kubelet_resources.read_back(planned)
    assert told == [("stop", "kubelet.service", True), ("start", "kubelet.service", False)] and not path.exists()
    assert not plan(kubelet_resources.read(), []).changes, "a second run finds nothing to do"


def test_it_is_started_although_the_file_stays(host, monkeypatch):
    _path, told = host

    def broken(_path):
        raise OSError("read-only file system")

    monkeypatch.setattr(kubelet_resources.files, "remove", broken)
    planned = plan(kubelet_resources.read(), [])
    with pytest.raises(OSError, match="read-only"):
        kubelet_resources.apply(planned)
    assert [verb for verb, _unit, _there in told] == ["stop", "start"]
    with pytest.raises(Failure, match=r"registered nvidia.com/gpu again"):
        kubelet_resources.read_back(planned)
