# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a Slurm cluster, byte by byte, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.slurm_files import expanded
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.capacity import gpus_of_inventory
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.slurm_node import checks, job_checks, read_nodes
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import writer
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.capacity_document import digests_of_hosts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet, OfFacts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.slurm_tree import slurm_tree
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen_gpu

GOLDEN = Path(__file__).parent / "data" / "slurm"
#: What Debian's slurmd and slurmctld 22.05.8 said that ran with the files in GOLDEN; see the README there.
RECORDED = Path(__file__).parent.parent / "fleet" / "slurm"
COMMON = {
    "gpu_kubernetes_cluster": "",
    "gpu_slurm_cluster": "hpc",
    "gpu_slurm_node_parameters": {"CPUs": 2, "RealMemory": 100},
    "gpu_slurm_constrain_devices": False,
}
MIG = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": [0], "instances": {"1g.10gb": 2, "1c.2g.20gb": 2}}],
}
SHARED = {
    "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 2}],
    "nvidia_sharing_mode": "time_slicing",
    "nvidia_sharing_replicas": 4,
}
MPS = {
    "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 1}],
    "nvidia_sharing_mode": "mps",
    "nvidia_sharing_replicas": 4,
    "nvidia_sharing_mps_manager": "host",
    "nvidia_sharing_mps_scope": "gpu",
}


def h100(index=0, instances=(), name="NVIDIA H100 80GB HBM3"):
    """An H100 as it was read; each instance is its ID, its profile, its start and its compute instances."""
    found = [
        {
            "id": number,
            "profile": profile,
            "start": start,
            "size": 1,
            "compute_instances": [{"id": inner, "profile": part} for inner, part in enumerate(parts)],
        }
        for number, profile, start, parts in instances
    ]
    mig = {"supported": True, "current": bool(found), "pending": bool(found)}
    gpu = {"index": index, "name": name, "board": "h100-80gb-sxm", "memory_mib": 81559, "device_id": "0x2330"}
    return seen_gpu({**gpu, "mig": mig, "gpu_instances": found})


PARTS = [
    (9, "1g.10gb", 0, ["1g.10gb"]),
    (10, "1g.10gb", 1, ["1g.10gb"]),
    (3, "2g.20gb", 2, ["1c.2g.20gb", "1c.2g.20gb"]),
]


def clusters(pools, facts=None, before=None, files=None):
    """Return the Slurm clusters of pools, {pool: (hosts, variables)}, with facts by host."""
    groups = {pool: list(hosts) for pool, (hosts, _variables) in pools.items()}
    groups["gpu_hosts"] = [host for hosts in groups.values() for host in hosts]
    fleet = Fleet(groups, lambda host, _variables: (facts or {}).get(host))
    for hosts, variables in pools.values():
        for host in hosts:
            fleet.add(host, {**COMMON, **variables}, lambda value: value)
    assert fleet.clusters() == []
    return fleet.slurm_clusters(
        lambda _cluster: before or {}, lambda paths: {path: (files or {})[path] for path in paths}
    )


def shown(*arguments, **options):
    """Return the nodes of what was rendered before."""
    return read_nodes(tree(*arguments, **options)["capacity.json"], "capacity.json")


def tree(*arguments, **options):
    (cluster,) = clusters(*arguments, **options)
    return slurm_tree(cluster)


def mig_tree(**variables):
    gpus = [h100(0, PARTS), h100(1)]
    hosts = ["gpu02.example.org", "gpu01.example.org"]
    return tree({"mig": (hosts, {**MIG, **variables})}, dict.fromkeys(hosts, gpus))


def test_a_saved_plan_has_a_digest_of_what_the_files_say_of_each_node():
    """A run that was cut off has changed the files of the hosts that it began with, and compares those of the others."""
    hosts = ["gpu01.example.org", "gpu02.example.org"]

    def digests(facts=None, **variables):
        facts = {**{host: [h100(0, PARTS), h100(1)] for host in hosts}, **(facts or {})}
        return digests_of_hosts([], clusters({"mig": (hosts, {**MIG, **variables})}, facts))

    before = digests()
    assert sorted(before) == hosts
    # One that was begun has other instances, or none.
    for gpus in ([h100(0, PARTS[:2]), h100(1)], [h100(0), h100(1)]):
        after = digests({hosts[1]: gpus})
        assert after[hosts[0]] == before[hosts[0]] and after.get(hosts[1]) != before[hosts[1]]
    assert all(one != before[host] for host, one in digests(gpu_slurm_node_parameters={"CPUs": 4}).items())


def test_the_files_with_which_debians_slurm_ran():
    files = mig_tree()
    for name, text in files.items():
        path = GOLDEN / name
        if os.environ.get("RECORD_SLURM"):
            path.write_text(text)
        assert text == path.read_text(), name
    assert {path.name for path in GOLDEN.iterdir()} - {"README.md"} == set(files)
    # It has been run: slurmd found what the files say, in their order, and the node was IDLE.
    node = read_nodes(files["capacity.json"], "capacity.json")["gpu01"]
    said = [(RECORDED / f"whole.{program}.txt").read_text() for program in ("slurmd", "scontrol")]
    assert [one.status for one in checks("gpu01", node, *said)] == ["passed", "passed"]


def test_the_same_input_has_the_same_bytes():
    assert mig_tree() == mig_tree()


def test_cgroups_in_place_of_the_prolog():
    files = mig_tree(gpu_slurm_constrain_devices=True)
    assert "ConstrainDevices=yes\n" in files["cgroup.conf"]
    assert "task-prolog.sh" not in files


def test_shared_gpus_are_shards():
    files = tree({"shared": (["l2", "l1", "l3"], SHARED)})
    assert "NodeName=l[1-3] CPUs=2 RealMemory=100 Gres=gpu:nvidia_l40s:2,shard:nvidia_l40s:8\n" in files["nodes.conf"]
    assert "GresTypes=gpu,shard\n" in files["nodes.conf"]
    assert "NodeName=l[1-3] Name=shard Type=nvidia_l40s Count=4 File=/dev/nvidia1\n" in files["gres.conf"]
    node = read_nodes(files["capacity.json"], "capacity.json")["l1"]
    assert checks("l1", node, (RECORDED / "shards.slurmd.txt").read_text(), "")[0].status == "passed"


def test_clients_of_mps_are_told_their_daemon():
    files = tree({"mps": (["l1"], MPS)})
    assert "Gres=gpu:nvidia_l40s:1,mps:nvidia_l40s:100\n" in files["nodes.conf"]
    assert "NodeName=l1 Name=mps Type=nvidia_l40s Count=100 File=/dev/nvidia0\n" in files["gres.conf"]
    assert "\n0 0 - - /run/nvidia/mps/gpu0/pipe\n" in files["task-prolog.sh"]


def test_with_nvml_slurmd_names_what_it_finds():
    layout = [{"devices": "all", "instances": {"1g.10gb": 2, "3g.40gb": 1}}]
    files = tree(
        {"mig": (["gpu1"], {**MIG, "nvidia_mig_layout": layout, "gpu_slurm_autodetect": "nvml"})},
        {"gpu1": [h100(0, name="NVIDIA H100-SXM5")]},
    )
    assert "Gres=gpu:nvidia_h100_1g.10gb:2,gpu:nvidia_h100_3g.40gb:1\n" in files["nodes.conf"]
    assert files["gres.conf"].endswith("\nNodeName=gpu1 AutoDetect=nvml\n")
    assert "task-prolog.sh" not in files


def test_hosts_in_the_default_cluster_of_kubernetes_are_named():
    fleet = Fleet({"gpu_hosts": ["l1", "l2", "l3"], "a": ["l1", "l2", "l3"]}, lambda _host, _variables: None)
    said = {"l1": {}, "l2": {"gpu_kubernetes_cluster": ""}, "l3": {"gpu_kubernetes_cluster": "cluster"}}
    for host, variables in said.items():
        fleet.add(host, {**SHARED, "gpu_slurm_cluster": "hpc", **variables}, lambda value: value)
    assert fleet.in_both == ["l1"]


def test_a_node_without_its_instances_is_left_out_until_it_has_them():
    (cluster,) = clusters({"mig": (["gpu1"], MIG)}, {"gpu1": [h100()]})
    assert not cluster.nodes
    assert "Run gpufleet.nvidia.site" in cluster.pending["gpu1"]


def test_a_node_with_jobs_is_rendered_as_it_is_until_it_is_as_described():
    changed = {**MIG, "nvidia_mig_layout": [{"devices": [0], "instances": {"3g.40gb": 2}}]}
    before = shown({"mig": (["gpu1"], MIG)}, {"gpu1": [h100(0, PARTS)]})
    (cluster,) = clusters({"mig": (["gpu1"], changed)}, {"gpu1": [h100(0, PARTS)]}, before=before)
    assert [node.gres for node in cluster.nodes] == [
        "gpu:nvidia_h100_80gb_hbm3_1c.2g.20gb:2,gpu:nvidia_h100_80gb_hbm3_1g.10gb:2"
    ]
    assert "3g.40gb x2" in cluster.behind["gpu1"] and not cluster.pending
    # Of a node that was never read nothing is known that could stay.
    assumed = {**changed, "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 1}]}
    with pytest.raises(Refused, match=r"gpu1: nvidia_mig_layout: GPU 0 is to have .*: not read"):
        clusters({"mig": (["gpu1"], assumed)}, before=before)


def off(gpu, current=False, **more):
    """Return a GPU that was read, with its mode of MIG."""
    return seen_gpu({"memory_mib": 46068, "mig": {"supported": True, "current": current}, **gpu, **more})


WHOLE = [h100(), h100(1)]
SHARED_H100 = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4}
MPS_H100 = {
    "nvidia_sharing_mode": "mps",
    "nvidia_sharing_replicas": 4,
    "nvidia_sharing_mps_manager": "host",
    "nvidia_sharing_mps_scope": "gpu",
}
DIVIDED = [h100(0, PARTS), h100(1)]


@pytest.mark.parametrize("mode", [SHARED_H100, MPS_H100])
@pytest.mark.parametrize("detected", [{}, {"gpu_slurm_autodetect": "nvml"}])
def test_a_pool_goes_from_mig_to_sharing(mode, detected):
    described = {**mode, **detected}
    layout = {"nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 2}}]}
    parts = [(1, "3g.40gb", 0, ["3g.40gb"]), (2, "3g.40gb", 4, ["3g.40gb"])]
    divided = [h100(0, parts), h100(1, parts)]
    before = shown({"a": (["gpu1"], {**MIG, **layout, **detected})}, {"gpu1": divided})
    (cluster,) = clusters({"a": (["gpu1"], described)}, {"gpu1": divided}, before=before)
    files = slurm_tree(cluster)
    assert "Run gpufleet.nvidia.site" in cluster.behind["gpu1"]
    # Nobody shares its MIG devices until they are gone.
    assert "GresTypes=gpu\n" in files["nodes.conf"] and ":4\n" in files["nodes.conf"]
    (cluster,) = clusters({"a": (["gpu1"], described)}, {"gpu1": WHOLE}, before=before)
    assert cluster.nodes[0].resources.shared in ("shard", "mps") and not cluster.behind


@pytest.mark.parametrize("mode", [SHARED_H100, MPS_H100])
def test_a_pool_goes_from_sharing_to_mig_and_shares_until_then(mode):
    before = shown({"a": (["gpu1"], mode)}, {"gpu1": WHOLE})
    (cluster,) = clusters({"a": (["gpu1"], MIG)}, {"gpu1": WHOLE}, before=before)
    (same,) = clusters({"a": (["gpu1"], mode)}, {"gpu1": WHOLE})
    assert cluster.behind
    assert {name: text for name, text in slurm_tree(cluster).items() if name != "capacity.json"} == {
        name: text for name, text in slurm_tree(same).items() if name != "capacity.json"
    }
    (cluster,) = clusters({"a": (["gpu1"], MIG)}, {"gpu1": DIVIDED}, before=before)
    assert cluster.nodes[0].resources.shared == "" and not cluster.behind


def test_a_refusal_of_what_is_there_now_names_the_host():
    # Two MIG devices that Slurm cannot tell apart, in a host that is changed later.
    names = {"gpu_slurm_types": {"nvidia_h100_80gb_hbm3_1g.10gb": "x", "nvidia_h100_80gb_hbm3_1c.2g.20gb": "x"}}
    before = shown({"a": (["gpu1"], {})}, {"gpu1": WHOLE})
    with pytest.raises(OfFacts, match="pool a \\(gpu1\\): gpu_slurm_types"):
        clusters({"a": (["gpu1"], names)}, {"gpu1": DIVIDED}, before=before)


@pytest.mark.parametrize("current", [None, "bus"])
def test_a_node_of_which_mig_was_not_read_waits(current):
    before = shown({"a": (["gpu1"], MIG)}, {"gpu1": DIVIDED})
    gpus = [seen_gpu({"index": 0, "name": "NVIDIA H100 80GB HBM3", "board": "h100-80gb-sxm", "memory_mib": 81559})]
    if current == "bus":
        gpus = gpus_of_inventory([{"board": "h100-80gb-sxm", "count": 2}])
    (cluster,) = clusters({"a": (["gpu1"], MIG)}, {"gpu1": gpus}, before=before)
    assert not cluster.nodes and not cluster.behind
    assert "what is known of it is: not read" in cluster.pending["gpu1"]


def test_a_node_waits_whose_type_is_one_of_several_names_of_its_board():
    described = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}]}
    (cluster,) = clusters({"a": (["gpu1"], described)})
    assert not cluster.nodes
    assert "more than one product name" in cluster.pending["gpu1"]
    named = {**described, "gpu_slurm_types": {"nvidia_h100_80gb_hbm3": "h100"}}
    assert "Gres=gpu:h100:2\n" in tree({"a": (["gpu1"], named)})["nodes.conf"]
    # A host that was read is called by its name.
    assert (
        "Gres=gpu:nvidia_h800:1\n"
        in tree({"a": (["gpu1"], described)}, {"gpu1": [h100(name="NVIDIA H800")]})["nodes.conf"]
    )


A40 = {"name": "NVIDIA A40", "board": "a40", "mig": {"supported": False}}
L40S = {"name": "NVIDIA L40S", "board": "l40s-48gb", "mig": {"supported": False}}


def test_a_job_is_told_its_gpu_where_the_types_are_in_another_order():
    gpus = [off(L40S, index=0), off(A40, index=1)]
    files = tree({"a": (["l1"], {})}, {"l1": gpus})
    assert "Gres=gpu:nvidia_a40:1,gpu:nvidia_l40s:1\n" in files["nodes.conf"]
    assert "\n0 1 - - -\n" in files["task-prolog.sh"]
    assert "task-prolog.sh" not in tree({"a": (["l1"], {"gpu_slurm_constrain_devices": True})}, {"l1": gpus})
    assert "task-prolog.sh" not in tree({"a": (["l1"], {})}, {"l1": [off(A40, index=0), off(L40S, index=1)]})


def test_what_slurmd_finds_itself_is_numbered_by_the_bus():
    gpus = [off(L40S, index=0, minor=1), off(L40S, index=1, minor=0)]
    files = tree({"a": (["l1"], {**MPS, "gpu_slurm_autodetect": "nvml"})}, {"l1": gpus})
    assert "\n0 1 - - /run/nvidia/mps/gpu0/pipe\n" in files["task-prolog.sh"]
    node = read_nodes(files["capacity.json"], "capacity.json")["l1"]
    assert [one.files for one in node.devices] == [(), ()]
    mixed = [off(L40S, index=0), off(A40, index=1)]
    with pytest.raises(Refused, match=r"gpu_slurm_autodetect: .*by the order of types"):
        tree({"a": (["l1"], {**MPS, "gpu_slurm_autodetect": "nvml"})}, {"l1": mixed})


def test_what_a_product_is_called_cannot_add_a_line():
    files = tree({"a": (["gpu1"], {})}, {"gpu1": [h100(name="X NodeName=evil,$(id) Y")]})
    assert len(files["nodes.conf"].splitlines()) == 4
    assert "Gres=gpu:x_nodename_evil___id__y:1" in files["nodes.conf"]


TWO = {"gpu1": [h100(0, PARTS[:2]), h100(1)]}
ONE_G = {**MIG, "nvidia_mig_layout": [{"devices": [0], "instances": {"1g.10gb": 2}}]}


@pytest.mark.parametrize(
    ("pools", "match"),
    [
        ({"a": (["login.1", "login.2"], SHARED)}, "two hosts of Slurm cluster hpc would be the node login"),
        ({"a": (["a_.1"], SHARED)}, "'a_' is no name of a node in Slurm"),
        ({"a": (["DEFAULT"], SHARED)}, "'DEFAULT' is no name of a node"),
        ({"a": (["l1"], {**SHARED, "gpu_slurm_node_name": "l[1-2]"})}, "names several nodes of Slurm"),
        ({"a": (["l1"], {**SHARED, "gpu_slurm_cluster": "HPC 1"})}, "gpu_slurm_cluster: 'HPC 1' is not a valid name"),
        ({"a": (["l1"], {**SHARED, "gpu_slurm_version": "21.08"})}, "gpu_slurm_version"),
        (
            {"a": (["l1"], SHARED), "b": (["l2"], {**SHARED, "gpu_slurm_version": "24.05"})},
            "both belong to Slurm cluster hpc",
        ),
        (
            {"a": (["l1"], {**SHARED, "gpu_slurm_node_parameters": {"Gres": "gpu:1"}})},
            "Gres follows from the description",
        ),
        ({"a": (["l1"], {**SHARED, "gpu_slurm_node_parameters": {"Reason": "a\nb"}})}, "not a value of one line"),
        ({"a": (["l1"], {**SHARED, "gpu_slurm_types": {"nvidia_l40s": "8"}})}, "'8' is not a type of Slurm"),
        (
            {"a": (["gpu1"], {**ONE_G, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 2})},
            "is a MIG device",
        ),
        ({"a": (["l1"], {**MPS, "nvidia_sharing_mps_scope": "node"})}, "Slurm gives a job the MPS of one GPU"),
        (
            {"a": (["gpu1"], {**ONE_G, "gpu_slurm_types": {"nvidia_h100_80gb_hbm3_1g.10gb": "nvidia_h100_80gb_hbm3"}})},
            "nvidia_h100_80gb_hbm3 and nvidia_h100_80gb_hbm3_1g.10gb of one node would have the type",
        ),
        ({"a": (["gpu1"], {**ONE_G, "gpu_slurm_autodetect": "nvml"})}, "the one name is a part of the other"),
        (
            {"a": (["l1"], {**SHARED, "gpu_slurm_autodetect": "nvml", "gpu_slurm_types": {"nvidia_l40s": "big"}})},
            "only if the type is a part of that name",
        ),
        (
            {"a": (["gpu1"], {**MIG, "nvidia_mig_layout": "all-enabled", "gpu_slurm_autodetect": "nvml"})},
            "slurmd does not start on such a host",
        ),
        (
            {"a": (["l1"], {**SHARED, "gpu_slurm_node_parameters": {"CPUs": 1, "cpus": 2}})},
            "l1: gpu_slurm_.*cpus: .*twice",
        ),
        (
            {"a": (["l1"], {**SHARED, "gpu_slurm_other_gres": ["nic:1\nInclude /tmp/x"]})},
            "l1: gpu_slurm_other_gres: 'nic",
        ),
        ({"a": (["l1"], {**SHARED, "gpu_slurm_other_gres": ["nic:1 State=DOWN"]})}, "is not a generic resource"),
        ({"a": (["gpu1"], {**ONE_G, "gpu_slurm_other_gres": ["shard:8"]})}, "shard:8 follows from the description"),
        ({"a": (["gpu1"], {**ONE_G, "gpu_slurm_other_gres": ["gpu"]})}, "gpu follows from the description"),
        ({"a": (["l1"], {**SHARED, "gpu_slurm_gres_types": ["nic\nNodeName=x"]})}, "gpu_slurm_gres_types: 'nic"),
        ({"a": (["gpu1"], {**ONE_G, "gpu_slurm_gres_types": ["nic,shard"]})}, "gpu_slurm_gres_types: 'nic,shard'"),
        (
            {"a": (["l1"], {**MPS, "gpu_slurm_directory": "/etc\ntouch /tmp/x"})},
            "gpu_slurm_directory: .* not an absolute path",
        ),
        (
            {"a": (["l1"], {**SHARED, "gpu_slurm_directory": "/etc/sl\u00fcrm"})},
            "gpu_slurm_directory: .* not an absolute path",
        ),
        ({"a": (["10.0.0.5"], SHARED)}, "'10' is no name of a node"),
        ({"a": (["gpu1"], ONE_G), "b": (["l1"], SHARED)}, "gpu1 has MIG devices and l1 shares its GPUs"),
        ({"a": (["gpu1"], {**ONE_G, "gpu_slurm_gres_types": ["mps"]})}, "gpu_slurm_gres_types has mps"),
    ],
)
def test_refused(pools, match):
    with pytest.raises(Refused, match=match):
        for cluster in clusters(pools, TWO):
            slurm_tree(cluster)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("# x\nNodeName=l[0-3] \\\n  CPUs=4\n", "site.conf, line 2: it defines the node l1"),
        ("nodename=a,l1 cpus=4", "it defines the node l1"),
        ("nodename=[k-m][1-2],[k,l]1 cpus=4\nNodeName=x,l[1-2-3] \nNodeName=l[0-1]", "line 3: it defines the node l1"),
        ("GresTypes=gpu", "line 1: it sets GresTypes"),
        ("NodeName=l1 Name=gpu File=/dev/nvidia0", "it defines GPUs of l1"),
        ("Name=gpu File=/dev/nvidia0", "it defines GPUs of every node"),
        ("\nAutoDetect=nvml", "line 2: it defines GPUs of every node"),
    ],
)
def test_what_the_site_defines_itself_is_refused_with_file_and_line(text, match):
    pools = {"a": (["l1"], {**SHARED, "gpu_slurm_site_files": ["site.conf"]})}
    with pytest.raises(Refused, match=match):
        clusters(pools, files={"site.conf": text})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rack[0-1]gpu[1-2],login", {"rack0gpu1", "rack0gpu2", "rack1gpu1", "rack1gpu2", "login"}),
        ("l[01,03-04]x", {"l01x", "l03x", "l04x"}),
        ("l[1-2-3],,[]a,b", {"b"}),
    ],
)
def test_ranges_of_slurm(text, names):
    assert expanded(text) == names


def test_more_nodes_than_any_cluster_has_are_not_made():
    assert len(expanded("a[0-999999999]b[0-999999999]")) == 100_000


@pytest.mark.parametrize(
    "text",
    [
        "NodeName=l[2-9],login CPUs=4\n#NodeName=l1\nInclude /etc/slurm/gpufleet/nodes.conf\nNodeName=DEFAULT State=UNKNOWN",
        "NodeName=l1 Name=nic Count=2\nName=bandwidth Count=4G\nNodeName=l2 Name=gpu File=/dev/nvidia0\nAutoDetect=off",
        "NodeName=l001 CPUs=4",
    ],
)
def test_what_the_site_defines_for_others_stays(text):
    clusters({"a": (["l1"], {**SHARED, "gpu_slurm_site_files": ["s"]})}, files={"s": text})


@pytest.mark.parametrize(
    ("environment", "printed"),
    [
        ({"SLURM_STEP_GPUS": "3"}, "export CUDA_VISIBLE_DEVICES=MIG-GPU-a/9/0\n"),
        ({"SLURM_JOB_GPUS": "1,2"}, "export CUDA_VISIBLE_DEVICES=MIG-GPU-a/3/0,MIG-GPU-a/3/1\n"),
        ({"SLURM_STEP_GPUS": "0"}, "export CUDA_VISIBLE_DEVICES=GPU-b\n"),
        ({}, ""),
        ({"SLURM_STEP_GPUS": "3", "SLURMD_NODENAME": "other"}, ""),
        (
            {"SLURM_STEP_GPUS": "7"},
            "print gpufleet: no device has the number 7 on gpu01; the node and its Slurm files do not agree\nexport CUDA_VISIBLE_DEVICES=none\n",
        ),
    ],
)
def test_the_prolog_names_the_device_of_the_job(tmp_path, environment, printed):
    for minor, uuid in enumerate(("GPU-a", "GPU-b")):
        (tmp_path / str(minor)).mkdir()
        text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (tmp_path / str(minor) / "information").write_text(text)
    text = mig_tree()["task-prolog.sh"].replace("/proc/driver/nvidia/gpus", str(tmp_path))
    variables = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "gpu01", **environment}
    done = subprocess.run(["sh", "-c", text], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == printed
    assert not done.stderr


@pytest.mark.parametrize(
    ("recorded", "evidence"),
    [
        ("fewer", "it finds gpu:nvidia_h100_80gb_hbm3_1g.10gb 1 instead of 2"),
        (
            "more",
            "slurmd ignores devices of gres.conf that slurm.conf does not have, and no job gets them: gpu:nvidia_h100_80gb_hbm3_1g.10gb x1",
        ),
        ("other", "nvidia-cap94 is not among its devices"),
        ("split", "it finds gpu:nvidia_h100_80gb_hbm3_1c.2g.20gb 6 instead of 2"),
    ],
)
def test_what_slurmd_finds_instead_is_said(recorded, evidence):
    node = read_nodes((GOLDEN / "capacity.json").read_text(), "capacity.json")["gpu01"]
    found = checks("gpu01", node, (RECORDED / f"{recorded}.slurmd.txt").read_text(), "")[0]
    assert found.status == "failed"
    assert evidence in found.evidence


ONE_G, UNDIVIDED = "gpu:nvidia_h100_80gb_hbm3_1g.10gb", "gpu:nvidia_h100_80gb_hbm3"


@pytest.mark.parametrize(
    ("kind", "seen", "constrained", "right"),
    [
        (ONE_G, "MIG-GPU-a/10/0", False, True),
        (ONE_G, "MIG-of-10", False, True),
        (ONE_G, "MIG-GPU-a/3/1", False, False),
        (ONE_G, "GPU-b", False, False),
        (ONE_G, "0", False, False),
        (ONE_G, "0", True, True),
        (ONE_G, "none", True, False),
        (ONE_G, "", True, False),
        (UNDIVIDED, "GPU-b", False, True),
        (UNDIVIDED, "0", False, True),
        (UNDIVIDED, "MIG-of-10", False, False),
    ],
)
@pytest.mark.parametrize("detected", [False, True])
def test_a_job_sees_a_device_of_its_type(kind, seen, constrained, right, detected):
    node = read_nodes((GOLDEN / "capacity.json").read_text(), "capacity.json")["gpu01"]
    if detected:
        # Which of them is of which type, slurmd knows alone.
        node = dataclasses.replace(node, devices=tuple(dataclasses.replace(one, files=()) for one in node.devices))
        right = bool(seen) and seen != "none"
    instances = [
        {"id": number, "compute_instances": [{"id": part, "uuid": f"MIG-of-{number}"} for part in range(parts)]}
        for number, parts in ((3, 2), (9, 1), (10, 1))
    ]
    gpus = [
        seen_gpu({"minor": 0, "uuid": "GPU-a", "gpu_instances": instances}),
        seen_gpu({"minor": 1, "uuid": "GPU-b"}, 1),
    ]
    (found,) = job_checks(node, gpus, {kind: seen}, constrained)
    assert (found.name, found.status) == (f"job with {kind}:1", "passed" if right else "failed")
    assert found.evidence == (seen if right else f"no device of its type: {seen or 'nothing'}")


@pytest.mark.parametrize(
    ("recorded", "status", "evidence"),
    [
        ("whole", "passed", "IDLE"),
        ("other", "passed", "IDLE"),
        ("fewer", "failed", "DRAIN+INVALID_REG: gres/gpu count reported lower than configured (4 < 5)"),
        ("more", "failed", "gpu:nvidia_h100_80gb_hbm3_1g.10gb:1 instead of gpu:"),
        ("absent", "failed", "the cluster has no node gpu01"),
    ],
)
def test_what_the_cluster_has_of_the_node_is_said(recorded, status, evidence):
    node = read_nodes((GOLDEN / "capacity.json").read_text(), "capacity.json")["gpu01"]
    found = checks("gpu01", node, "", (RECORDED / f"{recorded}.scontrol.txt").read_text())[1]
    assert (found.status, evidence in found.evidence) == (status, True), found
    assert (found.status != "failed") or found.next_step


@pytest.mark.parametrize(
    ("gres", "same"),
    [
        ("gpu:a:8(S:0-1),shard:a:1024,nic:2", True),
        ("gpu:a:8(S:0,2),shard:a:1K(S:0,2),nic:2", True),
        ("nic:2,shard:a:1K,gpu:a:8", True),
        ("gpu:a:7(S:0-1),shard:a:1K,nic:2", False),
        ("gpu:a:8,shard:a:1M,nic:2", False),
        ("gpu:a:8(S:0,2),shard:a:1K", False),
        ("(null)", False),
    ],
)
def test_what_scontrol_shows_is_compared_by_name_and_number(gres, same):
    document = json.loads((GOLDEN / "capacity.json").read_text())
    document["nodes"]["gpu01"]["scontrol"]["Gres"] = "gpu:a:8,shard:a:1024,nic:2"
    node = read_nodes(json.dumps(document), "capacity.json")["gpu01"]
    text = f"NodeName=gpu01 Arch=x86_64\n   Gres={gres}\n   State=IDLE ThreadsPerCore=1\n"
    assert (checks("gpu01", node, "", text)[1].status == "passed") is same


@pytest.mark.parametrize(
    "said",
    [
        "slurm_load_node error: Unable to contact slurm controller (connect failure)",
        "[Errno 2] No such file: b'scontrol'",
    ],
)
def test_a_controller_that_does_not_answer_is_no_missing_node(said):
    node = read_nodes((GOLDEN / "capacity.json").read_text(), "capacity.json")["gpu01"]
    found = checks("gpu01", node, "", f"\n{said}\x1b[2J\nmore\n")[1]
    assert (found.status, found.evidence) == ("failed", f"slurmctld gave no answer: {said}?[2J")
    assert "scontrol is installed" in found.next_step
    assert checks("gpu01", node, "", "")[1].evidence == "slurmctld gave no answer: it printed nothing"


def test_a_drained_node_is_said_and_no_failure():
    node = read_nodes((GOLDEN / "capacity.json").read_text(), "capacity.json")["gpu01"]
    text = (RECORDED / "whole.scontrol.txt").read_text().replace("State=IDLE ", "State=IDLE+DRAIN ")
    assert checks("gpu01", node, "", text)[1].status == "warning"


def test_another_capacity_is_refused():
    with pytest.raises(Refused, match="not a capacity"):
        read_nodes(json.dumps({"schema": 1, "cluster": "x", "nodes": {"a": {"host": "a"}}}), "path")


def test_what_was_rendered_before_and_the_sites_files_are_read(tmp_path):
    folder = tmp_path / writer.SLURM / "hpc"
    folder.mkdir(parents=True)
    (folder / "capacity.json").write_text(mig_tree()["capacity.json"])
    assert set(writer.slurm_nodes(str(tmp_path), "hpc")) == {"gpu01", "gpu02"}
    assert writer.slurm_nodes(str(tmp_path), "viz") == {}
    assert writer.still_there(str(tmp_path), "slurm/hpc", [], ["gpu01.example.org", "other"]) == ["gpu01"]
    (tmp_path / "slurm.conf").write_text("NodeName=x")
    path = str(tmp_path / "slurm.conf")
    assert writer.site_files([path]) == {path: "NodeName=x"}
    with pytest.raises(Refused, match="there is no file nowhere"):
        writer.site_files(["nowhere"])
