# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster must show of a node, against what the real plugin and gpu-feature-discovery showed."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.desired import read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import host_sharing
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.capacity import capacity, gpus_of_inventory, merged
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.node_labels import product
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen_gpu


def sharing(**options):
    return read({f"nvidia_sharing_{name}": value for name, value in options.items()})


def inventory(board, count):
    return gpus_of_inventory([{"board": board, "count": count}])


def facts(name, count, memory_mib, board, architecture):
    """GPUs as gpu_info reads them: nothing about them has to be guessed."""
    return [
        {
            "index": index,
            "name": name,
            "board": board,
            "architecture": architecture,
            "memory_mib": memory_mib,
            "mig": {"supported": True, "current": False},
            "gpu_instances": [],
        }
        for index in range(count)
    ]


H100 = facts("NVIDIA H100 80GB HBM3", 8, 81559, "h100-80gb-sxm", "hopper")


def shown(labels, *names):
    return {name: labels.get(f"nvidia.com/{name}") for name in names}


# The recorded cases of 8 x H100: sharing, then what gpu-feature-discovery put on the node.
@pytest.mark.parametrize(
    ("options", "resources", "labels"),
    [
        ({}, 8, ("NVIDIA-H100-80GB-HBM3", "8", "1", "none", "false")),
        (
            {"mode": "time_slicing", "replicas": 4},
            32,
            ("NVIDIA-H100-80GB-HBM3-SHARED", "8", "4", "time-slicing", "false"),
        ),
        ({"mode": "mps", "replicas": 4}, 32, ("NVIDIA-H100-80GB-HBM3-SHARED", "8", "4", "mps", "true")),
        ({"mode": "mps", "replicas": 48}, 384, ("NVIDIA-H100-80GB-HBM3-SHARED", "8", "48", "mps", "true")),
    ],
)
def test_whole_gpus(options, resources, labels):
    result = capacity([seen_gpu(one) for one in H100], "none", [], sharing(**options))
    assert result.resources == {"nvidia.com/gpu": resources}
    names = ("gpu.product", "gpu.count", "gpu.replicas", "gpu.sharing-strategy", "mps.capable")
    assert tuple(shown(result.labels, *names).values()) == labels
    assert result.labels["nvidia.com/mig.capable"] == "true"
    assert "nvidia.com/mig.strategy" not in result.labels
    assert result.assumed == ()


def test_renamed():
    result = capacity(
        [seen_gpu(one) for one in H100], "none", [], sharing(mode="time_slicing", replicas=4, rename=True)
    )
    assert result.resources == {"nvidia.com/gpu.shared": 32}
    assert result.labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert result.replicas == {"nvidia.com/gpu": 4}


def test_balanced_under_mixed():
    result = capacity([seen_gpu(one) for one in H100], "mixed", "all-balanced", sharing())
    assert result.resources == {"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8}
    assert shown(result.labels, "gpu.count", "gpu.replicas", "mig.strategy", "gpu.product") == {
        "gpu.count": "8",
        "gpu.replicas": "0",
        "mig.strategy": "mixed",
        "gpu.product": "NVIDIA-H100-80GB-HBM3",
    }
    of_3g = {name: value for name, value in result.labels.items() if name.startswith("nvidia.com/mig-3g.40gb.")}
    assert of_3g == {
        "nvidia.com/mig-3g.40gb.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb",
        "nvidia.com/mig-3g.40gb.count": "8",
        "nvidia.com/mig-3g.40gb.replicas": "1",
        "nvidia.com/mig-3g.40gb.multiprocessors": "60",
        "nvidia.com/mig-3g.40gb.slices.gi": "3",
        "nvidia.com/mig-3g.40gb.slices.ci": "3",
        "nvidia.com/mig-3g.40gb.sharing-strategy": "none",
    }
    assert result.approximate["nvidia.com/mig-3g.40gb.memory"] == "40448"


# Scenario 3: a p4d-like node.
@pytest.mark.parametrize(
    ("strategy", "layout", "resources"),
    [
        ("single", {"1g.5gb": 7}, {"nvidia.com/gpu": 56}),
        ("mixed", {"1g.5gb": 7}, {"nvidia.com/mig-1g.5gb": 56}),
        ("mixed", {"2g.10gb": 3}, {"nvidia.com/mig-2g.10gb": 24}),
        ("mixed", {"3g.20gb": 2}, {"nvidia.com/mig-3g.20gb": 16}),
        ("mixed", {"4g.20gb": 1}, {"nvidia.com/mig-4g.20gb": 8}),
        ("mixed", {"7g.40gb": 1}, {"nvidia.com/mig-7g.40gb": 8}),
        ("mixed", {"1g.5gb+me": 1, "1g.5gb": 6}, {"nvidia.com/mig-1g.5gb.me": 8, "nvidia.com/mig-1g.5gb": 48}),
    ],
)
def test_mig_on_eight_a100(strategy, layout, resources):
    result = capacity(
        [seen_gpu(one) for one in inventory("a100-40gb", 8)],
        strategy,
        [{"devices": "all", "instances": layout}],
        sharing(),
    )
    assert result.resources == resources


def test_time_slicing_on_mig():
    layout = [{"devices": [0], "instances": {"1g.5gb": 7}}, {"devices": [1], "enabled": False}]
    result = capacity(
        [seen_gpu(one) for one in inventory("a100-40gb", 2)], "mixed", layout, sharing(mode="time_slicing", replicas=3)
    )
    assert result.resources == {"nvidia.com/gpu": 3, "nvidia.com/mig-1g.5gb": 21}
    assert result.replicas == {"nvidia.com/gpu": 3, "nvidia.com/mig-1g.5gb": 3}
    assert result.labels["nvidia.com/mig-1g.5gb.sharing-strategy"] == "time-slicing"


def test_single_labels():
    layout = [{"devices": "all", "instances": {"1g.10gb": 7}}]
    result = capacity([seen_gpu(one) for one in H100], "single", layout, sharing(mode="time_slicing", replicas=2))
    assert result.resources == {"nvidia.com/gpu": 112}
    assert shown(result.labels, "gpu.product", "gpu.count", "gpu.replicas") == {
        "gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED",
        "gpu.count": "56",
        "gpu.replicas": "2",
    }


def test_a_label_of_boards_of_two_products_is_certain_or_approximate_and_not_both():
    gpus = [*inventory("h100-80gb-sxm", 1), *inventory("h100-80gb-pcie", 2)]
    gpus = [gpu.but(index=index) for index, gpu in enumerate(gpus)]
    result = capacity(gpus, "single", [{"devices": "all", "instances": {"1g.10gb": 7}}], sharing())
    assert result.labels["nvidia.com/gpu.count"] == "21"
    assert result.approximate["nvidia.com/gpu.family"] == "hopper"
    assert not set(result.labels) & set(result.approximate)


@pytest.mark.parametrize(("memory", "replicas", "limit"), [(46068, 11, 4188), (81559, 19, 4292), (49152, 12, 4096)])
def test_slices_by_mps(memory, replicas, limit):
    gpus = facts("NVIDIA L40S", 4, memory, "l40s-48gb", "ada")
    result = capacity([seen_gpu(one) for one in gpus], "none", [], sharing(mode="mps", memory_slice="4GiB"))
    assert result.resources == {"nvidia.com/gpu": 4 * replicas}
    unit = result.slices["nvidia.com/gpu"]
    assert (unit.replicas, unit.limit_mib, unit.active_thread_percentage) == (replicas, limit, 100 // replicas)


def test_a_daemon_of_the_host_gives_the_slice_exactly_and_no_labels_come():
    gpus = facts("NVIDIA L40S", 4, 46068, "l40s-48gb", "ada")
    result = capacity(
        [seen_gpu(one) for one in gpus], "none", [], sharing(mode="mps", memory_slice="4GiB", mps_manager="host")
    )
    assert result.resources == {"nvidia.com/gpu": 44}
    assert result.slices["nvidia.com/gpu"].limit_mib == 4096
    assert result.labels == {}
    unseen = capacity(
        [seen_gpu(one) for one in gpus],
        "none",
        [],
        sharing(mode="mps", memory_slice="4GiB", mps_manager="host", mps_scope="gpu"),
    )
    assert unseen.resources == {"nvidia.com/gpu": 4}


@pytest.mark.parametrize(
    ("options", "limit", "percentage"),
    [
        ({"replicas": 4}, 11517, 100),
        ({"replicas": 4, "mps_active_thread_percentage": 25}, 11517, 25),
        ({"memory_slice": "4GiB", "mps_active_thread_percentage": 12.5}, 4096, 12.5),
        ({"replicas": 4, "mps_limits": [{"gpu": 0, "memory": "8GiB"}]}, 8192, 100),
    ],
)
def test_what_is_predicted_is_what_the_daemon_of_the_host_is_told(options, limit, percentage):
    gpus = [{**gpu, "uuid": "GPU-0"} for gpu in facts("NVIDIA L40S", 1, 46068, "l40s-48gb", "ada")]
    described = sharing(mode="mps", mps_manager="host", **options)
    unit = capacity([seen_gpu(one) for one in gpus], "none", [], described).slices["nvidia.com/gpu"]
    assert (unit.limit_mib, unit.active_thread_percentage) == (limit, percentage)
    (daemon,) = host_sharing(described, [seen_gpu(gpu) for gpu in gpus]).daemons
    assert (daemon.limits_mib, daemon.percentage) == ((limit,), percentage)


def test_a_daemon_of_the_host_has_the_clients_of_cuda_and_not_those_of_the_plugins_daemon():
    gpus = facts("Tesla V100-SXM2-16GB", 1, 16384, "v100-16gb", "volta")
    described = sharing(mode="mps", replicas=48, mps_manager="host")
    assert capacity([seen_gpu(one) for one in gpus], "none", [], described).resources == {"nvidia.com/gpu": 48}


def test_hami_and_dra():
    assert capacity(
        [seen_gpu(one) for one in H100], "none", [], sharing(memory_slice="4GiB", backend="hami")
    ).resources == {"nvidia.com/gpu": 80}
    claimed = capacity([seen_gpu(one) for one in H100], "none", [], sharing(memory_slice="4GiB", backend="dra"))
    assert (claimed.resources, claimed.devices) == ({}, {"gpu.nvidia.com": 8})
    assert claimed.slices["gpu.nvidia.com"].limit_mib == 4096
    with pytest.raises(
        Refused, match=r"operating mode hami-core, which shares whole GPUs.*operating mode mig makes and destroys"
    ):
        capacity([seen_gpu(one) for one in H100], "mixed", "all-balanced", sharing(memory_slice="4GiB", backend="hami"))


def test_devices_of_claims_are_the_mig_devices_of_the_layout_and_the_gpus_without_mig():
    layout = [{"devices": [0, 1], "instances": {"1g.10gb": 4, "3g.40gb": 1}}]
    found = capacity([seen_gpu(one) for one in H100], "mixed", layout, sharing(backend="dra"))
    assert found.devices == {"gpu.nvidia.com": 6, "mig.nvidia.com/1g.10gb": 8, "mig.nvidia.com/3g.40gb": 2}
    assert found.as_dict()["devices"] == found.devices == found.offers


def test_nodes_of_one_configuration_are_shown_with_the_most_devices_of_any():
    two, eight = (
        capacity([seen_gpu(one) for one in H100[:count]], "none", [], sharing(backend="dra")) for count in (2, 8)
    )
    assert merged([two, eight]).devices == {"gpu.nvidia.com": 8}


def test_what_the_table_only_knows_about_is_called_approximate():
    result = capacity([seen_gpu(one) for one in inventory("a100-40gb", 1)], "none", [], sharing())
    assert "nvidia.com/gpu.product" in result.approximate, "SXM or PCIe: the table cannot know"
    assert "nvidia.com/gpu.memory" in result.approximate
    assert result.assumed
    assert set(result.as_dict()) == {"resources", "labels", "labels_approximate", "slices", "assumed"}


def test_gpus_of_two_sizes_make_no_one_number_of_replicas():
    gpus = facts("NVIDIA L40S", 1, 46068, "l40s-48gb", "ada") + facts("NVIDIA L4", 1, 23034, "l4", "ada")
    gpus[1]["index"] = 1
    with pytest.raises(Refused, match="5 and 11 replicas"):
        capacity([seen_gpu(one) for one in gpus], "none", [], sharing(mode="mps", memory_slice="4GiB"))


@pytest.mark.parametrize(
    ("layout", "options", "match"),
    [
        ([{"devices": "all", "instances": {"1c.3g.40gb": 3}}], {}, "does not offer the compute instance"),
        ("all-balanced", {"mode": "mps", "replicas": 2}, "does not share MIG devices"),
    ],
)
def test_what_the_plugin_cannot_serve_is_refused(layout, options, match):
    with pytest.raises(Refused, match=match):
        capacity([seen_gpu(one) for one in H100], "mixed", layout, sharing(**options))


def test_too_many_clients_for_an_old_board():
    gpus = facts("Tesla V100-SXM2-16GB", 1, 16384, "v100-16gb", "volta")
    with pytest.raises(Refused, match="at most 16"):
        capacity([seen_gpu(one) for one in gpus], "none", [], sharing(mode="mps", replicas=17))


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"board": "l40x", "count": 1}, "Did you mean"),
        ({"board": "l40s", "count": 0}, "0 must be an integer from 1 to 64"),
        ({"board": "l40s", "count": 10**9}, "1000000000 must be an integer from 1 to 64"),
        ({"board": "h100", "count": 1}, "Did you mean"),
    ],
)
def test_inventory_errors(entry, match):
    with pytest.raises(Refused, match=match):
        gpus_of_inventory([entry])


def test_a_board_can_be_named_without_its_memory_where_that_is_enough():
    assert gpus_of_inventory([{"board": "l40s", "count": 2}])[1].board == "l40s-48gb"


def test_a_board_without_a_product_name_of_its_own_has_no_product_label():
    gpus = gpus_of_inventory([{"board": "rtx-2080-ti-12gb", "count": 1}])
    found = capacity([seen_gpu(one) for one in gpus], "none", [], read({"nvidia_sharing_mode": "none"}))
    assert found.resources == {"nvidia.com/gpu": 1}
    assert not [name for name in {**found.labels, **found.approximate} if name.endswith(".product")]


def test_product_names():
    assert product("NVIDIA A100-SXM4-40GB") == "NVIDIA-A100-SXM4-40GB"
    assert product("NVIDIA  RTX (TM) 6000") == "NVIDIA-RTX-TM-6000"


def mixed(**options):
    layout = [{"devices": [0], "mig-enabled": False}, {"devices": [1], "instances": {"1g.10gb": 7}}]
    layout[0] = {"devices": [0], "instances": {"3g.40gb": 2}}
    gpus = inventory("h100-80gb-sxm", 3)
    return capacity([seen_gpu(one) for one in gpus], "mixed", layout, sharing(mode="time_slicing", **options))


def test_each_resource_has_replicas_of_its_own():
    found = mixed(replicas={"gpu": 4, "1g.10gb": 2})
    assert found.replicas == {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": 2}
    assert found.resources == {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": 14, "nvidia.com/mig-3g.40gb": 2}
    labels = {**found.labels, **found.approximate}
    assert (labels["nvidia.com/gpu.replicas"], labels["nvidia.com/gpu.sharing-strategy"]) == ("4", "time-slicing")
    assert labels["nvidia.com/mig-1g.10gb.replicas"] == "2"
    assert labels["nvidia.com/mig-1g.10gb.product"].endswith("-SHARED")
    assert (labels["nvidia.com/mig-3g.40gb.replicas"], labels["nvidia.com/mig-3g.40gb.sharing-strategy"]) == (
        "1",
        "none",
    )
    assert not labels["nvidia.com/mig-3g.40gb.product"].endswith("-SHARED")
    assert found.slices["nvidia.com/mig-3g.40gb"].replicas == 1


def test_only_what_is_shared_is_renamed():
    found = mixed(replicas={"1g.10gb": 2}, rename=True)
    assert found.resources == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb.shared": 14, "nvidia.com/mig-3g.40gb": 2}
    labels = {**found.labels, **found.approximate}
    assert (labels["nvidia.com/gpu.replicas"], labels["nvidia.com/gpu.sharing-strategy"]) == ("1", "none")


def test_replicas_for_a_resource_that_the_node_does_not_have_are_refused():
    with pytest.raises(Refused, match="no such resource") as refusal:
        mixed(replicas={"2g.20gb": 2})
    assert "nvidia.com/mig-1g.10gb" in refusal.value.remedy
