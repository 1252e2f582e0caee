# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which variables describe a host when a run tells some hosts otherwise than the inventory."""

from __future__ import annotations

import json

import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.recorded import HostVariables, KeptFacts

DAY, NIGHT = "all-balanced", "all-1g.10gb"
INVENTORY = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": DAY, "gpu_kubernetes_cluster": "one"}


class Manager:
    """As much of Ansible's variable manager as is asked, for hosts that the inventory describes alike."""

    def __init__(self, inventory, extra):
        self._known, self._extra_vars, self._fact_cache = inventory, extra, {}

    def get_vars(self, host, include_hostvars):
        assert not include_hostvars
        registered = {"gpu_facts_host": {"gpu": host}}
        return {**self._known, **registered, **self._extra_vars}

    def get_host(self, name):
        return name


class HostVars:
    def __init__(self, inventory, extra):
        self._variable_manager = self._inventory = Manager(inventory, extra)

    def raw_get(self, name):
        return self._variable_manager.get_vars(name, False)


def template(value, variables):
    if isinstance(value, str) and value.startswith("{{"):
        name = value.strip("{} ")
        if name not in variables:
            raise AnsibleUndefinedVariable(f"{name!r} is undefined")
        return variables[name]
    return value


def known(extra, hosts=("a",), inventory=INVENTORY, earlier=lambda _host: {}):
    return HostVariables(HostVars(inventory, extra), extra, hosts, earlier)


def test_what_is_given_counts_for_the_hosts_of_the_run_alone():
    found = known({"nvidia_mig_layout": NIGHT, "nvidia_driver_version": "1"})
    assert found.of("a")["nvidia_mig_layout"] == NIGHT
    assert found.of("b")["nvidia_mig_layout"] == DAY
    assert "nvidia_driver_version" not in found.of("b")


def test_options_of_the_cluster_count_for_all_of_it():
    found = known({"gpu_kubernetes_stack": "gpu_operator"})
    assert {found.of(host)["gpu_kubernetes_stack"] for host in "ab"} == {"gpu_operator"}


def test_a_host_outside_has_what_an_earlier_run_had_told_it():
    found = known({}, earlier={"b": {"nvidia_mig_layout": NIGHT}}.__getitem__)
    assert found.of("a")["nvidia_mig_layout"] == DAY
    assert found.of("b")["nvidia_mig_layout"] == NIGHT


def test_without_hosts_it_counts_for_all():
    found = known({"nvidia_mig_layout": NIGHT}, hosts=(), earlier={}.__getitem__)
    assert found.of("b")["nvidia_mig_layout"] == NIGHT
    assert found.overrides("b", template) == {"nvidia_mig_layout": NIGHT}


@pytest.mark.parametrize(
    ("inventory", "extra", "told"),
    [
        ({}, {}, {}),
        ({}, {"nvidia_mig_layout": DAY}, {}),
        ({}, {"nvidia_mig_layout": NIGHT, "gpu_kubernetes_stack": "x", "other": 1}, {"nvidia_mig_layout": NIGHT}),
        ({"nvidia_mig_layout": "{{ shift }}", "shift": DAY}, {"shift": NIGHT}, {"nvidia_mig_layout": NIGHT}),
        ({"nvidia_mig_layout": "{{ shift }}"}, {"shift": NIGHT}, {"nvidia_mig_layout": NIGHT}),
        ({"nvidia_mig_layout": "{{ nowhere }}"}, {"shift": NIGHT}, {}),
    ],
)
def test_what_differs_from_the_inventory_is_told_with_its_templates_resolved(inventory, extra, told):
    found = known(extra, inventory={**INVENTORY, **inventory})
    assert found.overrides("a", template) == told
    assert found.overrides("b", template) == {}


def test_it_is_kept_with_the_facts_of_a_host_that_was_read_and_forgotten_when_it_is_as_described(tmp_path):
    read = {"gpu_facts_host": {"gpu": {"gpus": [{"index": 0, "board": "l40s-48gb"}]}}}

    def run(told, variables):
        recorded = KeptFacts(str(tmp_path))
        found = recorded.earlier("a")
        recorded.gpus("a", variables)
        recorded.note_overrides("a", told)
        recorded.keep()
        return found

    assert run({"nvidia_mig_layout": NIGHT}, {}) == {}
    assert not list(tmp_path.iterdir()), "a host that was not read"
    assert run({"nvidia_mig_layout": NIGHT}, read) == {}
    assert run({}, {}) == {"nvidia_mig_layout": NIGHT}
    assert run({}, read) == {"nvidia_mig_layout": NIGHT}
    assert run({}, {}) == {}
    assert "told" not in json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "a.json").write_text("{")
    damaged = KeptFacts(str(tmp_path))
    assert damaged.earlier("a") == {} and damaged.gpus("a", {}) is None
    assert "a.json: the recorded facts cannot be read" in damaged.unread["a"]


def test_what_an_earlier_run_recorded_is_no_template():
    """On ansible-core 2.18 every text is one that is not marked; from 2.19 on only what is marked as one."""
    evil = "{{ lookup('pipe', 'touch /tmp/x') }}"
    found = known({}, earlier={"b": {"nvidia_mig_layout": [{"devices": evil}]}}.__getitem__).of("b")
    text = found["nvidia_mig_layout"][0]["devices"]
    assert text == evil
    assert Templar(loader=DataLoader(), variables=found).template(text) == evil
    assert Templar(loader=DataLoader(), variables=found).template(found["nvidia_mig_layout"]) == [{"devices": evil}]
