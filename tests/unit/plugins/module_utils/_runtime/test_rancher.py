# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import loads
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import rancher
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import DesiredRuntime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import ASIDE

PRESENT, DEFAULT, ABSENT = DesiredRuntime(), DesiredRuntime(default=True), DesiredRuntime(present=False)
K3S, RKE2 = rancher.places("k3s"), rancher.places("rke2")
BASE = '{{ template "base" . }}\n\n[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/x"\n'
WHOLE = (
    'root = {{ printf "%q" .Root }}\nstate = {{ printf "%q" .State }}\n[grpc]\n  address = {{ printf "%q" .Address }}\n'
)
OWN_V2 = f"""version = 2
{WHOLE}[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = {{{{ .SystemdCgroup }}}}
"""
OWN_V3 = OWN_V2.replace("version = 2", "version = 3").replace("grpc.v1.cri", "cri.v1.runtime")
EXTRA = OWN_V2 + '{{range $k, $v := .ExtraRuntimes}}\n[plugins.cri.containerd.runtimes."{{$k}}"]\n{{end}}\n'
GENERATED = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia".options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""


def after(files, desired, distribution="k3s"):
    return {change.path: change.after for change in rancher.edit(distribution, files, desired).changed}


def test_normally_nothing_is_written():
    assert after({K3S.generated: GENERATED}, PRESENT) == {}
    assert after({}, ABSENT, "rke2") == {}


def test_default_runtime_is_an_option_of_the_distribution():
    changes = after({}, DEFAULT, "rke2")
    assert list(changes) == ["/etc/rancher/rke2/config.yaml.d/99-gpufleet-nvidia.yaml"]
    assert changes[RKE2.default_runtime].endswith("default-runtime: nvidia\n")
    assert after(changes, DEFAULT, "rke2") == {}
    assert after(changes, PRESENT, "rke2") == {RKE2.default_runtime: None}


#: What the GPU Operator's toolkit writes into a template that is a copy of what was generated (before 1.18), or into a drop-in that this imports (since).
THEIRS = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
"""
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"


def test_the_runtime_that_the_operators_toolkit_wrote_into_a_template_becomes_the_hosts():
    theirs = OWN_V2 + THEIRS.replace("version = 2\n", "")
    (changed,) = after({K3S.template: theirs}, PRESENT).items()
    assert changed == (K3S.template, theirs.replace("/usr/local/nvidia/toolkit/", "/usr/bin/"))
    assert after(dict([changed]), PRESENT) == {} and after({K3S.template: theirs}, ABSENT) == {}
    sites = theirs.replace("/usr/local/nvidia/toolkit/", "/opt/site/")
    assert after({K3S.template: sites}, PRESENT) == {}, "another one is the site's"


def test_the_path_in_a_template_may_be_a_literal_string_of_toml():
    quoted = '"/usr/local/nvidia/toolkit/nvidia-container-runtime"'
    theirs = OWN_V2 + THEIRS.replace("version = 2\n", "").replace(quoted, quoted.replace('"', "'"))
    assert "'/usr/bin/nvidia-container-runtime'" in after({K3S.template: theirs}, PRESENT)[K3S.template]


@pytest.mark.parametrize("text", [THEIRS, THEIRS + "["])
@pytest.mark.parametrize(
    "files",
    [
        {},
        {K3S.template: f'# imports = ["/etc/containerd/conf.d/*.toml"]\n{BASE}'},
        {K3S.template: f'imports = ["conf.d/*.toml", "/etc/containerd/*.toml"]\n{BASE}'},
        {K3S.template: BASE, K3S.generated: 'imports = ["/var/lib/rancher/k3s/agent/etc/containerd/config.toml.d/*.toml"]\n'},
    ],
)  # fmt: skip
def test_a_drop_in_that_nothing_of_the_distribution_imports_is_neither_read_nor_moved(files, text):
    found = rancher.edit("k3s", {**files, DROP_IN: text}, PRESENT)
    assert found.warnings == () and not [one.path for one in found.changed if one.path.startswith(DROP_IN)]


@pytest.mark.parametrize(
    "files",
    [
        {K3S.template_v3: f"imports = [\n  '{DROP_IN}',\n]\n{BASE}", K3S.generated: "version = 3\n"},
        {K3S.generated: 'version = 2\n  imports = ["/other/*.toml", "/etc/containerd/conf.d/*.toml"]\n'},
    ],
)
def test_a_drop_in_of_the_operators_toolkit_is_moved_that_either_imports_and_one_that_is_broken_is_not(files):
    assert after({**files, DROP_IN: THEIRS}, PRESENT)[DROP_IN] is None
    assert DROP_IN not in after({**files, DROP_IN: THEIRS + "["}, PRESENT)


def test_the_drop_in_of_the_operators_toolkit_that_a_template_imports_is_moved_aside():
    files = {K3S.template: f'imports = ["/etc/containerd/conf.d/*.toml"]\n{OWN_V2}', DROP_IN: THEIRS}
    changed = after(files, PRESENT)
    assert changed.keys() == {K3S.template, DROP_IN, DROP_IN + ASIDE}
    assert (changed[DROP_IN], changed[DROP_IN + ASIDE]) == (None, THEIRS)
    (warning,) = rancher.edit("k3s", files, PRESENT).warnings
    assert warning == f"{DROP_IN} was written by nvidia-ctk and is moved to {DROP_IN}{ASIDE}"
    hosts = {**files, DROP_IN: THEIRS.replace("/usr/local/nvidia/toolkit/", "/usr/bin/")}
    assert DROP_IN not in after(hosts, PRESENT) and DROP_IN not in after(files, ABSENT)


@pytest.mark.parametrize(
    "text", [BASE, BASE.replace("{{ ", "{{- "), EXTRA, OWN_V2 + "[plugins.cri.containerd.runtimes.'nvidia']\n"]
)
def test_templates_that_detect_the_runtime_stay(text):
    assert after({K3S.template: text}, PRESENT) == {}


@pytest.mark.parametrize(
    ("path", "text", "section"),
    [
        (K3S.template, OWN_V2, "io.containerd.grpc.v1.cri"),
        (K3S.template_v3, OWN_V3, "io.containerd.cri.v1.runtime"),
        (K3S.template, f"version = 1\n{WHOLE}[plugins.cri]\n", "cri"),
        (K3S.template, OWN_V2[:-1], "io.containerd.grpc.v1.cri"),
    ],
    ids=["version 2", "version 3", "version 1", "no last line break"],
)
def test_other_templates_get_the_runtime_appended(path, text, section):
    changed = after({path: text}, PRESENT)[path]
    assert changed.startswith(text)
    rendered = re.sub(r"\{\{ printf .*?\}\}", '"/run/x"', changed.replace("{{ .SystemdCgroup }}", "true"))
    assert loads(rendered)["plugins"][section]["containerd"]["runtimes"]["nvidia"]["options"] == {
        "BinaryName": "/usr/bin/nvidia-container-runtime",
        "SystemdCgroup": True,
    }
    assert after({path: changed}, PRESENT) == {}
    assert after({path: changed}, ABSENT) == {path: text}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", "root, state, address"),
        ("version = 2\n[plugins.cri]\n", "root, state, address"),
        (OWN_V2.replace("state =", "# state ="), "state"),
        # Appended to, it is still a stub.
        ("# >>> a tool\nimports = []\n", "root, state, address"),
    ],
)
@pytest.mark.parametrize("place", ["template", "template_v3"])
def test_a_template_with_which_the_node_would_not_start_is_refused(place, text, missing):
    path = getattr(RKE2, place)
    with pytest.raises(Refused, match=f"nor {missing}, so rke2 would not start") as refused:
        after({path: text}, PRESENT, "rke2")
    assert refused.value.thing == path
    assert after({path: text}, ABSENT, "rke2") == {}


def test_a_template_that_is_not_read_or_gets_its_rest_as_arguments_is_none_that_stops_the_node():
    stub = {RKE2.template: "version = 2\n[plugins.cri]\n"}
    # A release that hands them to containerd as arguments generates none of them.
    assert RKE2.template in after({**stub, RKE2.generated: GENERATED}, PRESENT, "rke2")
    assert RKE2.template_v3 not in after(
        {**stub, RKE2.template_v3: OWN_V3 + EXTRA, RKE2.generated: f"version = 3\n{WHOLE}[plugins]\n"}, PRESENT, "rke2"
    )
    with pytest.raises(Refused, match="would not start"):
        after({**stub, RKE2.generated: f"version = 3\n{WHOLE}[plugins]\n"}, PRESENT, "rke2")


@pytest.mark.proves("runtime", "", rows=["k3s", "rke2"])
def test_what_will_be_generated():
    wanted = rancher.expected("k3s", {K3S.generated: "version = 2\n"}, "/usr/bin/nvidia-container-runtime")
    assert wanted.shortfalls(PRESENT) == ()
    template = {K3S.generated: GENERATED, K3S.template: OWN_V2}
    assert rancher.expected("k3s", template, "/x").binary is None
    assert rancher.expected("k3s", {**template, **after(template, PRESENT)}, "/x").binary == "/x"
    assert rancher.expected("k3s", {K3S.template: EXTRA}, "/x").binary == "/x"
    # Version 3 is generated from the template of version 2 only where there is no other.
    v3 = {K3S.generated: "version = 3\n", K3S.template: OWN_V2}
    assert rancher.expected("k3s", v3, "/x").binary is None
    assert rancher.expected("k3s", {**v3, **after(v3, PRESENT)}, "/x").binary == "/x"
    assert rancher.expected("k3s", {**v3, K3S.template_v3: EXTRA}, "/x").binary == "/x"
    # What version 2 is generated by may know both, or one of them only.
    both = {**template, K3S.template_v3: EXTRA}
    assert rancher.expected("k3s", both, "/x").binary is None
    assert rancher.expected("k3s", {**both, **after(both, PRESENT)}, "/x").binary == "/x"
    assert rancher.expected("k3s", {K3S.default_runtime: "x"}, "/x").default_runtime == "nvidia"
    before = GENERATED + '[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "nvidia"\n'
    assert rancher.expected("k3s", {K3S.generated: before}, "/x").default_runtime == "runc"
