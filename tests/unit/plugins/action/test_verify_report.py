# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import driver_advisories
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import verify_report

from ...golden import corpus

GPUS = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}]}


@pytest.fixture
def read():
    """One of the README's hosts after C(site)."""
    host = corpus.ready(corpus.SHARED)
    return {**host.variables, "nvidia_health_checks": ["pci"], "gpu_facts_host": {"gpu": host.facts}}


@pytest.fixture
def report(call, tmp_path):
    def run(arguments=None, **hosts):
        path = tmp_path / "verify.json"
        groups = {"gpu_hosts": list(hosts), "training": list(hosts)}
        given = {"hosts": list(hosts), "report": str(path), **(arguments or {})}
        result, shown = call(verify_report, given, {"hostvars": hosts, "groups": groups})
        assert json.loads(path.read_text()) == result["hosts"]
        return result, shown

    return run


def with_facts(read, **facts):
    return {**read, "gpu_facts_host": {"gpu": {**read["gpu_facts_host"]["gpu"], **facts}}}


class Api:
    """The API server: what the node offers, whether it answers, and which calls it got."""

    def __init__(self, offered=None, error=""):
        self.offered, self.error, self.calls = offered, error, []

    def __call__(self, *_arguments):
        return self

    def nodes(self):
        self.calls.append("nodes")
        if self.error:
            raise verify_report.ApiError(0, "list the nodes", self.error)
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"nvidia.com/gpu": str(self.offered)},
        }
        return {name: {"metadata": {"name": name, "labels": {}}, "status": status} for name in ("good", "bad")}

    def pods_on(self, name):
        self.calls.append(name)
        return []

    def resource_slices(self):
        raise AssertionError("no pool is served by claims: they need not be allowed")

    def kinds(self, api):
        self.calls.append(api)
        return ("clusterpolicies", "nvidiadrivers", "gpuclusters", "computedomains", "computedomaincliques")

    def definition(self, name):
        self.calls.append(name)
        raise verify_report.ApiError(403, f"read the definition {name}", "Forbidden")


def check_of(result, host, name):
    return next(one for one in result["hosts"][host]["checks"] if one["name"] == name)


def test_all_hosts_with_evidence_and_next_step_for_people_and_as_json(report, read):
    result, shown = report(good=read, bad={**read, "nvidia_driver_hold": False})
    assert result["msg"] == "1 of 2 hosts are not as described, or do not work: bad."
    assert result["hosts"]["bad"]["failed_check"] == "stage driver" and not result["healthy"]
    assert "bad: not as described: stage driver; works" in shown.text
    assert "    failed   stage driver   release libcuda1" in shown.text
    assert "             next: Run gpufleet.nvidia.site" in shown.text
    assert "    passed   toolkit, runtime, boot, settings, mig, dcgm" in shown.lines


def test_a_host_that_is_as_described_and_does_not_work_is_red(report, read):
    result, shown = report(bad=with_facts(read, pci=[]))
    assert "bad: as described; does not work: pci" in shown.text or result["hosts"]["bad"]["failed_check"] == "pci"
    facts = with_facts({**read, "nvidia_health_checks": ["nvidia_smi"]}, health={"nvidia_smi": {"rc": 9, "text": "x"}})
    result, shown = report(bad=facts)
    assert "bad: as described; does not work: nvidia_smi" in shown.text and not result["healthy"]


def test_a_warning_of_a_stage_is_a_check_that_is_no_failure(report, read):
    result, _shown = report(good=read)
    found = check_of(result, "good", "stage sharing")
    assert found["status"] == "warning" and "one user ID at a time" in found["evidence"] and result["healthy"]


def test_a_cuda_that_nothing_proves_is_said_and_is_no_failure(report, read):
    host = {**read, "nvidia_health_checks": ["cuda"]}
    result, shown = report(good=host, off={**host, "nvidia_health_cuda_check": []})
    assert result["healthy"] and check_of(result, "good", "cuda")["status"] == "unproven"
    assert "good: as described; works, 1 warnings, not proven: cuda" in shown.text and "unproven cuda" in shown.text
    assert check_of(result, "off", "cuda")["status"] == "skipped"


def test_hosts_that_could_not_be_read_are_a_line_each_and_are_said_as_such(report, read):
    lost = {"gpu_facts_host": {"msg": "it cannot be reached: timed out"}}
    result, shown = report(a=lost, b=lost)
    assert result["msg"] == "2 of 2 hosts could not be read: a, b." and not result["healthy"]
    assert shown.lines == [f"{host}: could not be read: it cannot be reached: timed out" for host in "ab"]
    result, _shown = report(a=lost, b={**read, "nvidia_driver_hold": False}, c=read)
    assert result["msg"] == "2 of 3 hosts are not as described, or do not work: b; could not be read: a."


def test_an_unreachable_host_and_a_refused_description_say_why(report, read):
    lost = {"gpu_facts_host": {"unreachable": True, "msg": "Connection refused.\nmore"}}
    wrong = {**read, "nvidia_mig_layot": "all-balanced"}
    result, _shown = report(lost=lost, wrong=wrong)
    assert result["hosts"]["lost"]["checks"][0]["evidence"] == "Connection refused"
    assert check_of(result, "wrong", "pci")["status"] == "passed", "the bus is judged without a description too"
    assert "nvidia_mig_layot: no role" in check_of(result, "wrong", "description")["evidence"]


def test_what_an_earlier_release_expected_is_refused_with_what_replaces_it(report, read):
    result, _shown = report(good={**read, "nvidia_health_expect": {"gpus": 4}})
    found = check_of(result, "good", "description")
    assert "nvidia_health_expect: it no longer exists" in found["evidence"] and "gpu_facts_gpus" in found["next_step"]


def test_what_a_program_on_the_host_found_counts_in_place_of_what_was_read(report, read):
    cuda = {"name": "cuda", "status": "failed", "evidence": "vectorAdd ended with 1", "next_step": "look"}
    host = {**read, "nvidia_health_checks": ["pci", "cuda"]}
    result, _shown = report(
        good={**host, "gpu_verify_on_host": {"checks": [cuda]}},
        bad={**host, "gpu_verify_on_host": {"failed": True, "msg": "no python"}},
    )
    assert result["hosts"]["good"]["failed_check"] == "cuda"
    assert check_of(result, "good", "pci")["status"] == "passed"
    assert check_of(result, "bad", "reach")["evidence"] == "no python"


def test_the_nodes_are_read_once_for_all_hosts(report, read, monkeypatch):
    api = Api(offered=0)
    monkeypatch.setattr(verify_report, "Cluster", api)
    result, _shown = report({"kubeconfig": "x"}, good=read, bad={**read, "gpu_node_name": "elsewhere"})
    asked = ["nodes", "good", "nfd.k8s-sigs.io/v1alpha1"]
    assert api.calls == asked, "the pods of a node that is not there are not asked for"
    assert check_of(result, "good", "node")["status"] == "passed"
    assert check_of(result, "bad", "node")["evidence"] == "the cluster has no node elsewhere"
    result, _shown = report({"kubeconfig": "x"}, good={**read, "gpu_node_name": "none", "gpu_kubernetes_cluster": ""})
    for name in ("node", "allocatable"):
        check = check_of(result, "good", name)
        assert check["status"] == "skipped" and "the host belongs to no cluster" in check["evidence"]


def test_what_the_cluster_lacks_is_read_once_and_told_each_host_of_its_tree(report, read, monkeypatch):
    """A definition that may not be read is no failure."""
    api = Api(offered=0)
    monkeypatch.setattr(verify_report, "Cluster", api)
    of_operator = {**read, "gpu_kubernetes_stack": "gpu_operator"}
    result, shown = report({"kubeconfig": "x"}, good=of_operator, bad=of_operator, other=read)
    assert len(api.calls) == len(set(api.calls)), "each is asked for once"
    for host, skipped in (("good", 1), ("bad", 1), ("other", 0)):
        found = [one for one in result["hosts"][host]["checks"] if one["name"] == "definitions"]
        assert [one["status"] for one in found] == ["warning"] * 2 + ["skipped"] * skipped, found
        assert {one["group"] for one in found} == {"function"}
    assert "    warning  definitions    the API server has no nodefeatures of nfd.k8s-sigs.io/v1alpha1" in shown.text
    assert "             next: Allow get on them" in shown.text


def test_a_cluster_that_knows_no_claims_is_red_with_the_release_that_does(report, read, monkeypatch):
    class Old(Api):
        def kinds(self, _api):
            return ()

        def resource_slices(self):
            raise verify_report.ApiError(404, "list the ResourceSlices", "Not Found")

    monkeypatch.setattr(verify_report, "Cluster", Old(offered=0))
    result, _shown = report({"kubeconfig": "x"}, good={**read, "nvidia_sharing_backend": "dra"})
    failed = [one for one in result["hosts"]["good"]["checks"] if one["status"] == "failed"]
    assert {"devices of claims", "definitions"} <= {one["name"] for one in failed}
    assert failed[-1]["evidence"].startswith("the API server has no resourceslices of resource.k8s.io/v1")
    assert failed[-1]["next_step"] == "Upgrade the cluster to Kubernetes 1.34 or newer."


def test_an_api_server_that_does_not_say_what_it_has_changes_nothing_of_what_is_said_of_nodes(
    report, read, monkeypatch
):
    class Hardened(Api):
        def kinds(self, api):
            self.calls.append(api)
            raise verify_report.ApiError(403, f"list the kinds of {api}", "Forbidden")

    api = Hardened(offered=0)
    monkeypatch.setattr(verify_report, "Cluster", api)
    result, _shown = report({"kubeconfig": "x"}, good=read, bad=read)
    for host in ("good", "bad"):
        assert check_of(result, host, "node")["status"] == "passed"
        found = check_of(result, host, "definitions")
        assert (found["status"], "Forbidden" in found["evidence"]) == ("skipped", True)
    assert api.calls.count("nfd.k8s-sigs.io/v1alpha1") == 1, "an answer that does not come is waited for once"


def test_a_node_name_that_cannot_be_rendered_is_a_failed_check_of_its_host(report, read, monkeypatch):
    class Nameless(dict):
        def get(self, name, default=None):
            if name == "gpu_node_name":
                raise AnsibleUndefinedVariable("'rack' is undefined")
            return super().get(name, default)

    monkeypatch.setattr(verify_report, "Cluster", Api(offered=0))
    result, _shown = report({"kubeconfig": "x"}, bad=Nameless(read), good=read)
    assert "'rack' is undefined" in check_of(result, "bad", "node")["evidence"]
    assert check_of(result, "good", "node")["status"] == "passed"


def test_a_cluster_that_does_not_answer_is_a_failed_check_of_every_host(report, read, monkeypatch):
    monkeypatch.setattr(verify_report, "Cluster", Api(error="refused"))
    result, _shown = report({"kubeconfig": "x"}, good=read, bad=read)
    assert [result["hosts"][host]["failed_check"] for host in ("good", "bad")] == ["node", "node"]


def test_without_a_cluster_its_checks_are_skipped(report, read):
    result, _shown = report(good=read)
    assert result["healthy"]
    assert check_of(result, "good", "node")["evidence"] == "no cluster was asked: gpu_cluster_kubeconfig is not set"


def running(read, version):
    """A host with another driver that nobody manages."""
    driver = {**read["gpu_facts_host"]["gpu"]["driver"], "loaded_version": version}
    return {**with_facts(read, driver=driver), "nvidia_driver_state": "unmanaged"}


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("580.126.09", "580.126.09 is below the security floor 580.178.04"),
        ("570.148.08", "branch 570 no longer gets security fixes"),
        ("620.10.01", "whether driver branch 620 has known vulnerabilities is not known"),
    ],
)
def test_a_running_driver_that_a_bulletin_names_is_reported_and_is_no_failure(report, read, version, said):
    result, _shown = report(good=running(read, version))
    found = check_of(result, "good", "driver_security")
    assert found["status"] == "warning" and said in found["evidence"] and found["next_step"]


def test_a_host_whose_driver_has_no_version_that_can_be_read_hurts_no_other(report, read):
    result, _shown = report(odd=running(read, "other"), good=read)
    assert all(one["name"] != "driver_security" for one in result["hosts"]["odd"]["checks"])
    assert result["hosts"]["good"]["healthy"]


@pytest.mark.parametrize(
    ("state", "step"),
    [
        ("unmanaged", "Let what installs the driver install 580.178.04 or newer (nvidia_driver_state is unmanaged)"),
        ("present", "Set nvidia_driver_version to 580.178.04 or newer and run gpufleet.nvidia.upgrade"),
    ],
)
def test_who_installs_the_driver_is_told_to_move_on(report, read, state, step):
    result, _shown = report(good={**running(read, "580.126.09"), "nvidia_driver_state": state})
    assert check_of(result, "good", "driver_security")["next_step"] == step


def test_a_vulnerable_driver_is_named_whatever_else_is_refused(report, read):
    result, _shown = report(bad={**running(read, "580.126.09"), "nvidia_mig_layot": "x"})
    assert "below the security floor" in check_of(result, "bad", "driver_security")["evidence"]


def test_advisories_that_cannot_be_read_are_a_warning_beside_what_the_stage_says(report, read, tmp_path):
    result, _shown = report(good={**read, "nvidia_driver_advisories": str(tmp_path / "nowhere")})
    found = check_of(result, "good", "driver_security")
    assert found["status"] == "warning" and "nvidia_driver_advisories" in found["evidence"]


def test_a_vulnerable_driver_that_was_allowed_by_name_is_still_named(report, read):
    result, _shown = report(good={**running(read, "580.126.09"), "nvidia_driver_allow_vulnerable": True})
    found = check_of(result, "good", "driver_security")
    assert "accepted with nvidia_driver_allow_vulnerable" in found["evidence"] and not found["next_step"]


def test_a_running_driver_above_the_floor_is_not_mentioned(report, read):
    result, _shown = report(good=read)
    assert all(one["name"] != "driver_security" for one in result["hosts"]["good"]["checks"])


def test_an_advisory_of_the_site_counts_for_running_drivers(report, read, monkeypatch):
    row = {
        "branch": 580,
        "version": "580.999.01",
        "bulletin": "9999",
        "date": "2027-01-01",
        "source": "s",
        "reason": "r",
    }
    monkeypatch.setattr(driver_advisories, "read_folder", lambda folder: [row] if folder == "/advisories" else [])
    result, _shown = report(good={**read, "nvidia_driver_advisories": "/advisories"})
    assert (
        "below the security floor 580.999.01 of bulletin 9999"
        in check_of(result, "good", "driver_security")["evidence"]
    )
