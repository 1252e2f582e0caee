# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of other people: what the linter recognizes, what it opens, which names it looks up, and what it leaves alone."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.finding import MOST, Report
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import decoded, lint_files
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.yaml import load_all

#: A fault below config.map, as it is found wherever the values are.
FAULTY = {"config": {"map": {"a": "version: v2"}}}
#: The same as helm --set has it, with paths into a list, with a point in a name, and of a truth.
SET = {
    "config.map.a": "version: v2",
    "tolerations[0].key": "a",
    "nodeSelector.example\\.com/gpu": "yes",
    "gfd.enabled": "true",
    "imagePullSecrets": "{a,b}",
}
ARGO = {"chart": "nvidia-device-plugin", "targetRevision": "0.20.0"}
POLICY = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}}
#: What the definition requires below spec.
REQUIRED = {
    key: {}
    for key in (
        "daemonsets",
        "dcgm",
        "dcgmExporter",
        "devicePlugin",
        "driver",
        "gfd",
        "nodeStatusExporter",
        "operator",
        "toolkit",
    )
}


def item(api_version, kind, **rest):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **rest}


def found(*documents, name="f"):
    """Return level, path and remedy by the place that is said of, where something is found."""
    verdicts = lint_files({name: yaml.safe_dump_all(documents)})
    return {
        place: [(one.level, one.path, one.remedy) for one in verdict.findings]
        for place, verdict in verdicts.items()
        if verdict.findings
    }


def not_checked(text):
    return [verdict.not_checked for verdict in lint_files({"f": text}).values() if verdict.not_checked]


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (
            item("argoproj.io/v1alpha1", "Application", spec={"source": {**ARGO, "helm": {"valuesObject": FAULTY}}}),
            "Application/x spec.source.helm.valuesObject.",
        ),
        (
            item(
                "argoproj.io/v1alpha1",
                "Application",
                spec={"sources": [{}, {**ARGO, "helm": {"values": yaml.safe_dump(FAULTY)}}]},
            ),
            "Application/x spec.sources[1].helm.values.",
        ),
        (
            item(
                "argoproj.io/v1alpha1",
                "ApplicationSet",
                spec={"template": {"spec": {"source": {"helm": {"valuesObject": FAULTY}}}}},
            ),
            "ApplicationSet/x spec.template.spec.source.helm.valuesObject.",
        ),
        (item("helm.toolkit.fluxcd.io/v2", "HelmRelease", spec={"values": FAULTY}), "HelmRelease/x spec.values."),
        (
            item("helm.cattle.io/v1", "HelmChart", spec={"chart": "x/y", "valuesContent": yaml.safe_dump(FAULTY)}),
            "HelmChart/x spec.valuesContent.",
        ),
        # One by one, where nothing else is given.
        (
            item("helm.cattle.io/v1", "HelmChart", spec={"chart": "x/nvidia-device-plugin", "set": SET}),
            "HelmChart/x spec.set.",
        ),
        (
            item(
                "argoproj.io/v1alpha1",
                "Application",
                spec={"source": {**ARGO, "helm": {"parameters": [{"name": name, "value": SET[name]} for name in SET]}}},
            ),
            "Application/x spec.source.helm.parameters.",
        ),
        ({"helmCharts": [{"valuesInline": FAULTY}]}, "Kustomization helmCharts[0].valuesInline."),
        ({"nvidia-device-plugin": FAULTY}, "nvidia-device-plugin."),
        (
            item("helm.toolkit.fluxcd.io/v2", "HelmRelease", spec={"values": {"nvidia-device-plugin": FAULTY}}),
            "HelmRelease/x spec.values.nvidia-device-plugin.",
        ),
        (FAULTY, ""),
    ],
)
def test_what_carries_values_is_opened(document, place):
    expected = {f"f[{place}config.map.a]": [("error", "version", "Write v1.")]}
    assert found(document) == expected
    assert found(item("v1", "List", items=[document])) == expected


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("apiVersion: apps/v1\nkind: Deployment\n---\napiVersion: apps/v1\nkind: Deployment\n", ["Deployment"]),
        ("apiVersion: v1\nkind: ConfigMap\ndata: {a: 'x: 1', b: '{{ x'}\n", ["ConfigMap"]),
        ("services: {}\nversion: '3'\n", ["a file without kind"]),
        ("version: v1\nsystemd-services: [a]\n", ["a file without kind"]),
        ("version: v1\nvgpu-configs: {}\n", ["a file without kind"]),
        ("Plugin: amazon.aws.aws_ec2\n", ["a file without kind"]),
        ("mps: {root: /run/nvidia/mps}\n", ["a file without kind"]),
        ("kind: Deployment\nversion: 1\n", ["Deployment"]),
        ("resources: [a.yaml]\n", ["a file without kind"]),
        ("- op: add\n", ["a file without kind"]),
        # JSON with comments, and text.
        ('// a\n{"a": 1}\n', ["a file without kind"]),
        ('{\n  // a\n  "a": 1,\n}\n', ["a file without kind"]),
        ('{\n "a": 1, // see { a }\n "b": 2 }', ["a file without kind"]),
        ('{\n  "a": 1, /* x */\n  "b": [2,] /* // y */,\n}', ["a file without kind"]),
        ('{\n "a": 1,\n' + " // see https://example.com/x\n" * 100 + ' "b": 2\n}\n', ["a file without kind"]),
        ("a few words\n", ["a file without kind"]),
        ("kind: Deployment\nspec: [\n", ["a file without kind"]),
        # As Terraform fills in.
        ("kind: NodePool\nspec:\n  ${block}\n  b: 1\n", ["template"]),
        ("a: {{ .Values.b }}\nkind: X\n", ["X"]),
        ("{{- if .Values.b }}\nkind: ClusterPolicy\nsharing: {}\n{{- end }}\n", ["template"]),
        (
            "apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {source: {helm: {values: '{{ if b }}: ['}}}\n",
            ["template"],
        ),
        ("apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {source: {path: x}}\n", []),
        ("version: v1\n", []),
    ],
)
def test_of_anything_else_its_kind_is_said_once(text, kinds):
    assert not [one for verdict in lint_files({"f": text}).values() for one in verdict.findings]
    assert not_checked(text) == kinds


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("f", "kind: Deployment\nspec: [\n", "a file without kind"),
        ("f.yaml", "kind: Deployment\nspec: [\n", "error"),
        ("a/F.YML", "a:\n\t- b\n", "error"),
        ("f.yaml", "kind: A\n---\nkind: B\n  c: d\n", "error"),
        ("f.json", '{"a": [1,\n', "error"),
        ("f.json", '{"a": 1}\n{"a": 2}\n', "error"),
        ("f.txt", "a: [\n", "a file without kind"),
        # JSON that is no YAML, and what editors take for JSON.
        ("f.json", '{"a": "\\ud83d\\ude00"}\n', "a file without kind"),
        ("f.json", '// a: "b\n{"a": "// c", /* d */ "e": [1, 2, // f\n ],\n}\n', "a file without kind"),
        # Tags of other programs.
        ("f.yaml", "Resources: {A: !Ref b, c: !GetAtt [d, e], f: !Sub {g: h}}\n", "a file without kind"),
        ("f.yaml", "a: !!python/name:b.c\nd: !vault |\n  $ANSIBLE_VAULT\n", "a file without kind"),
        ("f.yaml", "kind: {{ .Values.a }}\n  b: [\n", "template"),
        # It is YAML, whatever it is.
        ("f.yaml", "a few words\n", "a file without kind"),
        ("f.yaml", "- a\n", "a file without kind"),
    ],
)
def test_a_file_that_is_called_yaml_and_is_none_is_wrong_whatever_it_was_to_be(name, text, expected):
    """Of a key in a ConfigMap, and of text without such a name, nobody knows whether it was to be YAML."""
    (verdict,) = lint_files({name: text}).values()
    assert [expected] == [verdict.not_checked, *(one.level for one in verdict.findings)][not verdict.not_checked :]
    in_map = lint_files({"f.yaml": yaml.safe_dump(item("v1", "ConfigMap", data={"f.yaml": text}))})
    assert [verdict.not_checked for verdict in in_map.values()] == ["ConfigMap"]


def test_values_with_tags_are_what_the_plugin_makes_of_them():
    """As sigs.k8s.io/yaml 1.6 decodes them; in objects and values, too."""
    config = "version: !!str v1\nflags: {migStrategy: !own none, failOnInitError: !!bool 'no'}\n"
    config += "sharing: {timeSlicing: {resources: [{name: !!binary bnZpZGlhLmNvbS9ncHU=, replicas: !!int '010'}]}}\n"
    (verdict,) = lint_files({"f.yaml": config}).values()
    assert not verdict.findings
    assert verdict.effective["flags"]["failOnInitError"] is False
    assert verdict.effective["sharing"]["timeSlicing"]["resources"][0] == {**GOOD, "replicas": 8, "devices": "all"}
    for wrong in ("!!int x", "!!bool 4", "!!int 5.0", "!!null x", "!!binary '%'", "!!float 'no'"):
        assert [one.level for one in lint_files({"f": f"version: v1\nflags: {{a: {wrong}}}\n"})["f"].errors] == [
            "error"
        ]
    for right, value in (("!!str 5", "5"), ("!!float 5", 5), ("!!null ''", None), ("!a 5", "5"), ("!!str ~", "~")):
        assert load_all(f"a: {right}\n") == [{"a": value}]
    coded = "kind: ConfigMap\ndata:\n  a: !!binary |\n    dmVyc2lvbjog\n    djIK\n"
    assert list(lint_files({"f": coded})) == ["f[data.a]"] and lint_files({"f": coded})["f[data.a]"].errors


@pytest.mark.parametrize(
    ("key", "level"),
    [
        ("a(b)", "warning"),
        ("{a}", "warning"),
        ("a)", "warning"),
        ("${A}", "note"),
        ("$(A)", "note"),
        ("{{ a }}", "note"),
    ],
)
def test_a_key_that_only_ends_as_one_that_is_filled_in_keeps_its_level(key, level):
    text = yaml.safe_dump({"version": "v1", "flags": {key: True}})
    assert [one.level for one in lint_files({"f": text})["f"].findings] == [level]


def test_values_of_charts_that_are_not_known_are_named():
    release = item("helm.toolkit.fluxcd.io/v2", "HelmRelease", spec={"values": {"a": 1}})
    named = {**release, "spec": {"chart": {"spec": {"chart": "grafana"}}, "values": {"a": 1}}}
    assert not_checked(yaml.safe_dump_all([release, named])) == ["values of another chart", "values of grafana"]
    # Some keys are those of a chart that is known, and most are not.
    others = {"kubeletPlugin": {"cgroupDriver": "", "nriRoot": "", "managerRoot": ""}, "featureGates": {"VGPU": True}}
    assert not_checked(yaml.safe_dump(others)) == ["a file without kind"]


def test_an_anchor_may_be_given_twice():
    text = "version: v1\nflags: {migStrategy: &a none, nvidiaDevRoot: *a}\nx: &a {b: 1}\ny: *a\n"
    for name, one in lint_files({"f": text}).items():
        assert not one.errors, name
    release = item("helm.toolkit.fluxcd.io/v2", "HelmRelease", spec={"values": "?"})
    text = yaml.safe_dump(release).replace("'?'", "{c: &a 1, d: *a, config: &a {map: {b: 'version: v2'}}}")
    assert [len(one.errors) for one in lint_files({"f": text}).values() if one.errors] == [1]


def test_a_damaged_configuration_is_none_that_is_left_alone():
    text = "sharing:\n  timeSlicing: [\n"
    assert [one.level for one in lint_files({"f": text})["f"].findings] == ["error"]
    in_map = found(item("v1", "ConfigMap", data={"config.yaml": text, "notes": "a: ["}))
    assert list(in_map) == ["f[data.config.yaml]"]
    assert list(found({"shareing": {"timeSlicing": {}}})) == ["f"]
    policy = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nspec:\n  validator:\n  {}\n  dcgm: {}\n"
    assert [one.level for one in lint_files({"f": policy})["f"].findings] == ["error"]


@pytest.mark.parametrize(
    ("document", "level", "path"),
    [
        ({"version": "v1", "share": {"timeSlicing": {}}}, "warning", "share"),
        ({"version": "v1", "split": {}}, "warning", "split"),
        ({"timeSlicing": {"resources": []}}, "warning", "timeSlicing"),
        ({"MPS": {"resources": []}}, "warning", "MPS"),
        ({"plugin": {"passDeviceSpecs": True}}, "warning", "plugin"),
        ({"version": "v2", "timeSlicing": {}}, "error", "version"),
        (
            {
                "kind": "Config",
                "version": "v1",
                "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": -4}]}},
            },
            "error",
            "sharing.timeSlicing.resources[0].replicas",
        ),
    ],
)
def test_a_configuration_whose_own_names_are_wrong_is_checked(document, level, path):
    """As a file, and as a key of a ConfigMap."""
    for place, outer in (("f", document), ("f[data.a]", item("v1", "ConfigMap", data={"a": yaml.safe_dump(document)}))):
        assert (level, path) in [one[:2] for one in found(outer)[place]]


def test_objects_of_the_same_kind_and_name_keep_their_findings():
    def template(namespace, spec, name="gpu"):
        metadata = {"name": name, "namespace": namespace}
        return {**item("resource.k8s.io/v1", "ResourceClaimTemplate", spec=spec), "metadata": metadata}

    right, wrong = {"spec": {"devices": {"requests": [{"name": "a", "exactly": GPU}]}}}, {"devices": {}}
    place = "f[ResourceClaimTemplate/gpu"
    assert list(found(*(template(one, wrong) for one in "abc"))) == [f"{place}]", f"{place} 2]", f"{place} 3]"]
    assert list(found(template("a", right), template("b", wrong), template("c", right))) == [f"{place} 2]"]
    # One may be called as the second of a name is.
    assert len(found(template("a", wrong, "gpu 2"), *(template(one, wrong) for one in "abc"))) == 4


def test_a_release_whose_chart_is_another_object_is_known_by_its_name():
    """The version is that object's, so that a key may be one of it."""
    values = {"worker": {"config": {"sources": {"pci": {"deviceLabelFields": ["device"]}}}}, "master": {"resorces": {}}}
    spec = {"chartRef": {"kind": "OCIRepository", "name": "node-feature-discovery"}, "values": values}
    release = item("helm.toolkit.fluxcd.io/v2", "HelmRelease", spec=spec)
    place = "f[HelmRelease/x spec.values]"
    assert [one[:2] for one in found(release)[place]] == [("note", "master.resorces")]
    operator = {**POLICY, "spec": REQUIRED}
    said = [one[:2] for one in found(release, operator)[place]]
    assert said == [("error", "worker.config.sources.pci.deviceLabelFields"), ("note", "master.resorces")]
    # By its keys, if it has those of one.
    spec["chartRef"]["name"] = "of-the-platform"
    assert [one[:2] for one in found(release)[place]] == [("note", "master.resorces")]
    spec["values"] = {"a": 1}
    assert not_checked(yaml.safe_dump(release)) == ["values of another chart"]


def test_any_number_of_notes_fails_nothing_and_hides_nothing():
    values = {"migStrategy": "none", **{f"other{number}": 1 for number in range(MOST + 100)}}
    name = "nvidia-device-plugin.yaml"
    notes = [level for level, _path, _remedy in found(values, name=name)[f"{name}[values]"]]
    assert set(notes) == {"note"} and len(notes) == MOST
    report = Report()
    for number in range(MOST + 100):
        report.note(f"a{number}", "")
    report.error("b", "")
    assert report.findings[-1].path == "b"


def test_the_same_key_in_two_config_maps_of_a_file():
    one, other = (item("v1", "ConfigMap", data={"a": f"version: {version}"}) for version in ("v2", "v3"))
    assert list(found(one, {**other, "metadata": {"name": "z"}})) == ["f[data.a]", "f[ConfigMap/z data.a]"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}, []),
        ({"devices": "all", "mig-enabled": "yes"}, [("error", "mig-configs.a[0].mig-enabled")]),
        (
            {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.11gb": 7}},
            [("warning", "mig-configs.a[0].mig-devices['1g.11gb']")],
        ),
        # A board that the table does not have may be a little larger.
        (
            {"devices": "all", "mig-enabled": True, "mig-devices": {"3g.95gb": 2}},
            [("note", "mig-configs.a[0].mig-devices['3g.95gb']")],
        ),
        # An L4, which has no MIG.
        (
            {"device-filter": ["0x27B810DE"], "devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
            [("error", "mig-configs.a[0].mig-devices")],
        ),
        # No board holds so many of them.
        *(
            (
                {"devices": "all", "mig-enabled": True, "mig-devices": wanted},
                [("warning", "mig-configs.a[0].mig-devices")],
            )
            for wanted in ({"1g.10gb": 8}, {"3g.40gb": 3}, {"1g.20gb": 5}, {"4g.40gb": 1, "2g.20gb": 2})
        ),
        # An A100 of 40 GB holds four, others seven.
        (
            {"device-filter": "0x20b010de", "devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
            [("warning", "mig-configs.a[0].mig-devices")],
        ),
        # Where the table has no places.
        ({"devices": "all", "mig-enabled": True, "mig-devices": {"1g.34gb": 7}}, []),
        ({"devices": "all", "mig-enabled": True, "mig-devices": {"1c.3g.40gb": 6}}, []),
        # Early drivers name this one of a GB200 so.
        (
            {"device-filter": "0x294110DE", "devices": "all", "mig-enabled": True, "mig-devices": {"1g.24gb": 7}},
            [("note", "mig-configs.a[0].mig-devices['1g.24gb']")],
        ),
        # A profile of an H100, and not of an A100 of 40 GB.
        (
            {"device-filter": "0x20b010de", "devices": "all", "mig-enabled": True, "mig-devices": {"2g.20gb": 2}},
            [("warning", "mig-configs.a[0].mig-devices['2g.20gb']")],
        ),
    ],
)
def test_files_of_mig_parted(entry, expected):
    file = {"version": "v1", "mig-configs": {"a": [entry]}}
    said = [(level, path) for level, path, _remedy in found(file).get("f", [])]
    assert said == expected
    assert len(found(item("v1", "ConfigMap", data={"config.yaml": yaml.safe_dump(file)}))) == len(expected)


def test_a_fault_in_one_entry_of_mig_parted_hides_none_in_another():
    enabled = {"devices": "all", "mig-enabled": True}
    entries = {
        "a": [{**enabled, "mig-devices": {"1g.10gb": "${COUNT}"}}, {**enabled, "mig-devices": {"9g.999gb": 1}}],
        "b": [{**enabled, "mig-devices": "${DEVICES}"}, {**enabled, "devices": "some", "mig-devices": {}}],
        "c": {},
    }
    said = [one[:2] for one in found({"version": "v2", "mig-configs": entries})["f"]]
    assert said == [
        ("error", "version"),
        ("error", "mig-configs.b[1].devices"),
        ("error", "mig-configs.c"),
        ("note", "mig-configs.a[0].mig-devices['1g.10gb']"),
        ("warning", "mig-configs.a[1].mig-devices['9g.999gb']"),
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"driver": {"useNvidiaDriverCrd": True}},
            ("warning", "spec.driver.useNvidiaDriverCrd", "Write useNvidiaDriverCRD."),
        ),
        (
            {"devicePlugin": {"config": {"defualt": "a"}}},
            ("warning", "spec.devicePlugin.config.defualt", "Did you mean default?"),
        ),
        (
            {"operator": {"ofAnotherRelease": 1}},
            (
                "note",
                "spec.operator.ofAnotherRelease",
                "Known here: annotations, defaultRuntime, initContainer, labels, metrics, runtimeClass, use_ocp_driver_toolkit.",
            ),
        ),
        # In the wrong section.
        (
            {"driver": {"use_ocp_driver_toolkit": True}},
            ("note", "spec.driver.use_ocp_driver_toolkit", "Did you mean spec.operator.use_ocp_driver_toolkit?"),
        ),
        ({"mig": {"strategy": "mixxed"}}, ("error", "spec.mig.strategy", "Did you mean mixed?")),
        ({"driver": {"enabled": "yes"}}, ("error", "spec.driver.enabled", "")),
        ({"driver": {"env": {"A": "b"}}}, ("error", "spec.driver.env", "")),
        ({"migManager": {"config": {"default": ""}}, "daemonsets": {"labels": {"any": "label"}}}, None),
        ({"driver": {"usePrecompiled": True, "version": "580.178.04", "repository": "registry.example.com/x"}}, None),
    ],
)
def test_objects_of_the_operator_against_their_definition(spec, expected):
    assert found({**POLICY, "spec": {**REQUIRED, **spec}}) == ({"f[ClusterPolicy/p]": [expected]} if expected else {})


@pytest.mark.parametrize(
    ("spec", "name", "expected"),
    [
        (REQUIRED, "f", []),
        ({**REQUIRED, "operator": None}, "f", [("error", "spec", "Add operator.")]),
        # It may be applied to an object that has the others.
        ({"devicePlugin": {}}, "f", [("note", "spec", "Add daemonsets.")]),
        # It changes one that is elsewhere.
        ({"mig": {"strategy": "mixed"}}, "patch-policy.yaml", []),
        ({"mig": {"strategy": "mixed"}, "toolkit": {"env": [{"value": "a"}]}}, "patches/policy.yaml", []),
        ({**REQUIRED, "toolkit": {"env": [{"value": "a"}]}}, "f", [("error", "spec.toolkit.env[0]", "Add name.")]),
    ],
)
def test_fields_that_the_definition_requires(spec, name, expected):
    assert found({**POLICY, "spec": spec}, name=name) == ({f"{name}[ClusterPolicy/p]": expected} if expected else {})
    of_a_driver = {
        **POLICY,
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "spec": {"nodeSelector": {"a": "b"}},
    }
    assert found(of_a_driver) == {}, "what has a default is not required"


def test_a_patch_that_a_kustomization_names_is_no_object():
    policy = yaml.safe_dump({**POLICY, "spec": {**REQUIRED, "operator": None, "mig": {"strategy": "mixed"}}})
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": ["a.yaml"]}
    for named, errors in (
        ({"patches": [{"path": "mig.yaml"}]}, 0),
        ({"patchesStrategicMerge": ["mig.yaml"]}, 0),
        ({}, 1),
    ):
        texts = {"d/kustomization.yaml": yaml.safe_dump({**kustomization, **named}), "d/mig.yaml": policy}
        assert sum(len(verdict.errors) for verdict in lint_files(texts).values()) == errors
        # Kustomize wants neither kind nor version, and a patch may be in another folder.
        unnamed = (
            {"resources": ["a.yaml"], "patches": [{"path": "../base/sub/mig.yaml"}]}
            if named
            else {"resources": ["a.yaml"]}
        )
        texts = {"d/kustomization.yml": yaml.safe_dump(unnamed), "base/sub/mig.yaml": policy}
        assert sum(len(verdict.errors) for verdict in lint_files(texts).values()) == errors


def test_json_on_one_line_that_is_cut_off_is_a_damaged_configuration():
    (verdict,) = lint_files({"c.json": '{"version":"v1","sharing":{"timeSlicing":{"resources":[]}'}).values()
    assert verdict.errors


@pytest.mark.parametrize("value", ["${REPLICAS:=4}", "{{ replicas }}"])
def test_what_is_filled_in_later_is_a_note(value):
    """As Flux fills in what it applies, and Ansible what it templates."""
    shared = {"resources": [{"name": "nvidia.com/gpu", "replicas": value}]}
    text = yaml.safe_dump({"version": "v1", "sharing": {"timeSlicing": shared}})
    for document in (yaml.safe_load(text), item("v1", "ConfigMap", data={"any": text})):
        for findings in found(document).values():
            assert [one[0] for one in findings] == ["note"]
    (told,) = found({**POLICY, "spec": {**REQUIRED, "mig": {"strategy": value}, "driver": {"enabled": value}}}).values()
    assert [one[0] for one in told] == ["note", "note"]


FAULT = {"name": "nvidia.com/gpu", "replicas": 1}
GOOD = {"name": "nvidia.com/gpu", "replicas": 4}
MIG = {"name": "nvidia.com/mig-1g.10gb", "replicas": 4}


@pytest.mark.parametrize("value", ["${VALUE}", "$VALUE", "$(VALUE)", "{{ value }}"])
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"flags": {"migStrategy": "?"}, "sharing": {"timeSlicing": {"resources": [FAULT]}}}, "error"),
        ({"flags": {"failOnInitError": "?", "migStrategy": "mixxed"}}, "error"),
        ({"flags": "?", "sharing": {"timeSlicing": {"resources": [FAULT]}}}, "error"),
        (
            {"sharing": {"timeSlicing": {"resources": [{**GOOD, "replicas": "?"}]}}, "imex": {"channelIDs": [3]}},
            "error",
        ),
        (
            {"sharing": {"timeSlicing": {"resources": [GOOD], "renameByDefault": "?"}}, "imex": {"channelIDs": [3]}},
            "error",
        ),
        ({"sharing": {"timeSlicing": {"resources": [{**GOOD, "replicas": "?"}, GOOD]}}}, "warning"),
        ({"flags": {"migStrategy": "mixed", "nvidiaDevRoot": 4}, "sharing": {"mps": "?"}}, "error"),
        # What depends on the value is not known.
        ({"flags": {"migStrategy": "mixed"}, "sharing": {"mps": "?", "timeSlicing": {"resources": [GOOD]}}}, ""),
        ({"flags": "?", "sharing": {"timeSlicing": {"resources": [MIG]}}}, ""),
        ({"flags": {"migStrategy": "?"}, "sharing": {"timeSlicing": {"resources": [MIG]}}}, ""),
        ({"flags": {"migStrategy": "?"}, "sharing": {"timeSlicing": {"resources": [GOOD]}}}, ""),
        ({"sharing": {"timeSlicing": {"resources": "?"}}}, ""),
        ({"sharing": {"timeSlicing": {"resources": ["?", GOOD]}}}, ""),
        ({"imex": {"channelIDs": ["?"], "required": "?"}}, ""),
        ({"flags": {"plugin": "?"}}, ""),
        ({"flags": {"?": True}}, ""),
    ],
)
def test_a_value_that_is_filled_in_later_hides_what_depends_on_it_and_nothing_else(config, expected, value):
    text = json.dumps({"version": "v1", **config}).replace("?", value)
    if value.startswith("$") and not value.endswith("}") and '"?": ' in json.dumps(config):
        return
    for facts in (None, {"gpus": [{"index": 0, "mig": {"current": True}}], "nvml": {"available": True}}):
        verdict = lint_files({"f": text}, facts)["f"]
        levels = {one.level for one in verdict.findings}
        assert "note" in levels and levels <= {"note", expected} and (not expected or expected in levels)
        assert verdict.effective is None
    # In a cluster it is no placeholder: the plugin reads what stands there.
    if "?" not in config.get("flags", ()):
        with pytest.raises(ValueError, match=r"^[a-z].*"):
            decoded(text)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        # Jinja and Helm, as people write it: without quotes, YAML reads a mapping, or nothing.
        (
            "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: {{ a }}\n      replicas: 1\n",
            {"f": "error"},
        ),
        (
            "kind: ConfigMap\ndata:\n  a: |\n    version: v1\n    flags:\n      migStrategy: {{ a | default('x') }}\n    imex: 4\n",
            {"f[data.a]": "error"},
        ),
        (
            "kind: ConfigMap\nmetadata:\n  name: {{ a }}\ndata:\n  a: 'version: v2'\n",
            {"f[data.a]": "error"},
        ),
        ("version: v1\nsharing: {timeSlicing: {{ a }}}\n", {"f": "note"}),
        ("version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/${A}, replicas: 1}]}}\n", {"f": "error"}),
        ("version: v1\n{% for a in b %}\nsharing:\n{% endfor %}\n", {}),
        (
            "kind: ConfigMap\ndata:\n  a: |\n    sharing:\n    {{- toYaml .Values.a | nindent 4 }}\n",
            {"f[data.a]": "note"},
        ),
    ],
)
def test_the_rest_of_a_template_is_read_where_it_can_be(text, places):
    verdicts = lint_files({"f": text})
    assert {name: one.findings[0].level for name, one in verdicts.items() if one.findings} == places


def test_the_reason_why_a_configuration_is_refused_is_no_note():
    text = "version: v1\nflags: {plugin: {deviceListStrategy: [cdi-cri]}, migStrategy: ${A}}\nsharing: {mps: {resources: []}}\n"
    with pytest.raises(ValueError, match=r"sharing\.mps: no resources specified"):
        decoded(text.replace("${A}", "none"))
    with pytest.raises(ValueError, match="invalid YAML"):
        decoded(text)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {
                "migStrategy": "mixed",
                "config": {"map": {"a": json.dumps({"sharing": {"timeSlicing": {"resources": [MIG]}}})}},
            },
            0,
        ),
        (
            {
                "migStrategy": "none",
                "config": {"map": {"a": json.dumps({"sharing": {"timeSlicing": {"resources": [MIG]}}})}},
            },
            1,
        ),
        (
            {"migStrategy": "mixed", "config": {"map": {"a": json.dumps({"sharing": {"mps": {"resources": [GOOD]}}})}}},
            1,
        ),
    ],
)
def test_the_strategy_of_the_charts_values_is_that_of_their_configurations(values, expected):
    assert len(found(values).get("f[config.map.a]", [])) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"kubeletPlugin": {}, "featureGates": {"DynamicMIG": True, "MPSSupport": True}},
            ("error", "featureGates.DynamicMIG"),
        ),
        (
            {"kubeletPlugin": {}, "featureGates": {"IMEXDaemonsWithDNSNames": False}},
            ("error", "featureGates.ComputeDomainCliques"),
        ),
        ({"kubeletPlugin": {}, "featureGates": {"DynamicMig": True}}, ("error", "featureGates.DynamicMig")),
        # Of a later driver: 0.5.0 (pkg/featuregates) does not start with it.
        (
            {"kubeletPlugin": {}, "featureGates": {"NodeLocalFabricIPC": True}},
            ("error", "featureGates.NodeLocalFabricIPC"),
        ),
        ({"kubeletPlugin": {}, "featureGates": {"HostManagedIMEXDaemon": True, "DRAListTypeAttributes": True}}, None),
        ({"migStrategy": "none", "failOnInitErorr": True}, ("warning", "failOnInitErorr")),
        # A key that another chart has above others, or that is called a little alike.
        ({"migStrategy": "none", "gfd": {}, "affinities": {"a": 1}}, ("note", "affinities.a")),
        ({"migStrategy": "none", "somethingElse": True}, ("note", "somethingElse")),
        (
            {
                "toolkit": {},
                "driver": {},
                "node-feature-discovery": {
                    "worker": {"config": {"sources": {"pci": {"deviceLabelFields": ["vendor", "device"]}}}}
                },
            },
            ("error", "node-feature-discovery.worker.config.sources.pci.deviceLabelFields"),
        ),
        (
            {
                "toolkit": {},
                "driver": {},
                "node-feature-discovery": {
                    "worker": {"config": {"sources": {"pci": {"deviceLabelFields": ["vendor", "class"]}}}}
                },
            },
            None,
        ),
        ({"device-config": {"content": ""}, "devicePlugin": {"nodeConfiguration": {"config": ""}}}, None),
        # What becomes the plugin's environment.
        ({"migStrategy": "mixd"}, ("error", "migStrategy")),
        ({"deviceListStrategy": "envvar,volume_mounts"}, ("error", "deviceListStrategy")),
        ({"deviceListStrategy": ["volume_mounts"]}, ("error", "deviceListStrategy")),
        ({"deviceIDStrategy": "minor"}, ("error", "deviceIDStrategy")),
        ({"deviceListStrategy": "envvar, volume-mounts", "deviceIDStrategy": "", "migStrategy": None}, None),
        ({"migStrategy": " mixed"}, ("error", "migStrategy")),
        # What becomes a field of the ClusterPolicy.
        ({"toolkit": {}, "driver": {"enabled": 4}}, ("error", "driver.enabled")),
        ({"toolkit": {}, "driver": {}, "mig": {"strategy": "singel"}}, ("error", "mig.strategy")),
        ({"toolkit": {}, "driver": {"enabled": "true", "version": 580, "kernelModuleType": "open"}}, None),
        ({"toolkit": {}, "driver": {"kernelModuleType": ""}, "mig": {"strategy": ""}}, None),
        ({"toolkit": {}, "driver": {"startupProbe": {"periodSeconds": "10"}, "imagePullSecrets": None}}, None),
    ],
)
def test_values_of_the_charts(values, expected):
    said = [(level, path) for level, path, _remedy in found(values).get("f[values]", [])]
    assert said == ([expected] if expected else [])


def test_values_of_an_operator_that_is_newer_than_the_definition_may_have_other_choices():
    chart = {"spec": {"chart": "gpu-operator", "version": "v25.3.0"}}
    release = item(
        "helm.toolkit.fluxcd.io/v2", "HelmRelease", spec={"chart": chart, "values": {"mig": {"strategy": "new"}}}
    )
    assert [one[0] for findings in found(release).values() for one in findings] == ["error"]
    chart["spec"]["version"] = "v99.1.0"
    assert not found(release)


def test_values_of_another_version_of_a_chart_are_not_held_against_the_keys_of_this_one():
    source = {
        "chart": "nvidia-device-plugin",
        "targetRevision": "0.14.0",
        "helm": {"valuesObject": {"migStrategi": "none"}},
    }
    ((finding,),) = found(item("argoproj.io/v1alpha1", "Application", spec={"source": source})).values()
    assert finding[0] == "note"
    # Sections of the plugin's configuration are none in any version.
    source["helm"] = {"valuesObject": {"flags": {"migStrategy": "single", "plugin": {}}}}
    ((finding,),) = found(item("argoproj.io/v1alpha1", "Application", spec={"source": source})).values()
    assert finding[:2] == ("warning", "flags")
    # A chart that had another name then; what its driver knows cannot be known.
    chart = {"spec": {"chart": "nvidia-dra-driver-gpu", "version": "25.12.0"}}
    values = {"featureGates": {"OfThen": True}}
    release = item("helm.toolkit.fluxcd.io/v2", "HelmRelease", spec={"chart": chart, "values": values})
    ((finding,),) = found(release).values()
    assert finding[:2] == ("note", "featureGates.OfThen")


PLUGIN = {"image": "k8s-device-plugin", "envFrom": [{"configMapRef": {"name": "x"}}]}
CONFIGURATIONS = item("v1", "ConfigMap", data={"a": "version: v1"})


@pytest.mark.parametrize(
    ("documents", "place", "path"),
    [
        ([{"config": {"map": {"a": "version: v1"}, "default": "b"}}], "values", "config.default"),
        ([{"config": {"map": {"a": "version: v1"}, "default": "a"}}], "", ""),
        ([{"config": {"name": "elsewhere", "default": "b"}, "migStrategy": "none"}], "", ""),
        (
            [
                CONFIGURATIONS,
                {**POLICY, "spec": {**REQUIRED, "devicePlugin": {"config": {"name": "x", "default": "b"}}}},
            ],
            "ClusterPolicy/p",
            "spec.devicePlugin.config.default",
        ),
        (
            [
                CONFIGURATIONS,
                {"config": {"name": "x", "default": "a"}, "migStrategy": "none"},
                {"kind": "Node", "metadata": {"name": "node", "labels": {"nvidia.com/device-plugin.config": "b"}}},
            ],
            "Node/node",
            "metadata.labels['nvidia.com/device-plugin.config']",
        ),
        ([{"kind": "Node", "metadata": {"name": "node", "labels": {"nvidia.com/device-plugin.config": "b"}}}], "", ""),
        # It may be in the ConfigMap that is not among these files.
        (
            [
                CONFIGURATIONS,
                {"config": {"name": "x"}, "migStrategy": "none"},
                {"config": {"name": "elsewhere"}, "migStrategy": "none"},
                {"kind": "Node", "metadata": {"name": "node", "labels": {"nvidia.com/device-plugin.config": "b"}}},
            ],
            "",
            "",
        ),
        (
            [
                item("v1", "ConfigMap", data={"config.yaml": "version: v1"}),
                item("apps/v1", "DaemonSet", spec={"template": {"spec": {"containers": [PLUGIN]}}}),
            ],
            "DaemonSet/x",
            "spec.template.spec.containers[0].envFrom[0]",
        ),
    ],
)
def test_names_that_nothing_has(documents, place, path):
    said = {place: [path for _level, path, _remedy in findings] for place, findings in found(*documents).items()}
    assert said == ({f"f[{place}]": [path]} if place else {})


def test_a_config_map_that_a_patch_changes_has_more_than_the_patch():
    policy = {**POLICY, "spec": {"devicePlugin": {"config": {"name": "x", "default": "b"}}}}
    texts = {"patch-policy.yaml": yaml.safe_dump(policy), "patch-map.yaml": yaml.safe_dump(CONFIGURATIONS)}
    assert not [one for verdict in lint_files(texts).values() for one in verdict.findings]
    texts["map.yaml"] = texts.pop("patch-map.yaml")
    assert [one.path for verdict in lint_files(texts).values() for one in verdict.errors] == [
        "spec.devicePlugin.config.default"
    ]
    texts["kustomization.yaml"] = "configMapGenerator: [{name: x, behavior: merge, files: [b]}]\n"
    assert not [one for verdict in lint_files(texts).values() for one in verdict.findings]


GPU = {"deviceClassName": "gpu.nvidia.com"}
OF_ALL = {"cel": {"expression": "device.capacity['memory'].isGreaterThan(quantity('8Gi'))"}}
ATTRIBUTE = {"cel": {"expression": "device.attributes['memory'].comparableInt >= 40"}}
GUARDED = {"cel": {"expression": "'rack' in device.attributes && device.attributes['rack'].row == 1"}}
FABRIC = [{"matchAttribute": "gpu.nvidia.com/partition2"}]


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("ResourceClaim", {"spec": {"devices": {}}}, "spec"),
        ("ResourceClaimTemplate", {"devices": {}}, "spec"),
        (
            "ResourceClaim",
            {"devices": {"requests": [{"name": "a", "exactly": {**GPU, "selectors": [OF_ALL]}}]}},
            "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        ),
        (
            "ResourceClaim",
            {"devices": {"requests": [{"name": "a", "exactly": {**GPU, "selectors": [ATTRIBUTE]}}]}},
            "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        ),
        (
            "ResourceClaim",
            {"devices": {"requests": [{"name": "a", "exactly": {**GPU, "selectors": [GUARDED]}}]}},
            "",
        ),
        ("ResourceClaim", {"devices": {"requests": [{"name": "a", "exactly": GPU}], "constraints": FABRIC}}, ""),
        # A class of an older driver, or of somebody's own.
        (
            "ResourceClaim",
            {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "imex.nvidia.com"}}]}},
            "",
        ),
    ],
)
def test_claims(kind, spec, path):
    said = found(item("resource.k8s.io/v1", kind, spec=spec)).values()
    levels = [one[:2] for findings in said for one in findings if one[0] != "note"]
    assert levels == ([("error", path)] if path else [])


def test_hami_reads_a_successor_in_place_of_a_field_of_older_releases():
    nvidia = {"deviceSplitCount": 2, "deviceMemoryScaling": 1, "libCudaLogLevel": 1, "knownMigGeometries": []}
    ((finding,),) = found({"nvidia": nvidia}).values()
    assert finding[2] == "Write migProfileAllowlist, with models and profiles."


@pytest.mark.parametrize("key", ["2024-01-01", "!!binary YQ==", "4.5", "true", "null"])
def test_a_key_that_is_no_text_ends_nothing(key):
    """In every kind, and in a configuration behind another document."""
    other = "apiVersion: v1\nkind: Foo\n---\n"
    text = f"version: v1\nflags: {{migStrategy: none, {key}: 1}}\n{key}: x\n"
    for name, before in (("f", ""), ("f[configuration]", other)):
        assert [one.level for one in lint_files({"f": before + text})[name].findings] == ["warning", "warning"]
    for kind in KINDS:
        for group in GROUPS:
            for part in ("spec", "data", "metadata", "labels"):
                lint_files(
                    {"f": f"{other}apiVersion: {group}\nkind: {kind}\n{part}: {{{key}: {{{key}: 1}}}}\n{key}: x\n"}
                )
    for top in TOPS:
        lint_files({"f": f"{other}{top}: {{{key}: {{{key}: 1}}}}\n{key}: x\n"})


KINDS = ("Application", "ApplicationSet", "HelmRelease", "HelmChart", "Kustomization", "List", "ConfigMap", "Node")
KINDS += ("NodeFeatureRule", "DaemonSet", "ClusterPolicy", "NVIDIADriver", "ResourceClaim", "DeviceClass")
GROUPS = ("argoproj.io/v1", "helm.toolkit.fluxcd.io/v2", "helm.cattle.io/v1", "kustomize.config.k8s.io/v1", "v1")
GROUPS += ("nvidia.com/v1", "resource.k8s.io/v1")
TOPS = ("config", "gpu-operator", "kubeletPlugin", "migManager", "configMaps", "mig-configs", "nvidia", "featureGates")


@pytest.mark.parametrize("odd", [None, 1, "x", [], [1], {}, {"a": 1}], ids=repr)
def test_what_is_of_another_type_ends_nothing(odd):
    """Whatever stands where something else is expected, in every carrier and every kind."""
    for kind in KINDS:
        for group in GROUPS:
            for key in ("spec", "items", "data", "metadata", "helmCharts"):
                lint_files({"f": json.dumps({"apiVersion": group, "kind": kind, key: odd})})
    for key in ("kind", "apiVersion", "version"):
        lint_files({"f": json.dumps({"apiVersion": "v1", "kind": "ConfigMap", key: odd, "spec": {}})})
    for key in TOPS:
        lint_files({"f": json.dumps({key: odd, "verification": odd, "policies": odd, "devicePlugin": odd})})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("? [a, b]\n: 1\n", "unsupported map key"),
        ("a: !!int x\n", "cannot decode x as a !!int"),
        ("<<: 1\n", "map merge requires"),
    ],
)
def test_yaml_that_only_go_refuses_is_a_note_where_nobody_knows_who_reads_it(text, why):
    (finding,) = lint_files({"f.yaml": text})["f.yaml"].findings
    assert (finding.level, why in finding.message) == ("note", True)
    # A configuration of the plugin is read by Go.
    (finding,) = lint_files({"f.yaml": f"sharing: {{}}\n{text}"})["f.yaml"].findings
    assert finding.level == "error" and finding.message.startswith("YAML that Go refuses: ") and why in finding.message


def test_yaml_that_nothing_reads_is_invalid():
    (finding,) = lint_files({"f.yaml": "a: [\n"})["f.yaml"].findings
    assert finding.level == "error" and finding.message.startswith("invalid YAML: ")


KUEUE, MONITORING = "kueue.x-k8s.io/v1beta1", "monitoring.coreos.com/v1"
QUOTA = {"name": "nvidia.com/gpu", "nominalQuota": 4}


def queue(*flavors, api_version=KUEUE, **spec):
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": list(flavors)}
    return item(api_version, "ClusterQueue", spec={"resourceGroups": [group], **spec})


def flavor(*resources, name="training"):
    return {"name": name, "resources": list(resources or (QUOTA,))}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (queue(flavor()), []),
        (queue(flavor(), preemtion={}), [("warning", "spec.preemtion")]),
        (queue(flavor(), ofAnotherRelease={}), [("note", "spec.ofAnotherRelease")]),
        (queue(flavor(), queueingStrategy="StrictFifo"), [("error", "spec.queueingStrategy")]),
        # It may be of another release.
        (queue(flavor(), queueingStrategy="ByTeam"), [("warning", "spec.queueingStrategy")]),
        (queue(flavor({"name": "nvidia.com/gpu"})), [("error", "spec.resourceGroups[0].flavors[0].resources[0]")]),
        # What its webhook refuses.
        (
            queue(flavor({**QUOTA, "name": "nvidia.com/mig-1g.10gb"})),
            [("error", "spec.resourceGroups[0].flavors[0].resources")],
        ),
        (queue(flavor(), flavor()), [("error", "spec.resourceGroups[0].flavors[1].name")]),
        (
            queue(flavor({**QUOTA, "borrowingLimit": 2})),
            [("error", "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit")],
        ),
        (queue(flavor({**QUOTA, "borrowingLimit": 2}), cohort="all"), []),
        (queue(flavor({**QUOTA, "borrowingLimit": 2}), cohortName="all", api_version="kueue.x-k8s.io/v1beta2"), []),
        (queue(flavor(), cohort="all", api_version="kueue.x-k8s.io/v1beta2"), [("warning", "spec.cohort")]),
        # Of another version nothing is known.
        (queue(flavor(), cohorts=["all"], api_version="kueue.x-k8s.io/v1"), [("note", "apiVersion")]),
        (item(KUEUE, "ResourceFlavor"), []),
        (item(KUEUE, "ResourceFlavor", spec={"nodeLabel": {}}), [("warning", "spec.nodeLabel")]),
        (item(KUEUE, "ResourceFlavor", spec={"nodeTaints": [{"key": "a"}]}), [("error", "spec.nodeTaints[0]")]),
        (item(MONITORING, "PrometheusRule", spec={"groups": [{"rules": []}]}), [("error", "spec.groups[0]")]),
        (
            item(MONITORING, "PrometheusRule", spec={"groups": [{"name": "a", "rules": [{"expr": 1, "for": 5}]}]}),
            [("error", "spec.groups[0].rules[0].for")],
        ),
        (item(MONITORING, "ServiceMonitor", spec={"selector": {}}), [("error", "spec")]),
        (
            item(MONITORING, "ServiceMonitor", spec={"selector": {}, "endpoints": [{"interval": 30}]}),
            [("error", "spec.endpoints[0].interval")],
        ),
        (item(MONITORING, "PodMonitor", spec={"podMetricsEndpoints": []}), [("error", "spec")]),
        # Of another project, with the same kind.
        (item("azmonitoring.coreos.com/v1", "ServiceMonitor", spec={"selectors": {}}), []),
        (
            item(
                "resource.nvidia.com/v1beta1",
                "ComputeDomain",
                spec={"numNodes": "2", "channel": {"resourceClaimTemplate": {"name": "a"}}},
            ),
            [("error", "spec.numNodes")],
        ),
        (
            item("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule", spec={"rules": [{"labels": {}}]}),
            [("error", "spec.rules[0]")],
        ),
    ],
)
def test_objects_of_others_against_their_definitions(document, expected):
    assert [one[:2] for said in found(document).values() for one in said] == expected


def test_names_among_the_objects_of_kueue():
    local = item(KUEUE, "LocalQueue", spec={"clusterQueue": "other"})
    assert found(local, queue(flavor(name="other"))) == {
        "f[LocalQueue/x]": [("warning", "spec.clusterQueue", "Known here: x.")]
    }
    assert found(queue(flavor(name="other")), item(KUEUE, "ResourceFlavor")) == {
        "f[ClusterQueue/x]": [("warning", "spec.resourceGroups[0].flavors[0].name", "Known here: x.")]
    }
    assert found(local) == {}, "the queue may be elsewhere"
