# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container runtimes judged by the real programs, and configured on a lab host with a real systemd.

The judges: containerd 1.6 and dockerd of Debian, and containerd 1.7, 2.1 and 2.4 built from their modules. A judge that
is not available (no mirror, no Go toolchain) is named in the reason of the skip.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._migration import FORMER
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import containerd, rancher
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import engines as adapter
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.apply import observe_and_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import DesiredRuntime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.plan import Merged, Service
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import ASIDE, Kind
from ansible_collections.gpufleet.nvidia.tests.lab import rancher_host
from real_tools import install

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
DEFAULTS = REPOSITORY / "tests" / "unit" / "plugins" / "module_utils" / "_runtime" / "fixtures"
_specification = importlib.util.spec_from_file_location("container_tools", HERE / "container_tools.py")
tools = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(tools)

pytestmark = pytest.mark.lab
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root")
HOST = "runtime-1"
DESIRED = [DesiredRuntime(), DesiredRuntime(default=True)]

KUBEADM = """version = {version}
# the site's own
[plugins."{section}"]
  enable_selinux = true # a comment
  [plugins."{section}".containerd]
    default_runtime_name = "runc"
    [plugins."{section}".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      pod_annotations = ["example.com/*"]
      [plugins."{section}".containerd.runtimes.runc.options]
        SystemdCgroup = true
"""
V2 = KUBEADM.format(version=2, section="io.containerd.grpc.v1.cri")
V3 = KUBEADM.format(version=3, section="io.containerd.cri.v1.runtime")
#: For each judge: the texts of main files that a host of that release can have.
TEXTS = {
    "1.6": [None, "", V2, V2[:-1], V2.replace("\n", "\r\n"), "[plugins.cri]\nsystemd_cgroup = true\n"],
    "1.7.35": [None, "", V2, "oom_score = 1\n", "[plugins.cri]\nsystemd_cgroup = true\n"],
    "2.1.5": [None, "", V2, V3, V3[:-1], "oom_score = 1\n", "version = 3"],
    "2.4.2": [None, "", V2, V3, V3.replace("\n", "\r\n"), "oom_score = 1\n", "version = 3"],
}


@functools.cache
def judge(release):
    try:
        return (
            tools.debian_program("containerd", "usr/bin/containerd") if release == "1.6" else tools.containerd(release)
        )
    except tools.ToolMissing as error:
        pytest.skip(f"no containerd {release} here: {error}")


def engine(release, folder):
    program = str(judge(release))

    def with_judge(command, **options):
        command = [program, *command[1:]] if command[0] == "containerd" else command
        return run(command, **options)

    return adapter.Containerd(str(folder / "config.toml"), with_judge)


def put(changes):
    for change in changes:
        path = Path(change.path)
        if change.after is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(change.after.encode())


@pytest.mark.parametrize("desired", DESIRED, ids=["named", "default"])
@pytest.mark.parametrize(("release", "number"), [(r, n) for r, texts in TEXTS.items() for n in range(len(texts))])
class TestContainerd:
    @pytest.mark.proves("runtime", "", rows=["containerd"], note="1.6, 1.7, 2.1 and 2.4 print the merged configuration")
    def test_in_force_idempotent_and_undone(self, release, number, desired, tmp_path):
        text = TEXTS[release][number]
        containerd = engine(release, tmp_path)
        main = tmp_path / "config.toml"
        if text is not None:
            main.write_bytes(text.encode())
        before = containerd.merged(containerd.files())
        put(containerd.edit(containerd.files(), desired).changed)
        after = containerd.merged(containerd.files())
        assert after.effective.shortfalls(desired) == ()
        assert main.exists()
        assert not containerd.edit(containerd.files(), desired).changed
        if "SystemdCgroup = true" in (text or ""):
            assert after.text.count('"SystemdCgroup": true') == 2
            assert '"enable_selinux": true' in after.text
        put(containerd.edit(containerd.files(), DesiredRuntime(present=False)).changed)
        assert (main.read_bytes().decode() if main.exists() else None) == text
        assert containerd.merged(containerd.files()) == before


@pytest.mark.parametrize("release", ["2.1.5", "2.4.2"])
@pytest.mark.parametrize("main", [V2, V3], ids=["version 2", "version 3"])
def test_a_drop_in_is_merged_setting_by_setting_by_containerd_2(release, main, tmp_path):
    (tmp_path / "config.toml").write_text('imports = ["conf.d/*.toml"]\n' + main)
    containerd = engine(release, tmp_path)
    put(containerd.edit(containerd.files(), DesiredRuntime(default=True)).changed)
    assert (tmp_path / "config.toml").read_text().endswith(main)
    after = containerd.merged(containerd.files())
    assert after.effective.shortfalls(DesiredRuntime(default=True)) == ()
    assert '"enable_selinux": true' in after.text


@pytest.mark.parametrize("release", ["1.6", "1.7.35"])
def test_a_drop_in_hides_the_section_from_containerd_1(release, tmp_path):
    """Why there is no drop-in for containerd 1.x: this is the trap, shown with the real merge."""
    containerd = engine(release, tmp_path)
    main, drop_in = tmp_path / "config.toml", tmp_path / "conf.d" / "99-nvidia.toml"
    drop_in.parent.mkdir()
    main.write_text('imports = ["conf.d/*.toml"]\n' + V2)
    drop_in.write_text(
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.nvidia]\nruntime_type='io.containerd.runc.v2'\n"
    )
    trapped = containerd.merged(containerd.files())
    assert '"enable_selinux": true' not in trapped.text
    assert "runc" not in trapped.effective.runtimes
    # The file whose section counts is the one that is edited.
    changed = containerd.edit(containerd.files(), DesiredRuntime()).changed
    assert [change.path for change in changed] == [str(drop_in)]
    put(changed)
    assert containerd.merged(containerd.files()).effective.binary == DesiredRuntime().binary


@pytest.mark.parametrize("release", ["1.7.35", "2.1.5"])
def test_a_drop_in_of_a_former_toolkit_with_which_containerd_does_not_start_is_moved_aside(
    release, tmp_path, monkeypatch
):
    """nvidia-ctk wrote the newest version of the format, and this release refuses it beside its own."""
    containerd = engine(release, tmp_path)
    main, left = tmp_path / "config.toml", tmp_path / "conf.d" / "99-nvidia.toml"
    monkeypatch.setattr(adapter.containerd, "LEFTOVERS", (str(left),))
    left.parent.mkdir()
    main.write_text('imports = ["conf.d/*.toml"]\n' + V2)
    table = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia"
    left.write_text(f"version = 4\n[{table}]\nruntime_type = 'io.containerd.runc.v2'\n")
    with pytest.raises(adapter.RuntimeFailure, match=f"--config {main} config dump") as refused:
        containerd.merged(containerd.files())
    assert "gpufleet-containerd-" not in str(refused.value)
    monkeypatch.setattr(containerd, "service", lambda: Service("containerd.service"))
    outcome = observe_and_plan(containerd, DesiredRuntime(), "auto", "refuse")
    assert outcome.plan.steps[-1].kind is Kind.START_SERVICE
    assert f"{left} was written by nvidia-ctk and is moved to {left}{ASIDE}" in outcome.plan.warnings
    put(outcome.changes)
    assert containerd.merged(containerd.files()).effective.shortfalls(DesiredRuntime()) == ()


@pytest.mark.parametrize("release", ["1.6", "1.7.35", "2.1.5", "2.4.2"])
def test_the_captured_defaults_are_what_the_release_prints(release):
    name = {"1.6": "1.6.20"}.get(release, release)
    printed = subprocess.run([judge(release), "config", "default"], capture_output=True, text=True, check=True).stdout
    assert printed == (DEFAULTS / f"containerd-{name}-default.toml").read_text()


def test_containerd_1_is_refused_what_it_ignores_silently(tmp_path):
    containerd = engine("1.6", tmp_path)
    (tmp_path / "config.toml").write_text(V3)
    # The real 1.6 accepts the file, and has none of it.
    assert '"enable_selinux": true' not in containerd.merged(containerd.files()).text
    with pytest.raises(Refused, match="configuration version 3 is for containerd 2"):
        containerd.edit(containerd.files(), DesiredRuntime())


RANCHER_PLACES = {
    "Root": "/var/lib/rancher/rke2/agent/containerd",
    "State": "/run/k3s/containerd",
    "Address": "/run/k3s/containerd/containerd.sock",
}


@pytest.mark.proves(
    "runtime", "", rows=["k3s", "rke2"], note="rendered by Go, read by containerd; the template base is a stand-in"
)
@pytest.mark.parametrize("own", ["own", "own-without-newline", "base", "base-and-more"])
@pytest.mark.parametrize(
    ("release", "version", "section"),
    [("1.7.35", 2, "io.containerd.grpc.v1.cri"), ("2.1.5", 3, "io.containerd.cri.v1.runtime")],
)
def test_templates_of_k3s_and_rke2_rendered_by_go_and_read_by_containerd(release, version, section, own, tmp_path):
    """A site's own template, after the edit: Go's template engine renders it, and the real containerd has the runtime once."""
    program = judge(release)
    base = rancher_host.BASE.format(version=version, section=section)
    without = base.partition("{{ range")[0]
    text = {
        "own": without,
        "own-without-newline": without.rstrip("\n"),
        "base": '{{ template "base" . }}\n',
        "base-and-more": '{{ template "base" . }}\n[plugins."io.containerd.internal.v1.opt"]\n  path = "/opt/x"\n',
    }[own]
    places = rancher.places("rke2")
    path = places.template if version == 2 else places.template_v3
    edited = {change.path: change.after for change in rancher.edit("rke2", {path: text}, DesiredRuntime()).changed}
    assert bool(edited) == own.startswith("own")
    found = {"nvidia": {"RuntimeType": "io.containerd.runc.v2", "BinaryName": DesiredRuntime().binary}}
    given = {
        "template": edited.get(path, text),
        "base": base,
        "data": {"SystemdCgroup": True, "ExtraRuntimes": found, "NodeConfig": {"Containerd": RANCHER_PLACES}},
    }
    done = subprocess.run(
        [tools.template_renderer()], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    main = tmp_path / "config.toml"
    main.write_text(done.stdout)
    dump = run([str(program), "--config", str(main), "config", "dump"], allowed=(0,)).stdout
    effective = containerd.effective(dump)
    assert effective.binary == DesiredRuntime().binary
    assert {"runc", "nvidia"} <= set(effective.runtimes)
    assert dump.count("SystemdCgroup = true") == 2


@pytest.mark.parametrize(
    ("release", "version", "section"),
    [("1.7.35", 2, "io.containerd.grpc.v1.cri"), ("2.1.5", 3, "io.containerd.cri.v1.runtime")],
)
@pytest.mark.parametrize("drop_in", [True, False])
def test_a_template_of_k3s_that_the_operators_real_toolkit_wrote_has_the_hosts_runtime_for_the_real_containerd(
    release, version, section, drop_in, tmp_path
):
    """There is no k3s here, and no node.

    Left by a toolkit whose container was killed: in a drop-in, as it writes today, or among the template's own tables, as before its release 1.18.
    """
    program, ctk = judge(release), install.install(install.TOOLS["nvidia-ctk"])
    base = rancher_host.BASE.format(version=version, section=section).partition("{{ range")[0]
    data = {"SystemdCgroup": True, "ExtraRuntimes": {}, "NodeConfig": {"Containerd": RANCHER_PLACES}}
    # As the operator's documentation has it: a copy of what k3s generated.
    own, folder = tmp_path / "config.toml.tmpl", tmp_path / "conf.d"
    own.write_text(render(base, base, data))
    command = [ctk, "runtime", "configure", "--runtime=containerd", f"--config={own}", "--config-source=file"]
    command += [
        f"--drop-in-config={folder / '99-nvidia.toml'}",
        f"--nvidia-runtime-path={FORMER}/nvidia-container-runtime",
    ]
    subprocess.run(command, check=True, capture_output=True)
    written = (folder / "99-nvidia.toml").read_text()
    if not drop_in:
        tables = written.partition(f'[plugins."{section}".containerd.runtimes.nvidia]')
        own.write_text(
            render(base, base, data)
            + "".join(tables[1:]).partition(f'[plugins."{section}".containerd.runtimes.runc]')[0]
        )
        (folder / "99-nvidia.toml").unlink()
    assert FORMER in dumped(program, own), "that is how they were left"

    places = rancher.places("k3s")
    path = places.template if version == 2 else places.template_v3
    # The drop-ins of a host are in a folder that is not the test's.
    theirs, here = str(Path(LEFT).parent), str(folder)
    files = {path: own.read_text().replace(here, theirs), **({LEFT: written} if drop_in else {})}
    changed = {change.path: change.after for change in rancher.edit("k3s", files, DesiredRuntime()).changed}
    if drop_in:
        assert changed.pop(LEFT) is None
        (folder / "99-nvidia.toml").unlink()
    own.write_text(render(changed[path].replace(theirs, here), base, data))
    dump = dumped(program, own)
    assert containerd.effective(dump).binary == DesiredRuntime().binary and FORMER not in dump


LEFT = "/etc/containerd/conf.d/99-nvidia.toml"


def render(template, base, data):
    """What k3s generates of a template, by Go's engine."""
    given = json.dumps({"template": template, "base": base, "data": data})
    return subprocess.run([tools.template_renderer()], input=given, capture_output=True, text=True, check=True).stdout


def dumped(program, main):
    """What containerd makes of a file and of what that imports."""
    return run([str(program), "--config", str(main), "config", "dump"], allowed=(0,)).stdout


@pytest.mark.proves("runtime", "", rows=["docker"], note="Debian's dockerd checks the file")
def test_dockerd_of_debian_takes_the_file(tmp_path):
    """dockerd 20.10 has no --validate: it is started with the file until it complains about something else."""
    try:
        program = str(tools.debian_program("docker.io", "usr/sbin/dockerd"))
    except tools.ToolMissing as error:
        pytest.skip(f"no dockerd here: {error}")

    def with_judge(command, **options):
        return run([program, *command[1:]] if command[0] == "dockerd" else command, **options)

    main = tmp_path / "daemon.json"
    main.write_text('{\n  "log-level": "warn"\n}\n')
    docker = adapter.Docker(str(main), with_judge)
    assert docker.version[:2] == (20, 10)
    put(docker.edit(docker.files(), DesiredRuntime(default=True)).changed)
    assert isinstance(docker.merged(docker.files()), Merged)
    # An option that is unknown, or a runtime that is malformed, is refused before a socket is opened.
    main_broken = tmp_path / "broken.json"
    main_broken.write_text(json.dumps({**json.loads(main.read_text()), "no-such-option": 1}))
    refused = run([program, "--config-file", str(main_broken), "--host", "unix:///nonexistent/x.sock"], timeout=30)
    taken = run([program, "--config-file", str(main), "--host", "unix:///nonexistent/x.sock"], timeout=30)
    assert "no-such-option" in refused.stderr
    assert "unable to configure the Docker daemon" not in taken.stderr


@pytest.fixture(scope="module")
def fleet(make_fleet):
    host = {"name": HOST, "group": "runtime", "boards": [{"board": "h100-80gb-sxm", "count": 1}], "headers": False}
    made = make_fleet("runtime-tests", host)
    made.lab.sh(HOST, _START_CONTAINER)
    return made


@pytest.fixture
def lab(fleet):
    return fleet.lab


@needs_root
class TestOnAHost:
    """containerd of Debian under a real systemd, with a container that runs through everything."""

    @pytest.fixture
    def module(self, fleet):
        def call(*, fails=False, **arguments):
            answer = fleet.module(HOST, "container_runtime", {"runtime": "containerd", **arguments})
            assert ("restarted" not in answer) is fails, answer
            return answer

        return call

    def facts(self, lab):
        """What must and what must not change: start of containerd, pid of the container, text of the file."""
        return lab.sh(
            HOST,
            "systemctl show -p ActiveEnterTimestampMonotonic --value containerd; ctr task ls -q; pgrep -fx '/bin/sleep 3600'; "
            "ctr plugins ls | awk '$2 == \"cri\" {print $4}'; sha256sum < /etc/containerd/config.toml",
        ).split("\n")

    @pytest.mark.proves("runtime", "", rows=["containerd"], note="Debian's, with running containers")
    def test_configured_repeated_and_undone_while_a_container_runs(self, lab, module):
        started, name, process, cri, text = self.facts(lab)[:5]
        assert (name, cri) == ("survivor", "ok")
        first = module()
        assert first["changed"]
        assert first["restarted"]
        assert first["effective"]["nvidia"] == "/usr/bin/nvidia-container-runtime"
        now = self.facts(lab)
        assert now[0] != started
        # The container's process is the same one, and the CRI plugin is loaded.
        assert now[1:4] == [name, process, "ok"]
        again = module()
        assert not again["changed"]
        assert not again["restarted"]
        assert self.facts(lab) == now
        module(state="absent")
        assert self.facts(lab)[1:5] == [name, process, "ok", text]

    def test_a_comment_changes_the_file_and_restarts_nothing(self, lab, module):
        module()
        started = self.facts(lab)[0]
        lab.sh(HOST, "echo '# a note' >> /etc/containerd/config.toml")
        assert not module()["changed"]
        assert self.facts(lab)[0] == started

    def test_a_run_that_was_cut_off_before_the_restart(self, lab, module):
        started = self.facts(lab)[0]
        lab.sh(
            HOST,
            "mkdir -p /run/gpufleet; echo $(cat /proc/sys/kernel/random/boot_id) 999999999999999 "
            "> /run/gpufleet/restart-containerd.service",
        )
        outcome = module()
        assert [step["kind"] for step in outcome["steps"]] == ["restart_service"]
        assert self.facts(lab)[0] != started
        assert not module()["changed"]

    def test_files_that_are_broken_are_refused_untouched(self, lab, module):
        lab.sh(HOST, "cp /etc/containerd/config.toml /root/good; echo '[[[' >> /etc/containerd/config.toml")
        before = self.facts(lab)
        failed = module(default=True, fails=True)
        assert "expected a key" in failed["msg"]
        assert self.facts(lab) == before
        lab.sh(HOST, "cp /root/good /etc/containerd/config.toml")

    def test_a_unit_that_kills_containers_is_refused(self, lab, module):
        lab.sh(
            HOST,
            "mkdir -p /run/systemd/system/containerd.service.d; "
            "printf '[Service]\\nKillMode=control-group\\n' > /run/systemd/system/containerd.service.d/kill.conf; "
            "systemctl daemon-reload",
        )
        before = self.facts(lab)
        failed = module(default=True, fails=True)
        assert "KillMode=control-group" in failed["msg"]
        assert self.facts(lab) == before
        lab.sh(HOST, "rm /run/systemd/system/containerd.service.d/kill.conf; systemctl daemon-reload")

    def test_a_configuration_with_which_cri_cannot_load_is_refused(self, lab, module):
        """containerd 1.6 would start with it, and only its CRI plugin fail: the exit status would lie."""
        lab.sh(
            HOST,
            "cp /etc/containerd/config.toml /root/good; "
            'printf \'[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "kata"\n\' '
            ">> /etc/containerd/config.toml",
        )
        before = self.facts(lab)
        assert "the default runtime kata is not configured" in module(enable_cdi=False, fails=True)["msg"]
        assert self.facts(lab) == before
        lab.sh(HOST, "cp /root/good /etc/containerd/config.toml")


_START_CONTAINER = """
root=/root/rootfs
mkdir -p $root/bin $root/lib64 $root/lib/x86_64-linux-gnu
cp /bin/sleep $root/bin
cp -L /lib64/ld-linux-x86-64.so.2 $root/lib64
cp -L /lib/x86_64-linux-gnu/libc.so.6 $root/lib/x86_64-linux-gnu
# runc needs session keyrings and device programs of the kernel, which a lab host cannot have. What is tested is whether
# containerd's real shim and its container outlive a restart of containerd: the container is a plain process.
cat > /usr/local/bin/runc-lab <<'RUNC'
#!/usr/bin/python3
import json, os, subprocess, sys
words = sys.argv[1:]
action = next(word for word in words if word in ("create", "start", "state", "kill", "delete", "ps", "--version"))
note = "/run/runc-lab-" + words[-1]
if action == "create":
    process = subprocess.Popen(["/bin/sleep", "3600"], start_new_session=True)
    for path in (note, words[words.index("--pid-file") + 1]):
        with open(path, "w") as handle:
            handle.write(str(process.pid))
elif action == "state":
    pid = int(open(note).read())
    print(json.dumps({"ociVersion": "1.0.2", "id": words[-1], "pid": pid, "status": "running", "bundle": "/"}))
RUNC
chmod +x /usr/local/bin/runc-lab
systemctl start containerd
ctr run -d --runc-binary /usr/local/bin/runc-lab --rootfs $root survivor /bin/sleep 3600
"""
