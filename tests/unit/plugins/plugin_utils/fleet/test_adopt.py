# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adoption over facts that two lab hosts gave: C(hand) after NVIDIA's installation guide, C(parted) after nvidia-mig-parted."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.adopt import Adopted, adopt, slurm_node
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.adopt_cluster import ServedConfiguration
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.adopt_inventory import MARK, inventory, read_deepops
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import STAGES, plan_stages
from ansible_collections.gpufleet.nvidia.tests import recorded_facts
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import installed_program, seen

FACTS = Path(__file__).parent / "adopt"
DEFAULTS = collect({}, lambda value: value)


@pytest.fixture(params=["hand", "parted"])
def facts(request):
    return recorded_facts.read(FACTS / f"{request.param}.json")


@pytest.fixture
def hand():
    return recorded_facts.read(FACTS / "hand.json")


@pytest.fixture
def parted():
    return recorded_facts.read(FACTS / "parted.json")


def adopted(facts, served=None, runtime=""):
    return adopt("gpu01", seen(facts), served or ServedConfiguration(), STAGES, DEFAULTS, runtime)


def left(facts, one):
    """What plan shows over the variables."""
    plans = plan_stages(seen(facts), collect(one.variables, lambda value: value))
    return [name for name, plan in plans.items() if plan.needed or plan.refusals]


def test_over_what_is_written_there_is_nothing_to_do(facts):
    one = adopted(facts)
    assert one.differences == ()
    assert left(facts, one) == []
    assert one.variables["nvidia_driver_branch"] == "580" and "nvidia_driver_state" not in one.variables


def test_nothing_that_is_written_is_a_default_that_differs_from_the_host(hand):
    """The same host under the roles' defaults has much to do: what is written is not empty talk."""
    plans = plan_stages(seen(hand), DEFAULTS)
    assert {name for name, plan in plans.items() if plan.needed} >= {"driver", "toolkit"}


def changed(facts, **parts):
    found = copy.deepcopy(facts)
    for part, values in parts.items():
        found[part].update(values)
    return found


def test_a_driver_of_the_run_installer_is_left_alone_and_named(hand):
    facts = changed(hand, driver={"source": "runfile", "packages": {}})
    one = adopted(facts)
    assert one.variables["nvidia_driver_state"] == "unmanaged" and "nvidia_driver_branch" not in one.variables
    assert "NVIDIA's .run installer" in one.differences[0]
    assert left(facts, one) == []


def unloaded(facts, **driver):
    facts = changed(facts, driver={"loaded_version": None, "on_disk_version": None, **driver})
    return {**facts, "gpus": [], "nvml": {"available": False, "reason": "the driver is not loaded"}}


def test_a_bare_host_is_written_as_what_it_is_to_become(hand):
    """Nothing is called installed that is not, and nothing is unmanaged for it."""
    facts = unloaded(hand, source=None, packages={}, library_version=None, dkms=[])
    facts["toolkit"].update(packages={}, version=None, accept_envvar_unprivileged=None, accept_volume_mounts=None)
    facts["runtimes"]["containerd"].update(nvidia=False, binary=None)
    one = adopted(facts)
    assert one.boards == {hand["gpus"][0]["board"]: len(hand["gpus"])}
    assert not [name for name in one.variables if name.startswith("nvidia_driver_")]
    assert one.variables["nvidia_toolkit_runtime"] == "containerd"
    driver, toolkit = one.differences
    assert driver.startswith("driver: none is installed. Site would: install driver branch 580")
    assert toolkit.startswith("toolkit: it is not set up for containerd. Site would: install nvidia-container-toolkit")
    assert {"driver", "toolkit", "runtime"} <= set(left(facts, one)) and "impossible" not in toolkit
    # Containers of a host without a kubelet are Docker's, which has a containerd, too.
    facts["runtimes"]["docker"] = {**facts["runtimes"]["containerd"], "version": "28.3.0"}
    facts["kubelet"] = {"installed": False, "active": False}
    assert adopted(facts).variables["nvidia_toolkit_runtime"] == "docker"
    del facts["runtimes"]["docker"], facts["runtimes"]["containerd"]
    assert any("no container runtime of the host has" in note for note in adopted(facts).notes)


def test_beside_the_containerd_of_k0s_nothing_is_written_that_site_refuses(hand):
    facts = unloaded(hand, source=None, packages={})
    facts["toolkit"].update(packages={}, version=None, accept_envvar_unprivileged=None, accept_volume_mounts=None)
    facts["runtimes"]["containerd"].update(nvidia=False, binary=None)
    facts["runtimes"]["k0s"] = {"active": True, "own": True}
    one = adopted(facts)
    assert one.variables["nvidia_toolkit_runtime"] == "none"
    (said,) = [text for text in one.differences if text.startswith("toolkit: ")]
    assert said.startswith("toolkit: it is not set up. nvidia_toolkit_runtime: the pods of this host run in")
    assert "/etc/k0s/containerd.d/nvidia.toml" in said
    assert not {"toolkit", "runtime"} & {*left(facts, one)}


def test_a_host_with_packages_and_no_module_is_written_as_what_it_is_to_become(hand):
    facts = unloaded(hand)
    one = adopted(facts)
    assert one.variables["nvidia_driver_branch"] == "580" and "nvidia_driver_state" not in one.variables
    driver = one.differences[0]
    assert driver.startswith("driver: 580.") and "is installed and not loaded. Site would: " in driver
    # What site refuses is left alone, as on a host whose driver runs.
    facts["driver"]["source"] = "vendor"
    facts["driver"]["vendor"] = "negativo17"
    foreign = adopted(facts)
    assert foreign.variables["nvidia_driver_state"] == "unmanaged"
    assert "was installed by packages of negativo17" in foreign.differences[0]


@pytest.mark.parametrize(("daemon", "mode", "said"), [(False, True, True), (False, False, False), (True, True, False)])
def test_persistence_mode_without_its_daemon_stays_and_is_named(hand, daemon, mode, said):
    facts = changed(hand, driver={"persistence_daemon": {"installed": True, "active": daemon}})
    for gpu in facts["gpus"]:
        gpu["persistence_mode"] = mode
    one = adopted(facts)
    assert one.variables["nvidia_driver_persistence"] is daemon
    assert any("persistence mode is on without nvidia-persistenced" in note for note in one.notes) is said
    assert left(facts, one) == []


def test_a_driver_below_the_security_floor_is_left_alone_and_what_site_would_do_is_said(hand):
    text = json.dumps(hand).replace("580.178.04", "580.126.09")
    facts = json.loads(text)
    one = adopted(facts)
    assert one.variables["nvidia_driver_state"] == "unmanaged"
    (difference,) = one.differences
    assert "580.126.09" in difference and "With nvidia_driver_state: present site would: change driver" in difference
    assert left(facts, one) == []


def test_a_vulnerable_toolkit_is_left_alone_and_named(hand):
    facts = json.loads(json.dumps(hand).replace('"1.20.2', '"1.17.4'))
    one = adopted(facts)
    assert one.variables["nvidia_toolkit_runtime"] == "none"
    (difference,) = one.differences
    assert difference.startswith("toolkit: it is left alone") and "CVE-" in difference
    assert left(facts, one) == []


def test_the_toolkit_of_the_operators_container_is_no_difference(hand):
    facts = copy.deepcopy(hand)
    facts["toolkit"].update(packages={}, version=None, holds=[])
    facts["runtimes"]["containerd"]["binary"] = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    one = adopted(facts, ServedConfiguration(toolkit=True))
    assert one.differences == () and "GPU Operator's container installs the container toolkit" in one.notes[-1]
    assert "nvidia_toolkit_cdi" not in one.variables, "what takes its place needs a specification"
    assert adopted(facts).differences


def test_the_driver_of_the_operators_container_is_no_difference(hand):
    facts = changed(hand, driver={"source": None, "packages": {}})
    one = adopted(facts, ServedConfiguration(driver=True))
    assert one.variables["nvidia_driver_state"] == "unmanaged" and one.differences == ()
    assert "GPU Operator's container installs driver 580" in one.notes[0]


def test_what_the_cluster_shares_is_described(hand):
    served = ServedConfiguration(sharing={"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4})
    one = adopted(hand, served)
    assert (one.variables["nvidia_sharing_mode"], one.variables["nvidia_sharing_replicas"]) == ("time_slicing", 4)
    assert left(hand, one) == []


def test_a_daemon_that_somebody_started_and_a_compute_mode_by_hand_are_named(hand):
    facts = copy.deepcopy(hand)
    facts["mps"] = [{"pipe_directory": "/tmp/nvidia-mps", "pid": 9, "responds": True}]
    facts["gpus"][0]["compute_mode"] = "exclusive_process"
    compute, daemon = adopted(facts).differences
    assert "set compute mode" in compute and "/tmp/nvidia-mps" in daemon


def test_a_host_program_is_described_with_its_metrics_and_what_site_would_replace_of_it_is_said(hand):
    hand["host_program"] = installed_program("/srv")
    known = {**DEFAULTS, "host_program": {name: hand["host_program"][name] for name in ("version", "sha256")}}
    one = adopt("gpu01", seen(hand), ServedConfiguration(), STAGES, known, "")
    assert one.variables["nvidia_health_metrics_directory"] == "/srv" and one.differences == ()
    hand["host_program"].update(version="0.9.0", sha256="0" * 64)
    (said,) = adopt("gpu01", seen(hand), ServedConfiguration(), STAGES, known, "").differences
    assert said.startswith("boot: site would: ") and "0.9.0" in said


def test_the_layout_is_what_the_gpus_have_and_the_services_configuration_is_held_against_it(parted):
    one = adopted(parted)
    assert one.variables["nvidia_mig_layout"] == [
        {"devices": "all", "instances": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
    ]
    assert one.variables["nvidia_mig_restore"] is False
    assert any("nvidia-mig-manager.service restores" in note for note in one.notes)
    other = changed(parted, mig_parted={"selected": "all-disabled"})
    (difference,) = adopted(other).differences
    assert "makes GPU 0 MIG off in place of 3g.40gb + 2g.20gb + 1g.10gb x2" in difference
    for broken in ({"config": "{"}, {"config": "[]"}, {"config": "[" * 30_000}, {"selected": "no-such"}):
        (difference,) = adopted(changed(parted, mig_parted=broken)).differences
        assert "cannot be read" in difference
    by_hand = adopted({**parted, "mig_parted": None})
    assert by_hand.differences == () and any("nothing restores the MIG layout" in note for note in by_hand.notes)
    by_operator = adopted({**parted, "mig_parted": None}, ServedConfiguration(mig_manager=True))
    assert by_operator.variables["nvidia_mig_restore"] is False
    assert any("GPU Operator's MIG manager restores" in note for note in by_operator.notes)
    assert not any("nothing restores" in note for note in by_operator.notes)


def test_the_strategy_of_the_cluster_counts_where_the_layout_allows_it(parted):
    assert adopted(parted, ServedConfiguration(strategy="mixed")).variables["nvidia_mig_strategy"] == "mixed"
    # Different profiles under single are what the plugin refuses: the layout is left alone, and that is said.
    one = adopted(parted, ServedConfiguration(strategy="single"))
    assert one.variables["nvidia_mig_layout"] == [] and one.differences[0].startswith("mig: the layout is left alone")
    off = copy.deepcopy(parted)
    for gpu in off["gpus"]:
        gpu.update(mig={"supported": True, "current": False, "pending": False}, gpu_instances=[])
    off["mig_parted"] = None
    assert adopted(off).variables["nvidia_mig_layout"] == []


def test_a_board_that_is_not_in_the_table_is_adopted_all_the_same(hand):
    facts = copy.deepcopy(hand)
    facts["gpus"][0]["board"] = None
    one = adopted(facts)
    assert one.boards == {} and "gpu_facts_gpus" not in one.variables and "table of boards" in one.notes[0]


def test_deepops_variables_break_ties_and_what_they_mean_here_is_said():
    told = read_deepops(
        {"deepops_gpu_operator_enabled": True, "nvidia_driver_branch": "535", "k8s_gpu_mig_strategy": "mixed",
         "container_manager": "crio", "nvidia_driver_skip_reboot": True}, "580", False)  # fmt: skip
    assert (told.strategy, told.runtime) == ("mixed", "crio")
    assert [note.split(":")[0] for note in told.notes] == ["DeepOps"] * 3
    assert read_deepops({"deepops_gpu_operator_enabled": True}, "580", True).notes == ()


def of(host, boards, **variables):
    return Adopted(host, boards, {"nvidia_driver_branch": "580", **variables})


def test_equal_hosts_are_one_pool_and_what_all_have_is_written_once():
    layout = [{"devices": "all", "instances": {"1g.10gb": 7}}]
    hosts = [of("b", {"h100-80gb-sxm": 8}, nvidia_mig_layout=layout), of("a", {"h100-80gb-sxm": 8}, nvidia_mig_layout=layout),
             of("c", {"h100-80gb-sxm": 4}, nvidia_mig_layout=layout),
             of("d", {"l40s-48gb": 2}, nvidia_sharing_mode="mps")]  # fmt: skip
    found = inventory(
        hosts, {"gpu_kubernetes_namespace": "x"}, {"a": {"ansible_host": "10.0.0.1"}}, {}, [], ["l40s_48gb_mps"]
    )
    assert [(pool.name, pool.hosts) for pool in found.pools] == [
        ("h100_80gb_sxm_mig", ("a", "b")),
        ("h100_80gb_sxm_mig_2", ("c",)),
        ("l40s_48gb_mps_2", ("d",)),
    ]
    files = found.files()
    assert all(text.startswith(f"---\n{MARK}\n") for path, text in files.items() if path.endswith(".yml"))
    assert yaml.safe_load(files["group_vars/gpu_hosts.yml"]) == {
        "nvidia_driver_branch": "580",
        "gpu_kubernetes_namespace": "x",
    }
    assert yaml.safe_load(files["group_vars/h100_80gb_sxm_mig.yml"]) == {"nvidia_mig_layout": layout}
    hosts_file = yaml.safe_load(files["hosts.yml"])["all"]["children"]["gpu_hosts"]["children"]
    assert hosts_file["h100_80gb_sxm_mig"] == {"hosts": {"a": {"ansible_host": "10.0.0.1"}, "b": None}}


def test_what_is_not_described_is_in_the_readme_equal_things_once():
    hosts = [Adopted(name, {}, {}, ("driver: it is left alone",)) for name in ("a", "b")]
    found = inventory(hosts, {}, {}, {"c": "unreachable"}, ["a note"])
    assert found.differences == {"a": ["driver: it is left alone"], "b": ["driver: it is left alone"]}
    readme = found.files()["README.md"]
    assert "a, b\n" in readme and readme.count("it is left alone") == 1
    assert "unreachable" in readme and "a note" in readme


SLURM_CONF = """ClusterName=Old_HPC
SlurmctldHost=head1(10.0.0.2)
SlurmctldHost=head2
GresTypes=gpu
NodeName=gpu[01-04] Gres=gpu:8
NodeName=big NodeHostname=gpu09 Gres=gpu:8
"""


def of_slurm(facts, name, conf=SLURM_CONF):
    site = {
        "/etc/slurm/slurm.conf": conf,
        "/etc/slurm/gres.conf": "# ours\nNodeName=gpu[01-02] Name=gpu File=/dev/nvidia0\n",
    }
    return {**facts, "slurm": {"site": site}, "host": {**facts["host"], "name": name}}


def test_a_node_of_slurm_has_its_cluster_and_what_the_site_defines_itself_is_named_with_file_and_line(hand):
    one = adopted(of_slurm(hand, "gpu01.example.org"))
    assert one.variables["gpu_slurm_cluster"] == "old-hpc"
    assert one.variables["gpu_slurm_controllers"] == ["head1", "head2"]
    (said,) = one.differences
    assert said.startswith("slurm: site would bring node gpu01 the rendered files")
    for line in (
        "slurm.conf, line 4: it sets GresTypes",
        "slurm.conf, line 5: it defines the node gpu01",
        "gres.conf, line 2: it defines GPUs of gpu01",
    ):
        assert f"/etc/slurm/{line}" in said
    assert "line 6" not in said
    # What is not brought is not there to be compared.
    assert left(hand, one) == []


def test_a_node_with_another_name_in_slurm_is_known_by_its_host_name(hand):
    facts = of_slurm(hand, "gpu09")
    assert slurm_node(seen(facts), "gpu09") == "big"
    assert "line 6: it defines the node big" in adopted(facts).differences[0]


@pytest.mark.parametrize(("name", "conf"), [("login", SLURM_CONF), ("gpu01", SLURM_CONF.replace("ClusterName", "#"))])
def test_a_host_that_is_no_node_of_the_slurm_that_it_has_is_not_described_as_one(hand, name, conf):
    one = adopted(of_slurm(hand, name, conf))
    assert "gpu_slurm_cluster" not in one.variables and one.differences[0].startswith("slurm: slurm.conf has no ")
