# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Spellings of keys: what is read is what containerd reads, and what is edited is as desired afterwards, however it was spelled.

tests/lab/test_runtime_keys_lab.py has the real containerd judge the same rules.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_edit import render_tables
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import dig, loads
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import containerd, containerd_keys
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.containerd import MAIN
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import BINARY, DesiredRuntime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.stage import stage as stage_of_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.state import parse_containerd
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.verification import of_stages
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document
from hypothesis import given
from hypothesis import strategies as st

stage = by_document(stage_of_facts)

_specification = importlib.util.spec_from_file_location("kubespray", Path(__file__).with_name("kubespray.py"))
kubespray = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(kubespray)
FILES, BOTH, BOTH_V2, V2, V3 = (getattr(kubespray, name) for name in ("FILES", "BOTH", "BOTH_V2", "V2", "V3"))

PRESENT = DesiredRuntime()
SITE = "/etc/containerd/conf.d/site.toml"
VARIABLES = {
    "nvidia_toolkit_runtime": "containerd",
    "nvidia_toolkit_default_runtime": False,
    "nvidia_toolkit_cdi": True,
}


def edited(version, files, desired=PRESENT):
    after = dict(files)
    for change in containerd.edit(version, files, desired).changed:
        after[change.path] = change.after
    return {path: text for path, text in after.items() if text is not None}


def facts(version, texts):
    found = parse_containerd([*texts.values()], version)
    return {
        "version": ".".join(map(str, version)),
        "active": True,
        "nvidia": found.nvidia,
        "binary": found.binary,
        "default_runtime": found.default_runtime,
        "cdi": found.cdi,
        "cgroup_drivers": {"nvidia": found.cgroup_driver, "runc": found.other_cgroup_driver},
    }


def planned(version, texts):
    return stage({"runtimes": {"containerd": facts(version, texts)}}, VARIABLES)


def verified(version, texts):
    return of_stages({"runtime": planned(version, texts)})


@pytest.mark.parametrize(("version", "text"), FILES.values(), ids=FILES)
class TestKubespray:
    def test_nvidia_has_the_program_and_the_cgroup_driver(self, version, text):
        after = edited(version, {MAIN: text})
        found = parse_containerd([*after.values()], version)
        assert (found.binary, found.cgroup_driver, found.other_cgroup_driver) == (BINARY, "systemd", "systemd")
        assert not planned(version, after).needed
        assert not containerd.edit(version, after, PRESENT).changed
        assert edited(version, after, DesiredRuntime(present=False)) == {MAIN: text}
        assert text[text.index("      default_runtime_name") :] in after[MAIN]

    def test_one_spelling_is_written(self, version, text):
        section = V2 if version < (2,) else V3
        path = ("plugins", section, "containerd", "runtimes", "nvidia", "options")
        options = dig(loads(edited(version, {MAIN: text})[MAIN]), path)
        assert options == {"BinaryName": BINARY, "SystemdCgroup": True}


@pytest.mark.parametrize(
    ("release", "both", "why"),
    [
        ("2.28", BOTH, ["it is /usr/local/bin/runc, expected /usr/bin/nvidia-container-runtime"]),
        ("2.27", BOTH_V2, ["it makes cgroups by cgroupfs, and runc by systemd"]),
    ],
)
class TestASecondSpelling:
    """Hosts that were configured with runc's own spellings beside containerd's."""

    def test_is_to_change_red_and_mended(self, release, both, why):
        version, text = FILES[release]
        before = {MAIN: text + both}
        assert [step.why for step in planned(version, before).steps if step.why != "it is disabled"] == why
        assert {one.status for one in verified(version, before)} == {"failed"}
        assert any(why[0] in one.evidence for one in verified(version, before))
        after = edited(version, before)
        assert not planned(version, after).needed
        assert [one.status for one in verified(version, after)] == ["passed"]
        assert not containerd.edit(version, after, PRESENT).changed
        assert "\n  binaryName" not in after[MAIN]
        assert edited(version, after, DesiredRuntime(present=False)) == {MAIN: text}

    def test_in_a_table_that_is_not_marked(self, release, both, why):
        version, text = FILES[release]
        before = {MAIN: text + "".join(line for line in both.splitlines(True) if not line.startswith("#"))}
        assert any(step.why == why[0] for step in planned(version, before).steps)
        after = edited(version, before)
        assert not planned(version, after).needed
        assert '# gpufleet.nvidia: was |   binaryName = "/usr/local/bin/runc"' in after[MAIN]
        assert not containerd.edit(version, after, PRESENT).changed


def test_a_second_spelling_in_another_drop_in_is_removed_there():
    version, text = FILES["2.28"]
    section = f'[plugins."{V3}".containerd.runtimes.nvidia.Options]\nbinaryName = "/opt/runc"\nRoot = "/run/x"\n'
    before = {MAIN: 'imports = ["conf.d/*.toml"]\n' + text, SITE: "version = 3\n" + section}
    assert parse_containerd([*before.values()], version).binary == "/opt/runc"
    after = edited(version, before)
    assert parse_containerd([*after.values()], version).binary == BINARY
    assert 'Root = "/run/x"' in after[SITE]
    assert not containerd.edit(version, after, PRESENT).changed
    assert edited(version, {**after}, DesiredRuntime(present=False))[MAIN] == before[MAIN]


def test_two_spellings_in_the_options_of_runc_are_left_and_named():
    version, text = FILES["2.28"]
    text = text.replace("systemdCgroup = true", "systemdCgroup = true\n            SystemdCgroup = false")
    outcome = containerd.edit(version, {MAIN: text}, PRESENT)
    assert outcome.warnings == (
        f"{MAIN}: the options of runc have systemdCgroup and SystemdCgroup; containerd 2.0.5 takes the value true",
    )
    assert text in edited(version, {MAIN: text})[MAIN]
    assert (
        "takes the value false"
        in containerd.edit(
            (1, 7), {MAIN: text.replace("version = 3", "version = 2").replace(V3, V2)}, PRESENT
        ).warnings[0]
    )


@pytest.mark.parametrize(
    ("version", "texts", "expected"),
    [
        ((2, 1), [f"version = 2\n[plugins.'{V2}']\nEnable_CDI = false\n"], {"cdi": False}),
        ((1, 7), [f"version = 2\n[plugins.'{V2}']\nEnable_CDI = false\n"], {"cdi": None}),
        ((1, 7), [f"version = 2\n[plugins.'{V2}']\nENABLE_CDI = false\n"], {"cdi": False}),
        (
            (2, 1),
            [f"Version = 3\n[Plugins.'{V3}'.Containerd]\nDefault_Runtime_Name = 'kata'\n"],
            {"version": 3, "default_runtime": "kata"},
        ),
        (
            (2, 1),
            [f"version = 3\n[plugins.'{V3}'.containerd]\nDefault_runtime_name='kata'\ndefault_runtime_name='crun'\n"],
            {"default_runtime": "crun"},
        ),
        ((2, 1), [f"version = 3\n[plugins.'{V3}'.containerd.Runtimes.nvidia]\n"], {"nvidia": True}),
        ((2, 1), [f"version = 3\n[plugins.'{V3}'.containerd.runtimes.NVIDIA]\n"], {"nvidia": False}),
        ((1, 7), [f"version = 2\n[plugins.'{V2}'.containerd.Runtimes.nvidia]\n"], {"nvidia": False}),
        # A drop-in does not beat the main file if its spelling sorts before the one there.
        (
            (2, 1),
            [
                f"version = 3\n[plugins.'{V3}'.containerd.runtimes.nvidia.options]\nbinaryName='main'\n",
                f"version = 3\n[plugins.'{V3}'.containerd.runtimes.nvidia.options]\nBinaryName='later'\n",
            ],
            {"binary": "main"},
        ),
    ],
)
def test_other_keys(version, texts, expected):
    found = parse_containerd(texts, version)
    assert {name: getattr(found, name) for name in expected} == expected


def test_imports():
    text = 'Imports = ["a.toml"]\nimports = ["b.toml"]\n'
    assert containerd_keys.imports_of(MAIN, text, (2, 1)) == ("/etc/containerd/b.toml",)
    assert containerd_keys.imports_of(MAIN, 'Imports = ["a.toml"]\n', (1, 7)) == ()
    assert loads(containerd.importing(text, ["/x"])) == {"imports": ["/x"]}


#: Any case of each letter, and how often.
def cased(name):
    return st.tuples(*(st.sampled_from((letter.lower(), letter.upper())) for letter in name)).map("".join)


OPTION = st.one_of(
    st.tuples(
        st.one_of(cased("BinaryName"), st.sampled_from(("BinaryName", "binaryName"))),
        st.sampled_from(("/bin/a", "/bin/b")),
    ),
    st.tuples(st.one_of(cased("SystemdCgroup"), st.sampled_from(("SystemdCgroup", "systemdCgroup"))), st.booleans()),
)
OPTIONS = st.lists(OPTION, max_size=6).map(dict)
VERSION = st.sampled_from(((1, 7, 24), (2, 1, 4)))


@given(version=VERSION, runc=OPTIONS, nvidia=st.none() | OPTIONS)
def test_after_the_edit_it_is_as_desired_and_stays_so(version, runc, nvidia):
    number, section = (2, V2) if version < (2,) else (3, V3)
    runtimes = ("plugins", section, "containerd", "runtimes")
    tables = {
        (): {"version": number},
        (*runtimes, "runc"): {"runtime_type": "io.containerd.runc.v2"},
        (*runtimes, "runc", "options"): runc,
    }
    if nvidia is not None:
        tables[(*runtimes, "nvidia", "options")] = nvidia
    text = render_tables(tables)
    driver = parse_containerd([text], version).other_cgroup_driver
    after = edited(version, {MAIN: text})
    found = parse_containerd([after[MAIN]], version)
    assert (found.binary, found.cgroup_driver, found.other_cgroup_driver) == (BINARY, driver, driver)
    assert dig(loads(after[MAIN]), (*runtimes, "runc", "options")) == runc
    lower = [key.lower() for key in dig(loads(after[MAIN]), (*runtimes, "nvidia", "options"))]
    assert len(lower) == len(set(lower))
    assert not containerd.edit(version, after, PRESENT).changed
