# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One host in use keeps all from being touched."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import remove_gate

GROUPS = {"gpu_hosts": ["a", "b"], "training": ["a", "b"]}


@pytest.fixture
def gate(call, bare_facts):
    def run(**variables):
        hostvars = {host: {"gpu_facts_host": {"gpu": bare_facts}, **variables.get(host, {})} for host in ("a", "b")}
        return call(remove_gate, {"hosts": ["a", "b"]}, {"groups": GROUPS, "hostvars": hostvars})[0]

    return run


def test_hosts_get_what_their_removal_needs_with_defaults(gate):
    result = gate(b={"nvidia_toolkit_runtime": "docker", "nvidia_mig_disruption": "force"})
    assert "failed" not in result and result["refusals"] == []
    assert result["hosts"]["a"]["nvidia_toolkit_runtime"] == "containerd"
    assert result["hosts"]["a"]["nvidia_mig_disruption"] == "refuse"
    # Docker is not on this host: there is nothing to take the runtime nvidia out of.
    assert result["hosts"]["b"]["nvidia_toolkit_runtime"] == "none"
    assert result["hosts"]["b"]["nvidia_mig_disruption"] == "force"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"nvidia_mig_layot": "all-balanced"}, "a: nvidia_mig_layot: no role"),
        ({"gpu_facts_host": {"gpu": {"schema": "x"}}}, "a: the host: it could not be read: its facts are invalid"),
    ],
)
def test_one_refused_host_stops_all(gate, variables, said):
    result = gate(a=variables)
    assert result["failed"] and [refusal["hosts"] for refusal in result["refusals"]] == [["a"]]
    assert said in result["msg"] and "Nothing is removed from any host." in result["msg"]


def test_what_stays_is_named_with_the_hosts_that_have_it(gate, bare_facts):
    installed = {name: {**(bare_facts.get(name) or {}), "packages": {"p": "1-1"}} for name in ("toolkit", "driver")}
    has = {"gpu_facts_host": {"gpu": {**bare_facts, **installed}}}
    gone = {"gpu_remove_toolkit": True, "gpu_remove_driver": "true"}

    def left(**variables):
        return [line.partition(": ")[2] for line in gate(**variables)["left"] if line.startswith("Left installed")]

    assert left(a=has, b={**has, **gone}) == ["the container toolkit on a.", "the driver on a."]
    assert left(a={**has, "gpu_remove_driver": True}, b=has) == ["the container toolkit on a, b.", "the driver on b."]
    assert left(a={**has, **gone}, b={**has, **gone}) == []
    assert left() == [], "what a host does not have is not left on it"
