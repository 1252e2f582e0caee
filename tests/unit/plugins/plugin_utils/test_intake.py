# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever a host, a file or an annotation says: it is taken, refused, or the host is one that was not read, and no other host notices."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import answer
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import evidence_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import descriptions, role_variables
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import fleet_plan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import inspect as inspect_action
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.site_gate import by_pool, work_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import inspection, usage, waves
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.devices import holdings
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.inspection import host_table
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.plan import FleetPlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import (
    FleetHost,
    NodeRecord,
    from_annotations,
    from_values,
    progress,
    wave_node,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import fleet, usage_page
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.recorded import KeptFacts
from hypothesis import strategies as st

from ...host_documents import FACTS, GPU, UNLISTED_FACTS, WHOLE
from ...mutation import examples_of, mutated, property_of, shown

#: Four outputs of two documents, and two tests more.
OF_FACTS = examples_of(tests=10)

RECORD = {
    "schema": 1,
    "state": "installing",
    "from": "580.126.09",
    "from_toolkit": "1.20.2",
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
UNLISTED_POOLS = [
    {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": {"node": {"1g.24gb": 2, "2g.48gb": 1}}},
    {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": [{"devices": "all", "instances": {"2g.48gb": 2}}]},
]
GROUPS = {"gpu_hosts": ["a", "b"], "pool-a": ["a"], "pool-b": ["b"]}
HOST_A = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}], "gpu_kubernetes_cluster": "one"}
HONEST = {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 2}], "gpu_kubernetes_cluster": "one"}


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


def of_run(hosts):
    """Return these hosts as the actions take them: name to registered answer and variables."""
    return descriptions.hosts_of(hosts, {"hostvars": hosts, "groups": GROUPS})


def inspected(hosts):
    """Return the use of GPUs, the page and the table of what was read of some hosts: name to registered answer and variables."""
    found = {host.name: inspect_action._read(host) for host in of_run(hosts)}
    nodes = [inspect_action._node(host, about, hosts[host], None) for host, about in found.items()]
    page = usage_page.page(nodes, "title", "now", users="processes")
    tables = [inspection.usage_table(nodes, usage.MEMORY), inspection.details(nodes, usage.MEMORY)]
    facts = {host: about.facts for host, about in found.items() if about.facts}
    tables.append(host_table(facts, {}, dict(zip(found, nodes, strict=True))))
    shown("".join([*tables, page]))
    assert len(page) < 10**6
    return next(inspection.as_dict(node) for node in nodes if node.name == "b")


def planned(hosts):
    plan = FleetPlan(
        [
            fleet_plan._plan(
                host, *fleet_plan.facts_of_host(host, "", False), None, {"playbook": "site", "out": ""}, None
            )[0]
            for host in of_run(hosts)
        ]
    )
    shown(plan.text())
    return json.dumps(plan.as_dict()["hosts"]["b"])


def decided(hosts):
    """Return what C(site) decides for host b, and assert that what it prints can be shown."""
    found = [work_of(host.name, host.description, host.facts, host.unread) for host in of_run(hosts)]
    shown("\n".join([*by_pool(found), *descriptions.warnings_of((work.host, work.stages) for work in found)]))
    shown("".join(refusal.message for work in found for refusal in work.refusals))
    return repr(found[-1])


def rendered(hosts, directory=""):
    """Return the configurations of the pool of host b, or None where something is refused."""
    recorded = KeptFacts(directory)
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
        "gpu_facts_host": {"gpu": {**FACTS, "gpus": [{**WHOLE, "board": "l40s-48gb", "memory_mib": 46068}]}},
    }
}


@OF_FACTS
@pytest.mark.parametrize("output", [planned, decided, inspected, rendered], ids=["plan", "site", "inspect", "render"])
@pytest.mark.parametrize(
    ("document", "pools", "host"),
    [(FACTS, POOLS, HOST_A), (UNLISTED_FACTS, UNLISTED_POOLS, {"gpu_kubernetes_cluster": "one"})],
    ids=["listed", "unlisted"],
)
def test_facts_of_a_host_hurt_no_other(document, pools, host, output, examples):
    expected = output({"a": {**host, **pools[0]}, **HOSTS})
    assert expected is not None or "gpu_facts_gpus" not in host
    neighbour = output(HOSTS) if expected is None else expected

    @property_of(st.tuples(mutated(document), st.sampled_from(pools)), examples)
    def check(drawn):
        facts, pool = drawn
        found = output({"a": {**host, **pool, "gpu_facts_host": {"gpu": facts}}, **HOSTS})
        assert found in (neighbour, None) if output is rendered else found == neighbour


@OF_FACTS
def test_facts_are_judged_or_not_taken(examples):
    @property_of(mutated(FACTS), examples)
    def check(document):
        facts, unread = facts_of({"gpu": document})
        if facts is None:
            shown(unread)
            assert unread
        elif facts.health:
            shown(json.dumps(answer(evidence_of(facts), {"expect": {}, "checks": None, "fail": True}, False)))


@OF_FACTS
def test_recorded_facts_are_taken_or_the_host_is_unread(tmp_path, examples):
    kept = {"schema": 1, "gpus": [GPU, WHOLE], "told": {"nvidia_mig_layout": "all-balanced"}}
    hosts = {"a": {**HOST_A, **POOLS[0]}, **HOSTS}
    expected = rendered(hosts)

    @property_of(mutated(kept), examples)
    def check(document):
        (tmp_path / "a.json").write_text(json.dumps(document))
        assert rendered(hosts, str(tmp_path)) in (expected, None)
        KeptFacts(str(tmp_path)).earlier("a")


@examples_of()
@pytest.mark.parametrize("kind", ["record", "annotations"])
def test_records_are_taken_or_the_node_waits(examples, kind):
    annotations = {name: str(value) for name, value in from_values(RECORD).annotations().items()}
    document, read = (RECORD, from_values) if kind == "record" else (annotations, from_annotations)
    honest = FleetHost("b", NodeRecord(), True)

    @property_of(mutated(document), examples)
    def check(values):
        record, unread = NodeRecord(), ""
        try:
            record = read(values)
        except Refused as refusal:
            unread = refusal.message
        shown(unread)
        members = {"a": FleetHost("a", record, True, unread=unread), "b": honest}
        nodes = [wave_node(member, "driver 580", False) for member in members.values()]
        shown(progress(nodes, members, "driver 580"))
        assert nodes[1] == wave_node(honest, "driver 580", False)
        assert not unread or "a" not in waves.decide(nodes, waves.Budget(0, 2, "2", 0)).start
        if not unread:
            assert from_values(record.values()) == record


@examples_of()
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
        (("pci",), [{}] * 2000, "pci: the list has 2000 entries, and may have at most 1024"),
        (("health", "nvidia_smi", "rc"), "0", "health.nvidia_smi.rc: '0' must be an integer"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(path, value, reason):
    document = copy.deepcopy(FACTS)
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert facts_of({"gpu": document}) == (None, f"its facts are invalid: {reason}.")


@pytest.mark.parametrize("document", [FACTS, UNLISTED_FACTS], ids=["listed", "unlisted"])
def test_the_facts_that_are_mutated_fit(document):
    assert facts_of({"gpu": document}) == (view_of(document), "")


@pytest.mark.parametrize("pool", UNLISTED_POOLS)
def test_the_board_that_the_table_does_not_have_is_planned(pool):
    description = descriptions.describe("a", {**pool, "gpu_kubernetes_cluster": "one"}, {"pool-a": ["a"]})
    stages = description.stages(view_of(UNLISTED_FACTS))
    assert stages["mig"].needed and not stages["mig"].refusals


def test_an_answer_that_is_nested_without_end_is_no_reason_to_stop():
    document = nested = []
    for _number in range(50000):
        nested.append([])
        nested = nested[0]
    assert facts_of({"gpu": document})[0] is None
