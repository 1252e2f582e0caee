# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter device_plugin_lint: what it takes and gives."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.nvidia.plugins.filter.device_plugin_lint import FilterModule

lint = FilterModule().filters()["device_plugin_lint"]


def test_clean():
    answer = lint("version: v1\n")
    assert answer["findings"] == []
    assert answer["effective"]["flags"]["migStrategy"] == "none"


def test_findings_have_level_path_message_and_remedy():
    answer = lint("sharring: {}\n")
    assert answer["findings"] == [
        {
            "level": "warning",
            "path": "sharring",
            "message": "unknown field: it is silently ignored",
            "remedy": "Did you mean sharing?",
        }
    ]


def test_a_refused_file_has_no_effective_configuration():
    answer = lint("version: v2\n")
    assert [finding["level"] for finding in answer["findings"]] == ["error"]
    assert answer["effective"] is None


def test_files_with_several_objects_are_taken_apart():
    driver = "{apiVersion: nvidia.com/v1alpha1, kind: NVIDIADriver, metadata: {name: NAME}, spec: {version: VERSION}}"
    good, bad = driver.replace("VERSION", "580.178.04"), driver.replace("VERSION", '"580"')
    config_map = "{kind: ConfigMap, data: {a: 'version: v2'}}"
    labelled = good.replace("NAME", "one").replace("spec: {", "spec: {nodeSelector: {a: b}, ")
    other = bad.replace("NAME", "two").replace("spec: {", "spec: {nodeSelector: {a: c}, ")
    answer = lint("\n---\n".join([labelled, other, config_map]))
    assert [finding["path"] for finding in answer["findings"]] == [
        "[NVIDIADriver/two] spec.version",
        "[data.a] version",
    ]
    assert answer["effective"] is None


def test_facts_reach_the_linter():
    facts = {"gpus": [{"index": 0, "mig": {"current": True}, "gpu_instances": []}]}
    text = "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}\n"
    assert [finding["path"] for finding in lint(text, facts=facts)["findings"]] == ["sharing.mps"]


def test_files_by_path_are_checked_together():
    of_class = "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: NAME}, spec: {extendedResourceName: example.com/gpu}}"
    one, two = of_class.replace("NAME", "one"), of_class.replace("NAME", "two")
    answer = lint({"a/1.yaml": one, "a/2.yaml": two, "b/3.yaml": "version: v2\n"})
    assert [(finding["level"], finding["path"]) for finding in answer["findings"]] == [
        ("error", "a/1.yaml[DeviceClass/one] spec.extendedResourceName"),
        ("error", "a/2.yaml[DeviceClass/two] spec.extendedResourceName"),
        ("error", "b/3.yaml version"),
    ]
    assert lint({"a/1.yaml": one, "b/2.yaml": two})["findings"] == []


def test_what_is_not_checked_is_returned_by_its_place():
    other = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}}"
    assert lint("version: v1\n")["not_checked"] == {}
    assert lint(other)["not_checked"] == {"[Deployment]": "Deployment"}
    answer = lint({"a.yaml": other, "b.yaml": "version: v1\n", "c.yaml": "{{ y }}\nx: [\n"})
    assert answer["not_checked"] == {"a.yaml[Deployment]": "Deployment", "c.yaml[template]": "template"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ({"version": "v1"}, None),
        ({"a.yaml": {"kind": "DeviceClass"}}, None),
        (None, None),
        ("version: v1", "facts.json"),
    ],
)
def test_wrong_input_is_said_to_be_wrong(text, facts):
    with pytest.raises(AnsibleFilterError, match="device_plugin_lint"):
        lint(text, facts)
