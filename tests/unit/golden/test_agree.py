# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whoever is asked whether a host is as described says the same: C(plan), the gate of C(site), C(verify) and C(doctor)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import (
    doctor_report,
    fleet_plan,
    site_gate,
    verify_report,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ... import whole
from ...verdicts import differences
from ..mutation import paths
from . import corpus


def disagreements(call, hosts: dict[str, corpus.Host]) -> list[str]:
    """Return who says something else of a host than C(plan), host by host."""
    given = {
        name: {**host.variables, "gpu_facts_host": {"gpu": copy.deepcopy(host.facts)}} for name, host in hosts.items()
    }
    variables = {"hostvars": given, "groups": {"gpu_hosts": list(given), "pool": list(given), "other": []}}
    asked = {"hosts": list(given)}
    planned = call(fleet_plan, dict(asked), variables)[0]["plan"]["hosts"]
    gate = call(site_gate, dict(asked), variables)[0]
    verified = call(verify_report, dict(asked), variables)[0]["hosts"]
    diagnosed = call(doctor_report, dict(asked), variables)[0]["hosts"]
    stopped = {host for refusal in gate["refusals"] for host in refusal["hosts"]}
    found = []
    for name, plan in planned.items():
        verdict = plan["verdict"]
        if plan["unread"]:
            reached = verified[name]["failed_check"] != "reach" or diagnosed[name]["failed_check"] != "reach"
            found += [f"{name}: plan could not read it, verify or doctor could"] if reached else []
            continue
        site = "impossible" if name in stopped else "to change" if name in gate["to_change"] else "as described"
        # What the facts do not tell, site reads on the host.
        if site != {"unread": "to change"}.get(verdict, verdict):
            found.append(f"{name}: plan says {verdict}, site {site}")
        found += [f"{name}: {text}" for text in differences(plan, verified[name], diagnosed[name])]
    return found


def with_every_variable(name: str) -> dict[str, corpus.Host]:
    """Return a host of the corpus with every variable at other values."""
    host = corpus.hosts()[name]
    return {
        f"{name}, {variable} ({number})": corpus.Host(host.facts, {**host.variables, **variables})
        for variable, settings in corpus.settings().items()
        for number, variables in enumerate(settings)
    }


@pytest.mark.slow
def test_they_agree_on_every_host(call):
    assert disagreements(call, {**corpus.hosts(), **corpus.edited()}) == []


@pytest.mark.slow
def test_they_agree_with_every_variable(call):
    hosts = {**with_every_variable("training after site"), **with_every_variable("shared after site")}
    assert disagreements(call, hosts) == []


@pytest.mark.parametrize("examples", [50, pytest.param(whole.examples(10_000), marks=pytest.mark.slow)])
def test_they_agree_on_hosts_that_were_changed_at_random(call, examples):
    @settings(
        max_examples=examples // _TOGETHER,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(st.lists(changed_hosts(), min_size=_TOGETHER, max_size=_TOGETHER))
    def agree(hosts):
        assert disagreements(call, {f"host-{number}": host for number, host in enumerate(hosts)}) == []

    agree()


#: Hosts that one run of the actions is asked about.
_TOGETHER = 10
_VERSIONS = ("580.178.04", "580.159.03", "570.195.03", "620.10.01", "1.20.0~rc.1", "1.19.1", "2.1.5", "0", "unknown")


@st.composite
def changed_hosts(draw) -> corpus.Host:
    """Return a host of which one or two facts were dropped, nulled, or say something else of the same type."""
    host = corpus.hosts()[draw(st.sampled_from(sorted(corpus.hosts().keys() - {"nothing known"})))]
    facts = copy.deepcopy(host.facts)
    for _number in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([path for path in paths(facts) if path and path not in (("schema",), ("health",))]))
        place = facts
        for name in path[:-1]:
            place = place[name]
        value = place[path[-1]]
        other = draw(st.sampled_from(["drop", None, *_others(value)]))
        if other == "drop":
            del place[path[-1]]
        else:
            place[path[-1]] = other
    return corpus.Host(facts, host.variables)


def _others(value: Any) -> list[Any]:
    """Return other values of the type of C(value)."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 0]
    if isinstance(value, str):
        return ["other", *_VERSIONS]
    if isinstance(value, list):
        return [[], value[:-1], value[1:], value[::-1], [*value, *value[-1:]]]
    return [{}] if isinstance(value, dict) else [True, "other", 1, []]
