# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests on lab hosts share: a lab of their own, brought up by the same command that a person uses."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..result_shape import misshapen
from ..warm_ansible import WarmAnsible

LAB = Path(__file__).resolve().parent / "lab"
sys.path.insert(0, str(LAB.parent))

from hosts import cache, paths
from hosts.lab import Lab
from hosts.progress import LabError, Progress
from hosts.spec import host_to_json, parse_spec

REPOSITORY = LAB.parents[2]
TOOLS = REPOSITORY / ".venv" / "bin"
#: Nothing listens there: the port of discard, which no lab host gets.
UNREACHABLE_PORT = 9


class LabUnderTest:
    """A lab of a name that no person uses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lab = Lab(name, Progress())

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Call the lab's command line: its output is shown when a test fails."""
        action, *rest = arguments
        command = [str(LAB), action, "--name", self.name, *rest]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if check and done.returncode:
            pytest.fail(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def up(self, folder: Path, *hosts: dict[str, Any]) -> None:
        """Bring it up with these hosts."""
        spec = folder / "lab.json"
        spec.write_text(json.dumps({"hosts": list(hosts)}), encoding="utf-8")
        self.run("up", "--spec", str(spec))

    def execute(self, host: str, *command: str, stdin: str | bytes | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program in a host: what C(lab exec) does, without a start of Python each time."""
        try:
            return self._lab.host(host).execute(command, capture=True, stdin=stdin)
        except LabError as error:
            pytest.fail(str(error))

    def sh(self, host: str, script: str, *, check: bool = True) -> str:
        """Run a shell script in a host and return what it wrote."""
        done = self.execute(host, "bash", "-euo", "pipefail", "-c", script)
        if check and done.returncode:
            pytest.fail(f"{script!r} in {host}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def write(self, host: str, path: str, content: str | bytes) -> None:
        """Write a file into a host."""
        done = self.execute(host, "sh", "-c", 'cat > "$1"', "sh", path, stdin=content)
        if done.returncode:
            pytest.fail(f"{path} in {host} cannot be written: {done.stderr}")

    def status(self, host: str, script: str) -> int:
        """Run a shell script in a host and return its exit status."""
        return self.execute(host, "bash", "-c", script).returncode


@pytest.fixture(scope="module")
def make_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LabUnderTest]]:
    """Bring labs up; all of them are taken down at the end, whatever happened. GPUFLEET_TEST_LAB keeps them apart from those of another run."""
    labs: list[LabUnderTest] = []

    def make(name: str, *hosts: dict[str, Any]) -> LabUnderTest:
        lab = LabUnderTest("-".join(filter(None, (os.environ.get("GPUFLEET_TEST_LAB"), name))))
        lab.run("down")
        labs.append(lab)
        lab.up(tmp_path_factory.mktemp(name), *hosts)
        return lab

    yield make
    for lab in labs:
        lab.run("down")


@dataclass(frozen=True)
class Played:
    """What a run of ansible-playbook said.

    :param recap: host name to the counters of the recap (C(ok), C(changed), C(unreachable), C(failed), ...).
    """

    rc: int
    text: str
    recap: dict[str, dict[str, int]]

    def said_of(self, host: str) -> str:
        """The message with which the host failed, with its line breaks, or an empty string."""
        marks = (f"fatal: [{host}]", f"[ERROR]: Task failed: Action failed: {host}:")
        blocks = [block for block in re.split(r"\n(?=\S)", self.text) if block.startswith(marks)]
        return "\n".join(blocks)

    @property
    def started(self) -> list[tuple[str, str]]:
        """The tasks that ran, with the host: name (without the role's) and host. Skipped tasks and the checks of arguments are not in it."""
        found, task = [], ""
        for line in self.text.splitlines():
            if title := re.match(r"TASK \[(?:[\w.]+ : )?(.*?)\] \*", line):
                task = title[1]
            elif (ran := re.match(r"(?:ok|changed): \[([^\]]+)\]", line)) and not task.startswith(
                "Validating arguments"
            ):
                found.append((task, ran[1]))
        return found

    def quiet(self, host: str) -> bool:
        """Whether the run changed nothing on the host, reached it and did not fail there."""
        counters = self.recap.get(host, {})
        return bool(counters) and not any(counters[name] for name in ("changed", "failed", "unreachable"))


class Fleet:
    """An inventory over the hosts of a lab, and the collection's playbooks and modules on it."""

    def __init__(self, lab: LabUnderTest, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.inventory = folder / "inventory.yml"
        self.gitops = folder / "gitops"
        #: What the last call of a module showed: its warnings are in no answer.
        self.shown = ""
        written = yaml.safe_load(Path(lab.run("inventory").stdout.strip()).read_text(encoding="utf-8"))["all"]
        self.variables: dict[str, Any] = written["vars"]
        groups = written["children"]["gpu_hosts"]
        self.ports = {
            host: entry["ansible_port"]
            for group in (groups, *groups.get("children", {}).values())
            for host, entry in group.get("hosts", {}).items()
        }
        self.describe({name: {"hosts": list(group["hosts"])} for name, group in groups.get("children", {}).items()})

    def describe(self, pools: dict[str, dict[str, Any]], hosts: dict[str, dict[str, Any]] | None = None) -> None:
        """Write the inventory.

        :param pools: pool to C(hosts) (names; a name of no lab host needs C(machine) among its variables: the lab host that it is
            another name of) and C(vars).
        :param hosts: variables of single hosts.
        """
        own = hosts or {}
        children = {}
        for pool, entry in pools.items():
            members = {}
            for host in entry["hosts"]:
                variables = dict(own.get(host, {}))
                machine = variables.pop("machine", host)
                members[host] = {"ansible_port": self.ports.get(machine, UNREACHABLE_PORT), **variables}
            children[pool] = {"hosts": members, "vars": entry.get("vars", {})}
        described = {"all": {"vars": self.variables, "children": {"gpu_hosts": {"children": children}}}}
        self.inventory.write_text(yaml.safe_dump(described), encoding="utf-8")

    def command(
        self,
        playbook: str | Path,
        *options: str,
        programs: Path = TOOLS,
        collections: Path = REPOSITORY / "build" / "collections",
    ) -> tuple[list[str], dict[str, str]]:
        """The command line of a playbook of the collection, or of a file, and its environment.

        :param programs: the folder of Ansible's programs.
        :param collections: where the collection is; by default this checkout.
        """
        name = str(playbook) if isinstance(playbook, Path) else f"gpufleet.nvidia.{playbook}"
        line = [str(programs / "ansible-playbook"), "-i", str(self.inventory), name]
        line += ["-e", f"gpu_kubernetes_output_directory={self.gitops}", *options]
        return line, {**_environment(), "ANSIBLE_COLLECTIONS_PATH": str(collections)}

    def play(self, playbook: str | Path, *options: str, timeout: float = 1800, **where: Path) -> Played:
        """Run a playbook of the collection, or a file.

        :param where: C(programs) and C(collections) of L(command).
        """
        line, environment = self.command(playbook, *options, **where)
        done = _warm_ansible().run(line, environment, self.folder, timeout)
        text = f"{done.stdout}\n{done.stderr}"
        return Played(done.returncode, text, _recap(done.stdout))

    def module(
        self, host: str, name: str, arguments: dict[str, Any] | None = None, *options: str, timeout: float = 1800
    ) -> dict[str, Any]:
        """Call a module of the collection on a host and return its whole answer."""
        answers = self.folder / "answers"
        (answers / host).unlink(missing_ok=True)
        line = [str(TOOLS / "ansible"), "-i", str(self.inventory), host, "-m", f"gpufleet.nvidia.{name}"]
        line += [*(["-a", json.dumps(arguments)] if arguments else []), "-t", str(answers), *options]
        done = _warm_ansible().run(line, _environment(), self.folder, timeout)
        self.shown = " ".join((done.stdout + done.stderr).split())
        if not (answers / host).exists():
            pytest.fail(f"{' '.join(line)}: {done.stdout}{done.stderr}")
        answer: dict[str, Any] = json.loads((answers / host).read_text(encoding="utf-8"))
        assert misshapen(answer) == []
        return answer

    def facts(self, host: str) -> dict[str, Any]:
        """The facts document of a host."""
        answer = self.module(host, "gpu_info")
        assert "gpu" in answer, answer
        facts: dict[str, Any] = answer["gpu"]
        return facts


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
        "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEVEL_WARNING": "0",
    }


@functools.cache
def _warm_ansible() -> WarmAnsible:
    return WarmAnsible(TOOLS, _environment())


@pytest.fixture(scope="module")
def make_fleet(make_lab: Callable[..., LabUnderTest], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Fleet]:
    """Bring a lab up and return it with an inventory of its own."""

    def make(name: str, *hosts: dict[str, Any]) -> Fleet:
        return Fleet(make_lab(name, *hosts), tmp_path_factory.mktemp(f"{name}-fleet"))

    return make


#: What L(converged_fleet) describes: whole GPUs. The driver comes at its default version, the toolkit for the host's containerd.
CONVERGED = {"nvidia_mig_strategy": "none", "gpu_node_kubernetes": False}


@pytest.fixture(scope="module")
def converged_fleet(make_fleet: Callable[..., Fleet], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Fleet]:
    """Bring up hosts on which C(site) has nothing left to do, in seconds.

    The collection itself brings one host of each kind to that state, once per content of its sources; what it wrote there is the snapshot from which all
    such hosts start. Variables are those of the pools, and part of the kind, as the boards are.
    """

    def make(name: str, *hosts: dict[str, Any], **variables: Any) -> Fleet:
        wanted = {**CONVERGED, **variables}
        folder = tmp_path_factory.mktemp(f"{name}-snapshots")
        fleet = make_fleet(name, *({**host, "snapshot": _converged(host, wanted, folder)} for host in hosts))
        pools: dict[str, dict[str, Any]] = {}
        for host in hosts:
            pools.setdefault(host["group"], {"hosts": [], "vars": wanted})["hosts"].append(host["name"])
        fleet.describe(pools)
        return fleet

    return make


def _converged(host: dict[str, Any], variables: dict[str, Any], folder: Path) -> str:
    """The name of the snapshot of such a host, which is made if it is not there yet."""

    def apply(fleet: Fleet) -> None:
        fleet.describe({"pool": {"hosts": ["kept"], "vars": variables}})
        site = fleet.play("site", "--skip-tags", "cluster")
        assert site.rc == 0, site.text

    return _kept_disk(host, folder, "site", [variables, _installing_sources()], apply)


@pytest.fixture(scope="module")
def kept_disk(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return the name of the snapshot of a host on which a script was run, which is made if it is not there yet: what is installed takes its time once."""

    def make(kind: str, script: str, **host: Any) -> str:
        folder = tmp_path_factory.mktemp(f"{kind}-disk")
        return _kept_disk(host, folder, kind, [script], lambda fleet: fleet.lab.sh("kept", script))

    return make


def _kept_disk(host: dict[str, Any], folder: Path, kind: str, content: list[Any], apply: Callable[[Fleet], Any]) -> str:
    """The name of the snapshot of a host, which is made if it is not there yet.

    :param content: what the disk depends on beside the host.
    :param apply: puts it on the host C(kept) of the fleet.
    """
    bare = {**host, "name": "kept", "group": "pool"}
    (spec,) = parse_spec({"hosts": [bare]})
    repository, layers = Lab("kept", Progress()).layers([spec])
    below = [path.parent.name if path.name == "root" else path.name for path in layers[spec]]
    name = f"{kind}-{cache.content_hash(host_to_json(spec), below, repository.name, *content)}"

    def build(directory: Path) -> None:
        lab = LabUnderTest(f"make-{name}")
        try:
            lab.up(folder, bare)
            apply(Fleet(lab, folder))
            lab.run("stop", "kept")
            Lab(lab.name, Progress()).host("kept").copy_disk(directory)
        finally:
            lab.run("down")

    cache.build_once(paths.snapshots(), name, "a host's disk", Progress(), build)
    return name


@functools.cache
def _installing_sources() -> str:
    """What a run of C(site) depends on in this checkout, and the release of Ansible."""
    folders = ("plugins", "roles", "playbooks", "meta")
    files = sorted(path for name in folders for path in (REPOSITORY / name).rglob("*") if path.is_file())
    files = [path for path in files if path.suffix != ".pyc"]
    names = [str(path.relative_to(REPOSITORY)) for path in files]
    return cache.content_hash(names, cache.files_hash(files), metadata.version("ansible-core"))


def _recap(text: str) -> dict[str, dict[str, int]]:
    _before, _title, lines = text.partition("PLAY RECAP")
    found = {}
    for line in lines.splitlines():
        host, colon, counters = line.partition(" : ")
        if colon:
            pairs = (pair.split("=") for pair in counters.split())
            found[host.strip()] = {name: int(value) for name, value in pairs}
    return found


@pytest.fixture(scope="module")
def recorded():
    """What dcgmi wrote on real machines."""
    folder = REPOSITORY / "tests" / "unit" / "plugins" / "module_utils" / "_health"
    sys.path.insert(0, str(folder))
    try:
        import dcgm_outputs
    finally:
        sys.path.remove(str(folder))
    return dcgm_outputs
