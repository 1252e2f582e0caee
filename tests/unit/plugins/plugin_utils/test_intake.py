# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever a host, a file or an annotation says: it is taken, refused, or the host is one that was not read, and no other host notices."""

from __future__ import annotations

import copy
import json
import os
import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.action import fleet_plan
from ansible_collections.gpufleet.nvidia.plugins.action import inspect as inspect_action
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.evidence import evidence_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.reply import answer
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import descriptions, role_variables
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import usage, usage_html, usage_text, waves
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.devices import holdings
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.inspection import host_table
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.plan import FleetPlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import (
    Member,
    Record,
    from_annotations,
    from_values,
    progress,
    wave_node,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.recorded import RecordedFacts
from hypothesis import given, settings
from hypothesis import strategies as st

QUICK, ALL = 60, int(os.environ.get("INTAKE_EXAMPLES", "1000"))
EXAMPLES = pytest.mark.parametrize("examples", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)])

_INSTANCE = {
    "id": 1,
    "profile": "3g.40gb",
    "profile_id": 9,
    "start": 4,
    "size": 4,
    "memory_mib": 40448,
    "processes": [{"pid": 7, "name": "python3", "memory_mib": 5, "type": "C"}],
    "compute_instances": [
        {"id": 0, "profile": "3g.40gb", "profile_id": 2, "uuid": "MIG-1", "index": 0, "processes": []}
    ],
}
_GPU = {
    "index": 0,
    "minor": 0,
    "uuid": "GPU-0",
    "pci_address": "0000:18:00.0",
    "name": "NVIDIA H100 80GB HBM3",
    "board": "h100-80gb-sxm",
    "architecture": "hopper",
    "memory_mib": 81559,
    "compute_mode": "default",
    "persistence_mode": True,
    "mig": {"supported": True, "current": True, "pending": True},
    "processes": [{"pid": 812, "name": "python3", "memory_mib": 1200, "type": "C"}],
    "gpu_instances": [_INSTANCE],
    "errors": {"remap_pending": False, "remap_failed": False, "uncorrected": 0},
    "profiles": [
        {
            "name": "3g.40gb",
            "id": 9,
            "memory_mib": 40448,
            "multiprocessors": 60,
            "max_instances": 2,
            "remaining": 1,
            "starts": [0, 4],
            "size": 4,
        }
    ],
}
_WHOLE = {
    **{name: value for name, value in _GPU.items() if name != "profiles"},
    "index": 1,
    "uuid": "GPU-1",
    "pci_address": "0000:2a:00.0",
    "mig": {"supported": True, "current": False, "pending": False},
    "gpu_instances": [],
}
_CARD = {
    "address": "0000:18:00.0",
    "device_id": "0x2330",
    "subsystem_id": "0x16c1",
    "class": "0x030200",
    "kind": "gpu",
    "numa_node": 0,
    "kernel_driver": "nvidia",
    "board": "h100-80gb-sxm",
    "architecture": "hopper",
}
FACTS = {
    "schema": 1,
    "host": {
        "name": "a",
        "kernel": "6.1.0-50-amd64",
        "architecture": "x86_64",
        "boot_id": "5f",
        "python": "3.11.2",
        "distribution": {"id": "debian", "version": "12", "codename": "bookworm", "family": "debian"},
        "package_manager": "apt",
        "secure_boot": False,
        "kernel_headers": True,
        "container": False,
    },
    "pci": [_CARD, {**_CARD, "address": "0000:2a:00.0"}],
    "driver": {
        "loaded_version": "580.126.09",
        "on_disk_version": "580.126.09",
        "library_version": "580.126.09",
        "flavour": "open",
        "source": "nvidia",
        "packages": {"nvidia-open": "580.126.09-1"},
        "holds": ["nvidia-open"],
        "nouveau_loaded": False,
        "modules": ["nvidia"],
        "dkms": [{"name": "nvidia", "version": "580.126.09", "kernel": "6.1.0-50-amd64", "state": "installed"}],
        "persistence_daemon": {"installed": True, "active": True},
    },
    "nvml": {"available": True, "reason": None, "code": None, "version": "13.580.126.09", "cuda_version": "13.0"},
    "gpus": [_GPU, _WHOLE],
    "fabric": {"nvswitches": 4, "manager": {"installed": True, "active": True, "version": "1"}, "state": "completed"},
    "mps": [
        {
            "pipe_directory": "/run/nvidia-mps/0",
            "pid": 9,
            "responds": True,
            "percentage": 25.0,
            "clients": 2,
            "servers": [910],
        }
    ],
    "mps_control": {"installed": True, "multi_user": True},
    "toolkit": {
        "version": "1.20.0",
        "packages": {"nvidia-container-toolkit": "1.20.0-1"},
        "holds": ["nvidia-container-toolkit"],
        "accept_envvar_unprivileged": False,
        "accept_volume_mounts": False,
    },
    "runtimes": {
        "containerd": {
            "version": "1.6.20",
            "active": True,
            "config_path": "/etc/containerd/config.toml",
            "config_version": 2,
            "nvidia": True,
            "binary": "/usr/bin/nvidia-container-runtime",
            "default_runtime": "runc",
            "cdi": None,
            "cgroup_drivers": {"nvidia": "systemd", "runc": "systemd"},
        }
    },
    "kubelet": {"installed": True, "active": True},
    "cdi": [
        {"path": "/x.yaml", "kind": "nvidia.com/gpu", "devices": 9, "version": "0.5.0", "missing": [], "stale": []}
    ],
    "recorded": {
        "mig": {
            "schema": 1,
            "request": {},
            "gpus": [{"uuid": "GPU-0", "slot": "0000:18:00.0", "name": "x", "mig": True, "instances": []}],
        },
        "sharing": {"mode": "mps", "daemons": [{"name": "0", "limits_mib": [1], "priority": 0}]},
        "mig_unfinished": False,
    },
    "host_program": {"version": "0.1.0", "sha256": "0"},
    "health": {
        "nvidia_smi": {"rc": 0, "text": "GPU 0"},
        "xids": [{"number": 79, "pci_address": "0000:18:00.0", "text": "fallen off the bus"}],
    },
    "holders": [
        {
            "pid": 5,
            "command": "python3",
            "command_line": "python3 x",
            "devices": ["/dev/nvidia0"],
            "pod_uid": "u",
            "container_id": None,
        }
    ],
    "unknown": {"gpus[0].minor": "no reason"},
}
RECORD = {
    "schema": 1,
    "state": "installing",
    "from": "580.126.09",
    "from_toolkit": "1.20.0",
    "to": "driver 580",
    "wave": 2,
    "initial_unschedulable": False,
    "failed_reason": "why",
    "operator": "me@here/1-2",
    "since": "2026-01-01T00:00:00Z",
}
CHECKPOINT = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "u",
                "ContainerName": "c",
                "ResourceName": "nvidia.com/gpu",
                "DeviceIDs": {"0": ["GPU-0::1"]},
                "AllocResp": "x",
            }
        ],
        "RegisteredDevices": {},
    },
    "Checksum": 1,
}
POOLS = [
    {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": "all-balanced"},
    {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": [{"devices": [0], "instances": {"3g.40gb": 2}}]},
    {"nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 4, "nvidia_sharing_mps_manager": "host"},
    {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4, "nvidia_driver_version": "580.178.04"},
]
GROUPS = {"gpu_hosts": ["a", "b"], "pool-a": ["a"], "pool-b": ["b"]}
HOST_A = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}], "gpu_kubernetes_cluster": "one"}
HONEST = {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 2}], "gpu_kubernetes_cluster": "one"}
_ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def paths(value, path=()):
    """Yield the path of every value in a document."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in pairs:
        yield from paths(item, (*path, name))


VALUES = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, -1, 10**9, 2**70, 1.5, float("nan"), float("inf"), "", "x", "0", "\x1b[2J", "a\nb"]
        + ["\ud800", "\u202e", "9" * 5000, "1g.10gb", "7g.80gb", "a100-40gb", "580", "../../x", "{{ 1 }}", "--", "::"]
        + [[], {}, [None], [[]], [{}], {"": None}, {"\x1b": 1}, {"index": 0}, ["x"], [1], ["x"] * 20000],
    ),
    st.text(max_size=8),
    st.integers(-(2**33), 2**33),
)


@st.composite
def mutated(draw, document):
    """Return a document of which one to three values were replaced, taken out or doubled."""
    found = copy.deepcopy(document)
    for _number in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(paths(found))))
        verb = draw(st.sampled_from(["replace", "replace", "delete", "double"]))
        if not path:
            if verb == "replace":
                return copy.deepcopy(draw(VALUES))
            continue
        place = found
        for name in path[:-1]:
            place = place[name]
        if verb == "replace":
            place[path[-1]] = copy.deepcopy(draw(VALUES))
        elif verb == "delete":
            del place[path[-1]]
        elif isinstance(place, list):
            place.append(copy.deepcopy(place[path[-1]]))
        if not isinstance(found, (dict, list)):
            return found
    return found


@pytest.fixture(autouse=True)
def described_once(monkeypatch):
    """What people wrote is the same in all examples: it is checked once for each pool."""
    known = {}

    def collect(variables, template, *roles):
        key = repr([{name: value for name, value in variables.items() if name != "gpu_facts_host"}, roles])
        if key not in known:
            known[key] = role_variables.collect(variables, template, *roles)
        return known[key]

    for module in (descriptions, fleet):
        monkeypatch.setattr(module, "collect", collect)


def property_of(strategy, examples):
    """Return a decorator that runs a function over that many examples."""

    def decorate(function):
        settings(max_examples=examples, derandomize=True, database=None, suppress_health_check=[])(
            given(strategy)(function)
        )()

    return decorate


def shown(text):
    """Assert that a text can be shown on a terminal and written into a file."""
    assert not _ESCAPE.search(text), repr(text)
    text.encode()


def inspected(hosts):
    """Return the use of GPUs, the page and the table of what was read of some hosts: name to registered answer and variables."""
    known = {"pool-a": ["a"], "pool-b": ["b"]}
    found = {host: inspect_action._read(host, variables, known) for host, variables in hosts.items()}
    nodes = [inspect_action._node(host, about, hosts[host], None) for host, about in found.items()]
    page = usage_html.page(nodes, "title", "now", users="processes")
    tables = [usage_text.table(nodes, usage.MEMORY), usage_text.details(nodes, usage.MEMORY)]
    tables.append(host_table({host: about.facts for host, about in found.items() if about.facts}, {}))
    shown("".join([*tables, page]))
    assert len(page) < 10**6
    return usage_text.as_dict(nodes)["b"]


def planned(hosts):
    known = {"pool-a": ["a"], "pool-b": ["b"]}
    plans = []
    for host, variables in hosts.items():
        facts, unread = fleet_plan._facts(host, variables, "", False)
        plans.append(fleet_plan._plan(host, variables, known, facts, unread, None))
    plan = FleetPlan(plans)
    shown(plan.text())
    return json.dumps(plan.as_dict()["hosts"]["b"])


def rendered(hosts, directory=""):
    """Return the configurations of the pool of host b, or None where something is refused."""
    recorded = RecordedFacts(directory)
    tree = Fleet(GROUPS, recorded.gpus)
    try:
        for host, variables in hosts.items():
            tree.add(host, variables, lambda value: value)
        (cluster,) = tree.clusters()
    except Refused as refusal:
        shown(refusal.message)
        return None
    finally:
        for reason in recorded.unread.values():
            shown(reason)
    return repr([item for item in cluster.configurations if item.pool == "pool-b"])


HOSTS = {
    "b": {
        **HONEST,
        "gpu_facts_host": {"gpu": {**FACTS, "gpus": [{**_WHOLE, "board": "l40s-48gb", "memory_mib": 46068}]}},
    }
}


@EXAMPLES
@pytest.mark.parametrize("output", [planned, inspected, rendered], ids=["plan", "inspect", "render"])
def test_facts_of_a_host_hurt_no_other(output, examples):
    expected = output({"a": {**HOST_A, **POOLS[0]}, **HOSTS})
    assert expected is not None

    @property_of(st.tuples(mutated(FACTS), st.sampled_from(POOLS)), examples)
    def check(drawn):
        facts, pool = drawn
        found = output({"a": {**HOST_A, **pool, "gpu_facts_host": {"gpu": facts}}, **HOSTS})
        assert found in (expected, None) if output is rendered else found == expected


@EXAMPLES
def test_facts_are_judged_or_not_taken(examples):
    @property_of(mutated(FACTS), examples)
    def check(document):
        facts, unread = facts_of({"gpu": document})
        if facts is None:
            shown(unread)
            assert unread
        elif facts.get("health"):
            shown(json.dumps(answer(evidence_of(facts), {"expect": {}, "checks": None, "fail": True}, False)))


@EXAMPLES
def test_recorded_facts_are_taken_or_the_host_is_unread(tmp_path, examples):
    kept = {"schema": 1, "gpus": [_GPU, _WHOLE], "told": {"nvidia_mig_layout": "all-balanced"}}
    hosts = {"a": {**HOST_A, **POOLS[0]}, **HOSTS}
    expected = rendered(hosts)

    @property_of(mutated(kept), examples)
    def check(document):
        (tmp_path / "a.json").write_text(json.dumps(document))
        assert rendered(hosts, str(tmp_path)) in (expected, None)
        RecordedFacts(str(tmp_path)).earlier("a")


@EXAMPLES
@pytest.mark.parametrize("kind", ["record", "annotations"])
def test_records_are_taken_or_the_node_waits(examples, kind):
    annotations = {name: str(value) for name, value in from_values(RECORD).annotations().items()}
    document, read = (RECORD, from_values) if kind == "record" else (annotations, from_annotations)
    honest = Member("b", Record(), True)

    @property_of(mutated(document), examples)
    def check(values):
        record, unread = Record(), ""
        try:
            record = read(values)
        except Refused as refusal:
            unread = refusal.message
        shown(unread)
        members = {"a": Member("a", record, True, unread=unread), "b": honest}
        nodes = [wave_node(member, "driver 580", False) for member in members.values()]
        shown(progress(nodes, members, "driver 580"))
        assert nodes[1] == wave_node(honest, "driver 580", False)
        assert not unread or "a" not in waves.decide(nodes, waves.Budget(0, 2, "2", 0)).start
        if not unread:
            assert from_values(record.values()) == record


@EXAMPLES
def test_a_checkpoint_is_taken_or_refused(examples):
    @property_of(mutated(CHECKPOINT), examples)
    def check(document):
        try:
            for holding in holdings(json.dumps(document)):
                shown(repr(holding))
                assert len(holding.device) <= 256
        except Refused as refusal:
            shown(refusal.message)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (
            ("gpus", 0, "gpu_instances", 0, "size"),
            10**9,
            "gpus[0].gpu_instances[0].size: 1000000000 is not between 0 and 64",
        ),
        (("gpus", 0, "name"), "\x1b]0;x\x07", r"gpus[0].name: '\x1b]0;x\x07' has control characters"),
        (("gpus", 1, "index"), 0, "gpus[1].index: 0 is the index of two GPUs"),
        (("driver", "packages"), ["x"], "driver.packages: a list must be a mapping"),
        (("driver", "packages"), {"nvidia-open": None}, "driver.packages.nvidia-open: it must not be null"),
        (("pci",), [{}] * 2000, "pci: the list has 2000 entries, and may have 1024"),
        (("health", "nvidia_smi", "rc"), "0", "health.nvidia_smi.rc: '0' must be an integer"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(path, value, reason):
    document = copy.deepcopy(FACTS)
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert facts_of({"gpu": document}) == (None, f"its facts do not fit: {reason}.")


def test_the_facts_that_are_mutated_fit():
    assert facts_of({"gpu": FACTS}) == (FACTS, "")


def test_an_answer_that_is_nested_without_end_is_no_reason_to_stop():
    document = nested = []
    for _number in range(50000):
        nested.append([])
        nested = nested[0]
    assert facts_of({"gpu": document})[0] is None
