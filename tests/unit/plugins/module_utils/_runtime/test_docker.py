# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.json_edit import (
    JsonError,
    load,
    remove_member,
    set_member,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import docker
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import DesiredRuntime
from hypothesis import given
from hypothesis import strategies as st

PRESENT, DEFAULT, ABSENT = DesiredRuntime(), DesiredRuntime(default=True), DesiredRuntime(present=False)
NEW = (27, 5, 1)
BINARY = "/usr/bin/nvidia-container-runtime"

TABS = '{\n\t"exec-opts": ["native.cgroupdriver=systemd"],\n\t"features": {"containerd-snapshotter": true}\n}\n'
ONE_LINE = '{ "log-driver" : "json-file" , "features":{} }'
KATA = '{\n  "default-runtime": "kata",\n  "runtimes": {\n    "kata": {\n      "path": "/opt/kata"\n    }\n  }\n}'
TEXTS = [None, "", "{}", "{\n}\n", TABS, ONE_LINE, KATA, TABS.replace("\n", "\r\n")]


def edited(text, desired, version=NEW):
    (change,) = docker.edit(version, text, desired).changes
    return change.after


@pytest.mark.parametrize("text", TEXTS)
class TestEveryShape:
    def test_the_runtime_is_there_and_the_rest_stays(self, text):
        after, before = load(edited(text, DEFAULT)), load(text or "")
        assert after["runtimes"]["nvidia"] == {"path": BINARY, "runtimeArgs": []}
        assert after["default-runtime"] == "nvidia"
        # The bug of nvidia-ctk: other features were lost.
        assert after["features"] == {**before.get("features", {}), "cdi": True}
        for name in set(before) - {"runtimes", "features", "default-runtime"}:
            assert after[name] == before[name]
        assert before.get("runtimes", {}).items() <= after["runtimes"].items()

    def test_second_run_changes_nothing(self, text):
        once = edited(text, DEFAULT)
        assert edited(once, DEFAULT) == once

    def test_removal(self, text):
        after = load(edited(edited(text, PRESENT), ABSENT) or "")
        assert after.pop("features") == {**load(text or "").get("features", {}), "cdi": True}
        before = load(text or "")
        before.pop("features", None)
        assert after == before

    def test_absent_where_it_is_not_changes_nothing(self, text):
        assert edited(text, ABSENT) == text


def test_formatting_is_the_users():
    assert edited(TABS, PRESENT) == (
        '{\n\t"exec-opts": ["native.cgroupdriver=systemd"],\n'
        '\t"features": {"containerd-snapshotter": true, "cdi": true},\n'
        '\t"runtimes": {\n\t\t"nvidia": {\n'
        f'\t\t\t"path": "{BINARY}",\n\t\t\t"runtimeArgs": []\n\t\t}}\n\t}}\n}}\n'
    )


def test_arguments_of_the_user_stay():
    text = '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": ["--debug"]}}}'
    assert load(edited(text, PRESENT))["runtimes"]["nvidia"] == {"path": BINARY, "runtimeArgs": ["--debug"]}
    assert load(edited('{"runtimes": {"nvidia": 3}}', PRESENT))["runtimes"]["nvidia"]["path"] == BINARY


def test_default_is_unset_only_where_it_is_nvidia():
    assert "default-runtime" not in load(edited(edited("{}", DEFAULT), PRESENT))
    assert load(edited(KATA, PRESENT))["default-runtime"] == "kata"


@pytest.mark.parametrize(
    ("version", "text", "expected", "warns"),
    [
        ((20, 10, 24), "{}", None, True),
        ((25, 0, 0), "{}", True, False),
        ((28, 3, 0), "{}", None, False),
        ((28, 3, 0), '{"features": {"cdi": false}}', True, False),
        ((), "{}", None, True),
    ],
)
def test_cdi(version, text, expected, warns):
    outcome = docker.edit(version, text, PRESENT)
    assert load(outcome.changes[0].after).get("features", {}).get("cdi") is expected
    assert bool(outcome.warnings) is warns


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1, "a": 2}', '{"runtimes": 1}', '{"features": []}', '{"a": 1,}'])
def test_what_cannot_be_edited_is_refused(text):
    with pytest.raises(JsonError):
        docker.edit(NEW, text, PRESENT)


def test_null_is_nothing_as_dockerd_takes_it():
    text = '{"features": null, "runtimes": null, "debug": true}'
    assert docker.read(text) == {"debug": True}
    assert docker.effective(text).runtimes == ("runc",)


def test_effective():
    assert docker.effective(edited("{}", DEFAULT), NEW).shortfalls(DEFAULT) == ()
    assert docker.effective(None, NEW).shortfalls(PRESENT) == (
        "the runtime nvidia is not configured",
        "CDI is disabled",
    )
    assert docker.effective("{}", (20, 10, 0)).cdi is None
    info = {"Runtimes": {"nvidia": {"path": BINARY}, "runc": {}}, "DefaultRuntime": "runc", "CDISpecDirs": ["/etc/cdi"]}
    assert docker.effective_of_daemon(info).shortfalls(PRESENT) == ()
    assert docker.effective_of_daemon({}).cdi is None


def test_what_dockerd_takes_over_without_a_restart():
    assert docker.reloadable("{}", edited("{}", DEFAULT, (20, 10, 0)))
    assert not docker.reloadable("{}", edited("{}", DEFAULT))
    assert docker.reloadable(None, None)


class TestMembers:
    def test_through_something_that_is_no_object(self):
        with pytest.raises(JsonError, match=r"a\.b is not an object"):
            set_member('{"a": {"b": 1}}', ("a", "b", "c"), 2)

    def test_empty_objects_go_with_their_last_member(self):
        assert remove_member('{"x": 1, "a": {"b": {"c": 1}}}', ("a", "b", "c")) == '{"x": 1}'
        assert remove_member('{"a": {"b": 1}}', ("a", "b")) == "{}"
        assert remove_member('{"a": 1, "b": 2}', ("a",)) == '{"b": 2}'
        assert remove_member('{"a": 1}', ("a", "b")) == '{"a": 1}'

    def test_changed_in_place(self):
        assert (
            set_member('{\n  "a" : 1 ,\n  "b": 2\n}', ("a",), {"x": []})
            == '{\n  "a" : {\n    "x": []\n  } ,\n  "b": 2\n}'
        )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3),
    st.sampled_from([None, 2, "\t"]),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple),
    VALUES,
)
def test_any_member_can_be_set_and_removed(data, indent, path, value):
    text = json.dumps(data, indent=indent)
    try:
        after = set_member(text, path, value)
    except JsonError:
        return
    expected = json.loads(text)
    place = expected
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = value
    assert load(after) == expected
    assert set_member(after, path, value) == after
    without = load(remove_member(after, path))
    for name in path[:-1]:
        without = without.get(name, {})
    assert path[-1] not in without
