# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the linter says of files that are fine alone and not together."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint_files

from .test_claims import device_class

MIG = "nvidia.com/mig-1g.10gb"
SLICED = device_class("gpufleet-mig-1g.10gb", extendedResourceName=MIG)
OWN = device_class("own", extendedResourceName=MIG)


def findings(*documents, **files):
    """By the name of what it is said of: of documents of one file, or of files by path."""
    texts = {path: yaml.safe_dump(document) for path, document in files.items()} or {"f": yaml.safe_dump_all(documents)}
    return {name: verdict.findings for name, verdict in lint_files(texts).items() if verdict.findings}


@pytest.mark.parametrize("resource", [MIG, "nvidia.com/gpu", "example.com/gpu"])
def test_two_classes_for_one_resource_are_both_wrong_and_name_each_other(resource):
    one, two = (device_class(name, extendedResourceName=resource) for name in ("one", "two"))
    found = findings(one, two)
    assert list(found) == ["f[DeviceClass/one]", "f[DeviceClass/two]"]
    for name, other in (("one", "two"), ("two", "one")):
        (error,) = [each for each in found[f"f[DeviceClass/{name}]"] if each.level == "error"]
        assert error.path == "spec.extendedResourceName"
        assert error.message.startswith(f"DeviceClass {other} (f) has {resource}, too: ")


def test_of_three_classes_each_names_the_others():
    found = findings(SLICED, OWN, device_class("third", extendedResourceName=MIG))
    assert [len(each) for each in found.values()] == [1, 1, 1]
    assert found["f[DeviceClass/own]"][0].message.startswith(
        "DeviceClass gpufleet-mig-1g.10gb (f) and DeviceClass third (f) has"
    )


def test_other_names_no_name_and_the_class_of_another_api_group_are_fine():
    assert not findings(SLICED, device_class("other", extendedResourceName="nvidia.com/mig-2g.20gb"))
    assert not findings(device_class("a"), device_class("b"))
    assert not findings({**SLICED, "spec": {"extendedResourceName": None}}, OWN)
    namesake = {"apiVersion": "example.com/v1", "kind": "DeviceClass", "metadata": {"name": "a"}, "spec": OWN["spec"]}
    assert not findings(namesake, OWN)


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("objects/a.yaml", "objects/b.yaml", True),
        ("clusters/prod/objects/a.yaml", "clusters/prod/more/classes/b.yaml", True),
        ("/gitops/clusters/prod/a.yaml", "/gitops/clusters/prod/objects/b.yaml", True),
        ("clusters/prod/objects/a.yaml", "clusters/test/objects/b.yaml", False),
        ("clusters/a.yaml", "clusters/b.yaml", True),
        ("one/a.yaml", "two/b.yaml", False),
        ("a.yaml", "b.yaml", True),
    ],
)
def test_files_of_a_folder_or_of_a_cluster_belong_together(first, second, together):
    assert set(findings(**{first: SLICED, second: OWN})) == (
        {f"{first}[DeviceClass/gpufleet-mig-1g.10gb]", f"{second}[DeviceClass/own]"} if together else set()
    )


def test_the_same_class_in_two_files_is_one():
    assert not findings(**{"objects/a.yaml": SLICED, "objects/b.yaml": SLICED})


PLUGIN, DRIVER = "clusters/c/values/plugin.yaml", "clusters/c/values/dra.yaml"


def on(*terms):
    required = {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


CLAIMS = {"key": "pool", "operator": "In", "values": ["claims", "more"]}
READY = {"key": "ready", "operator": "Exists"}


@pytest.mark.parametrize(
    ("plugin", "driver", "where", "nodes"),
    [
        ({}, {}, f"{PLUGIN}[values]", "every node with a GPU"),
        ({}, on([CLAIMS, READY]), f"{PLUGIN}[values]", "nodes with pool In (claims, more) and ready Exists"),
        ({}, on([CLAIMS], [READY]), f"{PLUGIN}[values]", "nodes with pool In (claims, more) or ready Exists"),
        ({"nodeSelector": {"pool": "a"}}, {}, f"{DRIVER}[values]", "nodes with pool=a"),
        ({"nodeSelector": {"pool": "a"}}, {"nodeSelector": {"pool": "a"}}, f"{DRIVER}[values]", "nodes with pool=a"),
        # Whether a node has both labels is not to be seen here.
        ({"nodeSelector": {"pool": "a"}}, on([CLAIMS]), "", ""),
        ({"devicePlugin": {"enabled": False}}, {}, "", ""),
        ({}, {"resources": {"gpus": {"enabled": False}}}, "", ""),
    ],
)
def test_the_plugin_and_the_dra_driver_on_the_same_nodes(plugin, driver, where, nodes):
    more = {"resources": driver.pop("resources")} if "resources" in (driver := dict(driver)) else {}
    found = findings(**{PLUGIN: {"gfd": {"enabled": True}, **plugin}, DRIVER: {"kubeletPlugin": driver, **more}})
    assert list(found) == ([where] if where else [])
    if where:
        ((warning,),) = found.values()
        assert warning.level == "warning"
        assert warning.message.startswith(
            f"the device plugin of {PLUGIN} and the DRA driver of {DRIVER} run on {nodes} both,"
        )
        assert warning.path == ("affinity" if where.startswith(PLUGIN) else "kubeletPlugin.affinity")


def test_the_names_that_classes_of_the_cluster_have_are_said():
    files = {PLUGIN: {"gfd": {}}, DRIVER: {"kubeletPlugin": {}}, "clusters/c/objects/device-classes.yaml": SLICED}
    ((warning,),) = findings(**files).values()
    assert f"as nvidia.com/gpu, {MIG}, and as devices of claims" in warning.message


def test_values_of_the_dra_driver_alone_say_nothing():
    text = yaml.safe_dump({"nvidiaDriverRoot": "/", "kubeletPlugin": {"nodeSelector": {"a": "b"}}})
    (verdict,) = lint_files({"f": text}, {"gpus": []}).values()
    assert not verdict.findings and not verdict.not_checked
