# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab: several hosts, their package repository and their inventory, by name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nodes.cluster import Cluster, ensure_node_layers, remove_network, stop_control_plane
from nodes.network import free_number, given_numbers
from nodes.programs import KUBERNETES

from . import cache, paths
from .base import ensure_base
from .commands import run
from .host import Host, live_process
from .inventory import inventory_text, ssh_config_text
from .layer import ensure_layer
from .mirror import find_mirror
from .needs import ensure
from .ports import free_ports, given_ports
from .prepare import ensure_disk
from .progress import LabError, Progress
from .repository import ensure_repository, prepare_programs, repository_variables
from .spec import HostSpec, host_from_json, host_to_json

_SNAPSHOTS_KEPT = 2 * 24 * 3600


class Lab:
    """The lab of a name, whether it is up or not."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name = name
        self.paths = paths.LabPaths(name)
        self._progress = progress

    @property
    def exists(self) -> bool:
        return self.paths.state.is_file()

    def hosts(self) -> list[Host]:
        """The hosts of the lab, in the order of its specification.

        :raises LabError: there is no such lab.
        """
        if not self.exists:
            raise LabError(f"Failed to find the lab '{self.name}'. Bring it up: 'lab up --name {self.name}'.")
        data = json.loads(self.paths.state.read_text(encoding="utf-8"))
        specs = [host_from_json(entry) for entry in data["hosts"]]
        return [Host(self.name, spec, data["ports"][spec.name], self.paths.host(spec.name)) for spec in specs]

    def host(self, name: str) -> Host:
        """The host called C(name).

        :raises LabError: the lab has no such host.
        """
        hosts = self.hosts()
        for host in hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in hosts)
        raise LabError(f"Failed to find the host '{name}': the lab '{self.name}' has {known}.")

    def up(self, specs: Sequence[HostSpec], kubernetes: str = KUBERNETES) -> None:
        """Start the lab; what is already there is kept and switched on.

        :param kubernetes: the version of the cluster that its nodes are in.
        :raises LabError: the machine cannot run it, or a host failed to start.
        """
        say = self._progress.say
        ensure(self._progress)
        if self.exists:
            present = [host.spec for host in self.hosts()]
            if present != list(specs):
                raise LabError(
                    f"Failed to bring up the lab '{self.name}': it exists with other hosts "
                    f"({', '.join(spec.name for spec in present)}). Take it down first: 'lab down --name {self.name}'."
                )
        else:
            self._create(specs, kubernetes)
        self._serve_repository()
        hosts = self.hosts()
        cluster = self.cluster()
        if cluster:
            cluster.start()
        for host in hosts:
            host.start()

        def wait(host: Host) -> None:
            seconds = host.wait_until_running()
            say(f"{host.name}: {host.state()}, ssh on 127.0.0.1:{host.port} ({seconds:.1f} s)")

        self._for_all(hosts, wait)
        if cluster:
            cluster.wait_until_ready()
        say(f"the lab '{self.name}' is up; inventory: {self.paths.inventory}")

    def cluster(self) -> Cluster | None:
        """The cluster that hosts of the lab are nodes of; None where no host is one.

        :raises LabError: there is no such lab.
        """
        specs = [host.spec for host in self.hosts()]
        number = json.loads(self.paths.state.read_text(encoding="utf-8")).get("network")
        return None if number is None else Cluster(self.paths, number, specs, self._progress)

    def layers(self, specs: Sequence[HostSpec]) -> tuple[Path, dict[HostSpec, list[Path]]]:
        """The package repository, and what the disk of each host lies on, the uppermost first; what is not there yet is built.

        :raises LabError: it cannot be built, or there is no such snapshot.
        """
        mirror = find_mirror()
        with ThreadPoolExecutor(max_workers=1) as pool:
            # The base mostly waits for the network and the toolkit for the compiler: side by side.
            programs = pool.submit(prepare_programs, self._progress)
            base = ensure_base(mirror, self._progress)
            layer = ensure_layer(self._progress)
            programs.result()
        repository = ensure_repository(base, self._progress)
        kept = {spec: [_snapshot(spec)] if spec.snapshot else [] for spec in specs}
        installed = {spec: ensure_disk(spec, base, layer, repository, self._progress) for spec in specs}
        return repository, {spec: [*kept[spec], installed[spec], layer, base / "root"] for spec in specs}

    def _create(self, specs: Sequence[HostSpec], kubernetes: str) -> None:
        repository, layers = self.layers(specs)
        base = layers[specs[0]][-1].parent
        nodes = any(spec.node != "none" for spec in specs)
        above = ensure_node_layers(specs, base, kubernetes, self._progress) if nodes else {}
        directory = self.paths.directory
        if directory.exists():
            # Cut off before its state was complete.
            self._remove()
        self._progress.say(f"making {len(specs)} hosts")
        directory.mkdir(parents=True)
        with cache.locked(paths.labs() / ".lock", self._progress, "a lab"):
            numbers = free_ports(len(specs) + 1, given_ports())
            ports = {spec.name: port for spec, port in zip(specs, numbers[1:])}
            cluster = Cluster(self.paths, free_number(given_numbers()), specs, self._progress) if nodes else None
            if cluster:
                cluster.create(kubernetes)
            state = {
                "hosts": [host_to_json(spec) for spec in specs],
                "ports": ports,
                "repository_port": numbers[0],
                "repository": str(repository),
                "network": cluster.number if cluster else None,
            }
            (directory / "lab.json.partial").write_text(json.dumps(state, indent=1), encoding="utf-8")
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {self.name}", "-f", self.paths.key])
            public = self.paths.key.with_suffix(".pub").read_text(encoding="ascii")
            known: list[str] = []
            for spec in specs:
                host = Host(self.name, spec, ports[spec.name], self.paths.host(spec.name))
                key = host.create([*above.get(spec.node, ()), *layers[spec]], repository, public)
                if cluster and spec.node != "none":
                    cluster.configure(spec.name, host.paths.upper)
                known.append(f"[127.0.0.1]:{host.port} {' '.join(key.split()[:2])}\n")
            self.paths.known_hosts.write_text("".join(known), encoding="ascii")
            variables = repository_variables(repository, f"http://127.0.0.1:{numbers[0]}")
            text = inventory_text(self.paths, specs, ports, variables)
            self.paths.inventory.write_text(text, encoding="utf-8")
            self.paths.ssh_config.write_text(ssh_config_text(self.paths, ports), encoding="utf-8")
            (directory / "lab.json.partial").rename(self.paths.state)

    def _serve_repository(self) -> None:
        if self.repository_server():
            return
        data = json.loads(self.paths.state.read_text(encoding="utf-8"))
        environment = {**os.environ, "PYTHONPATH": str(paths.LAB_SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        with self.paths.server_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "hosts.repository_server", str(data["repository_port"]), data["repository"],
                 f"lab={self.name}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/", env=environment,
                start_new_session=True,
            )  # fmt: skip
        paths.write_whole(self.paths.server_pid, f"{process.pid}\n")

    def repository_server(self) -> int | None:
        """The process id of the package repository's server while it runs."""
        return live_process(self.paths.server_pid, f"lab={self.name}")

    def repository(self, on: bool) -> None:
        """Switch the package repository on or off, to try what a dead one does."""
        self.hosts()
        if on:
            self._serve_repository()
        else:
            self._stop_server()

    def down(self) -> bool:
        """Remove every process, mount and directory of the lab; return whether there was anything."""
        if not self.paths.directory.exists():
            return False
        self._remove()
        _prune_cache()
        self._progress.say(f"the lab '{self.name}' is gone")
        return True

    def _remove(self) -> None:
        self._stop_server()
        stop_control_plane(self.paths)
        hosts_directory = self.paths.directory / "hosts"
        names = [entry.name for entry in hosts_directory.iterdir()] if hosts_directory.is_dir() else []
        hosts = [Host(self.name, HostSpec(name, "gpu_hosts", ()), 0, self.paths.host(name)) for name in names]
        self._for_all(hosts, Host.destroy)
        remove_network(self.paths)
        shutil.rmtree(self.paths.directory)

    def _stop_server(self) -> None:
        for _attempt in range(100):
            server = self.repository_server()
            if server is None:
                break
            os.kill(server, signal.SIGTERM)
            time.sleep(0.05)
        self.paths.server_pid.unlink(missing_ok=True)

    @staticmethod
    def _for_all(hosts: Iterable[Host], action: Callable[[Host], None]) -> None:
        """Run C(action) on all hosts side by side; fail with every host's reason."""
        with ThreadPoolExecutor(max_workers=16) as pool:
            results = [(host, pool.submit(action, host)) for host in hosts]
        failures = [str(result.exception()) for _host, result in results if result.exception()]
        if failures:
            raise LabError("\n".join(failures))


def all_labs(progress: Progress) -> list[Lab]:
    """The labs of this machine's cache, by name."""
    return [Lab(state.parent.name, progress) for state in sorted(paths.labs().glob("*/lab.json"))]


def _snapshot(spec: HostSpec) -> Path:
    path = paths.snapshots() / spec.snapshot
    if not path.is_dir():
        raise LabError(f"Failed to make {spec.name}: there is no snapshot '{spec.snapshot}' in {path.parent}.")
    # The time of the last use, for the pruning.
    os.utime(path)
    return path


def _prune_cache() -> None:
    in_use: set[Path] = set()
    for settings in paths.labs().glob("*/hosts/*/host.json"):
        data = json.loads(settings.read_text(encoding="utf-8"))
        in_use.add(Path(data["repository"]))
        for lower in map(Path, data["lower"]):
            # A lower directory is a layer, or the root in a base.
            in_use.update((lower, lower.parent))
    for parent in (paths.bases(), paths.layers(), paths.repositories()):
        cache.prune(parent, in_use)
    # A change of what they were made with makes new ones.
    cache.prune(paths.snapshots(), in_use, _SNAPSHOTS_KEPT)


def purge(progress: Progress) -> None:
    """Remove the whole cache.

    :raises LabError: another lab still uses it.
    """
    remaining = [lab.name for lab in all_labs(progress)]
    if remaining:
        raise LabError(f"Failed to purge the cache: the labs {', '.join(remaining)} use it. Take them down first.")
    root: Path = paths.cache_root()
    if root.exists():
        shutil.rmtree(root)
    progress.say(f"removed the cache {root}")
