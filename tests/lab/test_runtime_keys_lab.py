# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Spellings of containerd's keys, judged by containerd's own code of 1.7 and 2.4; no lab host is needed.

The real program merges the files (C(config dump)). It keeps a runtime's options as they are written, so what it makes of them is asked of the
function with which it does so, built into a program of its own (runtime_options.go).
"""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_edit import render_tables
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import dig, loads
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import engines as adapter
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import BINARY, DesiredRuntime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.state import parse_containerd
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).resolve().parent


def _load(path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


tools = _load(HERE / "container_tools.py")
kubespray = _load(HERE.parent / "unit" / "plugins" / "module_utils" / "_runtime" / "kubespray.py")
pytestmark = pytest.mark.lab
SECTIONS = {"1.7.35": (2, kubespray.V2), "2.4.2": (3, kubespray.V3)}
FILES = {
    (judge, release): text
    for judge in SECTIONS
    for release, (_version, text) in kubespray.FILES.items()
    if judge[0] == text[10] or judge > "2"
}


@functools.cache
def programs(release):
    try:
        return str(tools.containerd(release)), str(tools.runtime_options(release))
    except tools.ToolMissing as error:
        pytest.skip(f"no containerd {release} here: {error}")


def decoded(release, options):
    """Return (BinaryName, SystemdCgroup) of each table of options, as containerd hands them to its shim."""
    texts = [render_tables({(): {"runtime_type": "io.containerd.runc.v2"}, ("options",): table}) for table in options]
    done = subprocess.run([programs(release)[1]], input=json.dumps(texts), capture_output=True, text=True, check=True)
    answers = [answer or {} for answer in json.loads(done.stdout)]
    return [(answer.get("binary_name", ""), answer.get("systemd_cgroup", False)) for answer in answers]


def engine(release, folder):
    def with_judge(command, **options):
        return run([programs(release)[0], *command[1:]] if command[0] == "containerd" else command, **options)

    return adapter.Containerd(str(folder / "config.toml"), with_judge)


def in_force(release, folder):
    """Return the options of the runtimes nvidia and runc after all files are merged and read by the real code."""
    dump = run([programs(release)[0], "--config", str(folder / "config.toml"), "config", "dump"], allowed=(0,)).stdout
    section = next(value for name, value in loads(dump)["plugins"].items() if name == SECTIONS[release][1])
    runtimes = dig(section, ("containerd", "runtimes"))
    return decoded(release, [runtimes[name].get("options", {}) for name in ("nvidia", "runc")])


def put(changes):
    for change in changes:
        Path(change.path).write_bytes(change.after.encode())


@pytest.mark.parametrize(("release", "kubespray_release"), FILES)
@pytest.mark.parametrize("both", [False, True], ids=["fresh", "with both spellings"])
def test_files_of_kubespray(release, kubespray_release, both, tmp_path):
    text = FILES[release, kubespray_release]
    ours = (kubespray.BOTH_V2 if "version = 2" in text else kubespray.BOTH) if both else ""
    (tmp_path / "config.toml").write_text(text + ours)
    containerd = engine(release, tmp_path)
    if both:
        # The defect itself: containerd 2 runs runc instead, containerd 1 has another cgroup driver than runc.
        was = in_force(release, tmp_path)[0]
        assert was == (("/usr/local/bin/runc", True) if release > "2" else (BINARY, False))
        assert (was[0] == BINARY) is (containerd.merged(containerd.files()).effective.binary == BINARY)
    put(containerd.edit(containerd.files(), DesiredRuntime()).changed)
    assert in_force(release, tmp_path) == [(BINARY, True), ("/usr/local/bin/runc", True)]
    assert containerd.merged(containerd.files()).effective.shortfalls(DesiredRuntime()) == ()
    assert not containerd.edit(containerd.files(), DesiredRuntime()).changed


@pytest.mark.parametrize("release", SECTIONS)
@pytest.mark.parametrize(("main", "later"), [("BinaryName", "binaryName"), ("binaryName", "BinaryName")])
def test_a_drop_in_with_another_spelling(release, main, later, tmp_path):
    number, section = SECTIONS[release]
    table = f'[plugins."{section}".containerd.runtimes'
    runc = f'{table}.runc]\nruntime_type = "io.containerd.runc.v2"\n{table}.runc.options]\nsystemdCgroup = true\n'
    nvidia = f'{runc}{table}.nvidia]\nruntime_type = "io.containerd.runc.v2"\n{table}.nvidia.options]\n'
    (tmp_path / "config.toml").write_text(
        f'version = {number}\nimports = ["site.toml"]\n{nvidia}{main} = "/opt/main"\n'
    )
    (tmp_path / "site.toml").write_text(f'version = {number}\n{nvidia}{later} = "/opt/later"\n')
    containerd = engine(release, tmp_path)
    # containerd 1 replaces the whole section; containerd 2 keeps both keys, and the lower-case one counts.
    binary = "/opt/main" if release > "2" and main == "binaryName" else "/opt/later"
    assert in_force(release, tmp_path)[0] == (binary, False)
    assert parse_containerd([*containerd.files().values()], containerd.version).binary == binary
    assert containerd.merged(containerd.files()).effective.binary == binary
    put(containerd.edit(containerd.files(), DesiredRuntime()).changed)
    if release > "2" and later == "BinaryName":
        # The same key in a file that is read later is no second spelling: it is refused by name.
        shortfalls = containerd.merged(containerd.files()).effective.shortfalls(DesiredRuntime())
        assert shortfalls == (f"the runtime nvidia is /opt/later, expected {BINARY}",)
    else:
        assert in_force(release, tmp_path)[0] == (BINARY, True)


#: Spellings that occur, and any case of each letter.
def cased(name):
    letters = st.tuples(*(st.sampled_from((letter.lower(), letter.upper())) for letter in name)).map("".join)
    return letters | st.sampled_from((name, name.lower(), name.upper(), name[0].lower() + name[1:]))


TABLES = st.lists(
    st.dictionaries(cased("BinaryName"), st.sampled_from(("/bin/a", "/bin/b", "/bin/c")), max_size=3).flatmap(
        lambda names: st.dictionaries(cased("SystemdCgroup"), st.booleans(), max_size=3).map(
            lambda flags: {**names, **flags}
        )
    ),
    min_size=20,
    max_size=20,
)


@pytest.mark.parametrize("release", SECTIONS)
@settings(max_examples=15, deadline=None)
@given(tables=TABLES)
def test_options_are_read_as_containerd_reads_them(release, tables):
    number, section = SECTIONS[release]
    version = tuple(map(int, release.split(".")))
    read = []
    for table in tables:
        text = render_tables(
            {(): {"version": number}, ("plugins", section, "containerd", "runtimes", "nvidia", "options"): table}
        )
        found = parse_containerd([text], version)
        read.append((found.binary or "", found.cgroup_driver == "systemd"))
    assert read == decoded(release, tables)
