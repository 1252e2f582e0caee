# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import OF_PLAYBOOKS, pool_of, pools

REPOSITORY = Path(__file__).parents[4]
GROUPS = {
    "all": ["a", "b", "c", "web"],
    "ungrouped": [],
    "gpu_hosts": ["a", "b", "c"],
    "training": ["a", "b"],
    "shared": ["c"],
    "rack1": ["a", "c"],
    "webservers": ["web"],
    "mixed": ["a", "web"],
    "empty": [],
}


def test_pools_are_the_groups_that_lie_below_gpu_hosts():
    assert pools(GROUPS) == {"rack1": ["a", "c"], "shared": ["c"], "training": ["a", "b"]}


def test_the_only_group_is_the_pool():
    assert pool_of("b", pools(GROUPS), None) == "training"


def test_several_groups_need_a_word():
    with pytest.raises(Refused, match="in several groups below gpu_hosts: rack1, training"):
        pool_of("a", pools(GROUPS), "")
    assert pool_of("a", pools(GROUPS), "training") == "training"


@pytest.mark.parametrize(
    ("host", "named", "message"),
    [
        ("a", "trainin", "no group below gpu_hosts is called trainin. The nearest: training."),
        ("a", "zzz", "The pools are: rack1, shared, training."),
        ("b", "shared", "the host is not in the group shared. .* its own groups: training"),
        ("a", True, "True is no text. The pools are: rack1, shared, training."),
        ("a", ["training"], "is no text"),
        ("web", None, "the host is in no group below gpu_hosts"),
    ],
)
def test_a_wrong_pool_is_refused_with_the_nearest(host, named, message):
    with pytest.raises(Refused, match=message):
        pool_of(host, pools(GROUPS), named)


@pytest.mark.parametrize("name", ["'] + [true", "a b", "a/b", "\u00e4", "-", "a\n", "{{ x }}"])
def test_a_pool_whose_name_is_no_value_of_a_label_is_refused(name):
    for named in (None, name):
        with pytest.raises(Refused, match="becomes the value of a label"):
            pool_of("a", {name: ["a"]}, named)
    assert pool_of("a", {"GPU_a100.x-": ["a"]}, None) == "GPU_a100.x-"


def test_groups_that_a_playbook_makes_while_it_runs_are_no_pools():
    made = set()
    for path in (*REPOSITORY.glob("playbooks/*.yml"), *REPOSITORY.glob("roles/*/tasks/*.yml")):
        for named in re.findall(r"^ +(?:groups|key): (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            made |= set(re.findall(r"'(gpu_\w+)'", named) or re.findall(r"^\w+$", named))
    assert made == set(OF_PLAYBOOKS)
    assert pools({**GROUPS, **{name: ["a", "b"] for name in made}}) == pools(GROUPS)
