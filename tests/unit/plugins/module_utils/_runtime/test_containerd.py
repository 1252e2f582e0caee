# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd's files: real defaults of four releases and the shapes that sites write by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import TomlError, loads
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import containerd
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.containerd import MAIN, effective
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.containerd_keys import imports_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import DesiredRuntime

FIXTURES = Path(__file__).parent / "fixtures"
OWN = "/etc/containerd/conf.d/99-gpufleet-nvidia.toml"
V1 = ("plugins", "cri")
V2 = ("plugins", "io.containerd.grpc.v1.cri")
V3 = ("plugins", "io.containerd.cri.v1.runtime")
NVIDIA = ("containerd", "runtimes", "nvidia")
PRESENT, DEFAULT, ABSENT = DesiredRuntime(), DesiredRuntime(default=True), DesiredRuntime(present=False)


def default(version):
    return (FIXTURES / f"containerd-{version}-default.toml").read_bytes().decode()


KUBEADM = """version = 2

# our registry needs this
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.example.com/pause:3.9" # pinned
    [plugins."io.containerd.grpc.v1.cri".containerd]
      snapshotter = 'overlayfs'
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        pod_annotations = ["example.com/*"]
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
          SystemdCgroup = true
          BinaryName = "/opt/runc"

# Harbor
    [plugins."io.containerd.grpc.v1.cri".registry]
      config_path = "/etc/containerd/certs.d"
"""
CTK_EDITED = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
privileged_without_host_devices = false
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
INLINE = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
containerd = { default_runtime_name = "runc", runtimes = { runc = { runtime_type = "io.containerd.runc.v2" } } }
"""
DOTTED = """version = 3
plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options.SystemdCgroup = true
plugins."io.containerd.cri.v1.runtime".enable_cdi = false
"""
DOCKER_PACKAGE = """#   Licensed under the Apache License, Version 2.0 (the "License");

disabled_plugins = ["cri"]

#root = "/var/lib/containerd"
#[grpc]
#  address = "/run/containerd/containerd.sock"
"""
#: name, version of containerd, text, where the CRI plugin's section is, whether runc uses systemd's cgroups
CASES = [
    ("nothing", (1, 6, 20), None, V2, False),
    ("nothing, containerd 2", (2, 1, 5), None, V3, False),
    ("empty", (1, 6, 20), "", V2, False),
    ("comments only", (2, 0, 0), "# managed by hand\n", V3, False),
    ("default 1.6", (1, 6, 20), default("1.6.20"), V2, False),
    ("default 1.7", (1, 7, 35), default("1.7.35"), V2, False),
    ("default 2.1", (2, 1, 5), default("2.1.5"), V3, False),
    ("default 2.4", (2, 4, 2), default("2.4.2"), V3, False),
    ("default 1.7 on containerd 2", (2, 1, 5), default("1.7.35"), V2, False),
    ("kubeadm", (1, 7, 20), KUBEADM, V2, True),
    ("kubeadm, CRLF", (1, 7, 20), KUBEADM.replace("\n", "\r\n"), V2, True),
    ("kubeadm, no last line break", (1, 7, 20), KUBEADM[:-1], V2, True),
    ("version 1", (1, 6, 20), "[plugins.cri]\nsystemd_cgroup = true\n", V1, True),
    ("version 1 without CRI settings", (1, 7, 20), DOCKER_PACKAGE.replace("disabled_plugins", "#"), V2, False),
    ("version 1 on containerd 2", (2, 1, 5), "oom_score = 5\n", V3, False),
    ("version only", (2, 1, 0), "version = 3", V3, False),
    ("inline tables", (1, 6, 20), INLINE, V2, False),
    ("dotted keys", (2, 1, 5), DOTTED, V3, True),
]


def files(text):
    return {} if text is None else {MAIN: text}


def edited(version, before, desired):
    outcome = containerd.edit(version, before, desired)
    after = dict(before)
    for change in outcome.changed:
        assert change.before == before.get(change.path)
        after[change.path] = change.after
        if change.after is None:
            del after[change.path]
    return after


def nvidia(texts, cri):
    found = [loads(text) for text in texts.values()]
    for names in (*cri, *NVIDIA):
        found = [data.get(names, {}) for data in found if isinstance(data, dict)]
    return next(table for table in found if table)


@pytest.mark.parametrize(("version", "text", "cri", "systemd"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_the_runtime_is_there_with_the_cgroup_driver_of_runc(version, text, cri, systemd):
    runtime = nvidia(edited(version, files(text), PRESENT), cri)
    assert runtime["runtime_type"] == "io.containerd.runc.v2"
    assert runtime["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"
    assert runtime["options"]["SystemdCgroup"] is systemd


@pytest.mark.parametrize(("version", "text"), [case[1:3] for case in CASES], ids=[c[0] for c in CASES])
class TestEveryShape:
    def test_second_run_changes_nothing(self, version, text):
        once = edited(version, files(text), DEFAULT)
        assert not containerd.edit(version, once, DEFAULT).changed

    def test_every_line_of_the_user_stays(self, version, text):
        after = edited(version, files(text), DEFAULT)
        lines = "".join(after.values())
        assert all(line in lines for line in (text or "").splitlines())

    def test_removal_gives_the_same_bytes_back(self, version, text):
        assert edited(version, edited(version, files(text), DEFAULT), ABSENT) == files(text)

    def test_default_runtime_set_and_unset(self, version, text):
        with_default = edited(version, files(text), DEFAULT)
        assert effective_of(with_default).default_runtime == "nvidia"
        without = edited(version, with_default, PRESENT)
        assert without == edited(version, files(text), PRESENT)
        assert effective_of(without).default_runtime == "runc"

    def test_absent_on_a_host_without_it_changes_nothing(self, version, text):
        assert not containerd.edit(version, files(text), ABSENT).changed

    def test_a_default_runtime_is_configured(self, version, text):
        after = edited(version, files(text), PRESENT)
        if version < (2,):
            # containerd 1.x forgets its built-in runc when any runtime is configured.
            assert not effective_of(after).shortfalls(DesiredRuntime(enable_cdi=False))


def effective_of(texts):
    return effective(texts[OWN] if OWN in texts else texts[MAIN])


def test_a_user_can_see_what_was_done():
    after = edited((1, 7, 20), {MAIN: KUBEADM}, DEFAULT)[MAIN]
    assert after.startswith(
        KUBEADM.split("      snapshotter")[0].replace("[plugins]", "[plugins]").split("    sandbox_image")[0]
    )
    assert (
        "      snapshotter = 'overlayfs'\n"
        "      # gpufleet.nvidia: added default_runtime_name\n"
        '      default_runtime_name = "nvidia"\n'
    ) in after
    assert after.endswith(
        "\n# gpufleet.nvidia: begin\n"
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
        '  runtime_type = "io.containerd.runc.v2"\n'
        '  pod_annotations = ["example.com/*"]\n'
        "\n"
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
        '  BinaryName = "/usr/bin/nvidia-container-runtime"\n'
        "  SystemdCgroup = true\n"
        "# gpufleet.nvidia: end\n"
    )


def test_what_is_written_below_our_tables_changes_nothing():
    after = edited((1, 7, 20), {MAIN: KUBEADM}, PRESENT)
    after[MAIN] += "# a note\n[debug]\nlevel = 'debug'\n"
    assert not containerd.edit((1, 7, 20), after, PRESENT).changed
    assert edited((1, 7, 20), after, ABSENT)[MAIN].replace("# a note\n[debug]\nlevel = 'debug'\n", "") == KUBEADM
    # Another desired state moves them to the end.
    assert effective(edited((1, 7, 20), after, DEFAULT)[MAIN]).default_runtime == "nvidia"


def test_what_nvidia_ctk_configured_is_taken_over_in_place():
    after = edited((1, 7, 20), {MAIN: CTK_EDITED}, PRESENT)[MAIN]
    assert effective(after).shortfalls(DesiredRuntime(enable_cdi=False)) == ()
    assert after.count("runtimes.nvidia]") == 1
    assert 'was | default_runtime_name = "nvidia"\ndefault_runtime_name = "runc"' in after


def test_absent_removes_what_nvidia_ctk_configured():
    after = edited((1, 7, 20), {MAIN: CTK_EDITED}, ABSENT)[MAIN]
    assert effective(after).shortfalls(ABSENT) == ()
    assert loads(after)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"] == {
        "runtimes": {"runc": {"runtime_type": "io.containerd.runc.v2"}}
    }
    assert not containerd.edit((1, 7, 20), {MAIN: after}, ABSENT).changed


CTK_DROP_IN = """version = 2
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "old"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "/usr/bin/nvidia-container-runtime"
"""


def test_a_drop_in_of_nvidia_ctk_is_moved_aside_because_it_hides_the_main_file():
    leftover = "/etc/containerd/conf.d/99-nvidia.toml"
    main = 'imports = ["/etc/containerd/conf.d/*.toml"]\n' + KUBEADM
    outcome = containerd.edit((1, 7, 20), {MAIN: main, leftover: CTK_DROP_IN}, PRESENT)
    after = {change.path: change.after for change in outcome.changed}
    assert after[leftover] is None
    assert after[leftover + ".disabled-by-gpufleet"] == CTK_DROP_IN
    assert "nvidia" in after[MAIN]
    assert "moved" in outcome.warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        CTK_DROP_IN + "[debug]\nlevel = 'debug'\n",
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'x'\n",
        "# gpufleet.nvidia: begin\n" + CTK_DROP_IN + "# gpufleet.nvidia: end\n",
    ],
    ids=["more than the CRI plugin", "no runtime", "our own"],
)
def test_what_is_not_a_drop_in_of_nvidia_ctk(text):
    assert not containerd.is_leftover(text)


class TestImports:
    def test_containerd_1_edits_the_drop_in_that_has_the_section(self):
        site = "/etc/containerd/conf.d/10-site.toml"
        texts = {MAIN: 'version = 2\nimports = ["conf.d/*.toml"]\n', site: KUBEADM}
        after = edited((1, 7, 20), texts, PRESENT)
        assert after[MAIN] == texts[MAIN]
        assert "runtimes.nvidia]" in after[site]
        assert edited((1, 7, 20), after, ABSENT) == texts

    def test_containerd_2_gets_a_drop_in_where_the_main_file_imports_it(self):
        texts = {MAIN: 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n' + DOTTED.split("\n", 1)[1]}
        after = edited((2, 1, 5), texts, DEFAULT)
        assert after[MAIN] == texts[MAIN]
        assert loads(after[OWN])["version"] == 3
        assert loads(after[OWN])["plugins"]["io.containerd.cri.v1.runtime"]["enable_cdi"] is True
        assert effective(after[OWN]).shortfalls(DEFAULT) == ()
        assert not containerd.edit((2, 1, 5), after, DEFAULT).changed
        assert edited((2, 1, 5), after, ABSENT) == texts

    @pytest.mark.parametrize(
        "pattern", ["/etc/*/conf.d/*.toml", "/etc/containerd/*.toml", "/etc/containerd/conf.d/site.toml"]
    )
    def test_an_import_that_does_not_cover_the_drop_in(self, pattern):
        texts = {MAIN: f'version = 3\nimports = ["{pattern}"]\n'}
        assert OWN not in edited((2, 1, 5), texts, PRESENT)

    def test_the_drop_in_has_the_version_of_the_main_file(self):
        texts = {MAIN: 'version = 2\nimports = ["conf.d/*.toml"]\n'}
        assert loads(edited((2, 1, 5), texts, PRESENT)[OWN])["version"] == 2

    def test_a_main_file_that_has_it_already_is_edited_where_it_stands(self):
        texts = {MAIN: 'imports = ["conf.d/*.toml"]\n' + CTK_EDITED}
        after = edited((2, 1, 5), texts, PRESENT)
        assert OWN not in after
        assert effective(after[MAIN]).default_runtime == "runc"

    def test_an_own_drop_in_goes_when_it_is_no_longer_imported(self):
        texts = {MAIN: 'version = 3\nimports = ["conf.d/*.toml"]\n'}
        after = edited((2, 1, 5), texts, PRESENT)
        after[MAIN] = "version = 3\n"
        again = edited((2, 1, 5), after, PRESENT)
        assert OWN not in again
        assert "nvidia" in again[MAIN]

    def test_another_drop_in_that_sets_another_default_is_refused(self):
        site = "/etc/containerd/site.toml"
        texts = {
            MAIN: 'version = 3\nimports = ["site.toml"]\n',
            site: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'kata'\n",
        }
        with pytest.raises(Refused, match=r"site.toml: it makes kata the default runtime"):
            containerd.edit((2, 1, 5), texts, DEFAULT)
        assert not [c for c in containerd.edit((2, 1, 5), texts, PRESENT).changed if c.path == site]

    def test_a_default_in_another_drop_in_is_unset(self):
        site = "/etc/containerd/site.toml"
        texts = {
            MAIN: 'version = 3\nimports = ["site.toml"]\n',
            site: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'nvidia'\n",
        }
        after = edited((2, 1, 5), texts, PRESENT)
        assert effective(after[site]).default_runtime == "runc"
        assert effective(after[MAIN]).default_runtime == "runc"

    def test_patterns_are_absolute(self):
        text = 'imports = ["conf.d/*.toml", "/a/b.toml", 3]\n'
        assert imports_of(MAIN, text, (2,)) == ("/etc/containerd/conf.d/*.toml", "/a/b.toml")
        assert imports_of(MAIN, "imports = 'x'\n", (2,)) == ()


class TestCdi:
    @pytest.mark.parametrize(
        ("version", "text", "expected"),
        [
            ((1, 6, 20), "version = 2\n", None),
            ((1, 7, 0), "version = 2\n", True),
            ((1, 7, 0), default("1.7.35"), True),
            ((2, 0, 0), "version = 3\n", None),
            ((2, 0, 0), DOTTED, True),
        ],
        ids=["1.6 has none", "1.7", "1.7 default", "2 has it by default", "2, switched off"],
    )
    def test_enabled_where_it_is_not_already(self, version, text, expected):
        assert effective(edited(version, {MAIN: text}, PRESENT)[MAIN]).cdi is expected

    def test_left_alone_when_not_wanted(self):
        after = edited((1, 7, 0), {MAIN: default("1.7.35")}, DesiredRuntime(enable_cdi=False))
        assert effective(after[MAIN]).cdi is False

    def test_warns_where_there_is_none(self):
        assert "has no CDI" in containerd.edit((1, 6, 20), {}, PRESENT).warnings[0]


@pytest.mark.parametrize(
    ("version", "text", "reason"),
    [
        ((1, 7, 0), DOCKER_PACKAGE, "disables containerd's CRI plugin .*nvidia_toolkit_runtime to docker"),
        ((1, 6, 20), "version = 3\n", "configuration version 3 is for containerd 2, and this is 1.6.20"),
        ((2, 1, 5), "[plugins.cri]\nsystemd_cgroup = true\n", "config migrate"),
        ((2, 1, 5), "version = '3'\n", "its version is not a number"),
    ],
    ids=["CRI disabled", "too new for 1.x", "version 1 on 2.x", "no number"],
)
def test_refused_before_anything_is_touched(version, text, reason):
    with pytest.raises(Refused, match=reason):
        containerd.edit(version, {MAIN: text}, PRESENT)
    assert not containerd.edit(version, {MAIN: text}, ABSENT).changed


def test_the_runtime_of_the_default_name_is_inherited_when_there_is_no_runc():
    text = (
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'crun'\n"
        "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.crun]\nruntime_type = 'io.containerd.runc.v2'\n"
        "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.crun.options]\nBinaryName='/usr/bin/crun'\nSystemdCgroup=true\n"
    )
    runtime = nvidia(edited((1, 7, 0), {MAIN: text}, PRESENT), V2)
    assert runtime["options"] == {"BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": True}


def test_a_runtime_of_another_kind_is_not_inherited():
    text = (
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.kata.v2'\n"
        "snapshotter = 'devmapper'\n"
    )
    assert "snapshotter" not in nvidia(edited((1, 7, 0), {MAIN: text}, PRESENT), V2)


@pytest.mark.parametrize("text", ["version = 2\nversion = 2\n", "[plugins\n"])
def test_what_is_not_toml_is_refused(text):
    with pytest.raises(TomlError):
        containerd.edit((1, 7, 0), {MAIN: text}, PRESENT)


def test_shortfalls_name_what_differs():
    text = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'kata'\n"
    found = effective(text + "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\n").shortfalls(DEFAULT)
    assert found == (
        "the runtime nvidia is not configured",
        "the default runtime is kata, expected nvidia",
        "the default runtime kata is not configured",
    )
    assert effective(CTK_EDITED).shortfalls(ABSENT) == (
        "the runtime nvidia is still configured",
        "the default runtime is still nvidia",
    )
    disabled = effective(edited((2, 0, 0), {MAIN: DOTTED}, DesiredRuntime(enable_cdi=False))[MAIN])
    assert disabled.shortfalls(PRESENT) == ("CDI is disabled",)
    assert disabled.as_dict()["cdi"] is False


def test_what_takes_effect_leaves_out_where_it_was_read():
    assert containerd.section("version = 2\nimports = ['/tmp/x']\n") == {"version": 2}


@pytest.mark.parametrize("runc", ["", "sandboxer = 'shim'\n"])
def test_the_sandboxer_is_that_of_runc(runc):
    """Where runc names none, it is containerd's own."""
    table = (
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{}]\nruntime_type = 'io.containerd.runc.v2'\n{}"
    )
    text = "version = 3\n" + table.format("runc", runc) + table.format("nvidia", "sandboxer = 'other'\n")
    found = nvidia(edited((2, 1, 5), files(text), PRESENT), V3)
    assert found["sandboxer"] == ("shim" if runc else "podsandbox")
