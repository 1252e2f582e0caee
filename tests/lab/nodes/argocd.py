# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Argo CD beside a lab's cluster, and what it syncs from: a git server, and a Helm repository with the projects' own charts.

Application controller and repository server are the real programs. They run on the machine in place of in pods
(C(ARGOCD_FAKE_IN_CLUSTER), as the project's own developers run them); there is no user interface. All of it listens at the
address of the lab's API server, so labs run beside each other.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from hosts import needs, paths
from hosts.commands import run
from hosts.host import live_process
from hosts.progress import LabError, Progress

from . import programs
from .control_plane import ControlPlane, end_with_parent
from .network import Network

NAMESPACE = "argocd"
_CRDS = ("application", "applicationset", "appproject")
# The file of Debian's redis-tools is the server too, if it is called so. The package redis-server would also start one on the machine.
REDIS = "redis-check-rdb"
#: The program whose source has definitions to their folder.
_DEFINITIONS = {"nfd-master": "deployment/helm/node-feature-discovery/crds"}
_PORTS = {"git": 9418, "redis": 6379, "repo-server": 8081, "repo-server metrics": 8084, "charts": 8879}
#: The controller shows its metrics at all addresses, so the port is another in every lab.
_FIRST_METRICS_PORT = 21080
#: In place of three minutes: nobody who looks on waits for the next look at the repository.
_LOOKS_EVERY = 5
_READY_WITHIN = 60.0
#: Of unshare. Argo CD keeps checkouts and a socket of a fixed name in /tmp, so each of its programs has one of its own, which goes when it ends;
#: everything else has the machine's, where the checkout of the lab may be.
_OWN_TMP = ("--mount", "sh", "-c", 'mount -t tmpfs tmpfs /tmp && exec "$@"', "sh")


class ArgoCD:
    """Argo CD of one lab.

    :param number: of the lab's network.
    """

    def __init__(self, lab: paths.LabPaths, number: int, plane: ControlPlane, progress: Progress) -> None:
        self._lab = lab
        self._number = number
        self._address = Network(number).api
        self._plane = plane
        self._progress = progress

    @property
    def data(self) -> Path:
        """Its logs, caches and what is served."""
        return self._lab.cluster / "argocd"

    @property
    def git_directory(self) -> Path:
        return self.data / "git"

    @property
    def git_url(self) -> str:
        """The repository that it syncs, for C(gpu_kubernetes_gitops_repository); anybody on the machine may push."""
        return f"git://{self._address}/gpu-clusters.git"

    @property
    def definitions_url(self) -> str:
        """The repository with the custom resource definitions of the projects, in the folders that they have in the projects' own."""
        return f"git://{self._address}/definitions.git"

    @property
    def charts_url(self) -> str:
        return f"http://{self._address}:{_PORTS['charts']}"

    def charts(self) -> dict[str, str]:
        """Chart to the version that the Helm repository has."""
        return json.loads((self.data / "charts.json").read_text(encoding="utf-8"))

    def up(self) -> None:
        """Start it, unless it runs, and wait until it answers.

        :raises LabError: it does not.
        """
        if _supervisor(self._lab) is None:
            self.prepare()
            self._start()
        until = time.monotonic() + _READY_WITHIN
        while not self._answers():
            if time.monotonic() > until or _supervisor(self._lab) is None:
                raise LabError(f"Failed to start Argo CD of '{self._lab.name}'. See {self.data}/*.log.")
            time.sleep(0.3)
        self._progress.say(f"Argo CD {programs.version('argocd')} is up and syncs from {self.git_url}")

    def start(self) -> list[subprocess.Popen[bytes]]:
        """Start the programs; they end when the calling process ends."""
        redis = f"{self._address}:{_PORTS['redis']}"
        repository_server = f"{self._address}:{_PORTS['repo-server']}"
        every, program = f"{_LOOKS_EVERY}s", str(programs.tools(("argocd",), self._progress)[0])
        # Each without a program between, which would end alone.
        return [
            self._run("redis-server", [
                "--bind", self._address, "--port", str(_PORTS["redis"]), "--protected-mode", "no", "--save", "",
                "--dir", str(self.data),
            ], executable=needs.found(REDIS)),
            self._run("git-daemon", [
                f"--listen={self._address}", f"--port={_PORTS['git']}", f"--base-path={self.git_directory}",
                "--export-all", "--enable=receive-pack", "--reuseaddr",
            ], executable=f"{_git_programs()}/git-daemon"),
            self._run("charts", [
                "-m", "http.server", "--bind", self._address, str(_PORTS["charts"]), "--directory", str(self.data / "charts"),
            ], executable=sys.executable),
            self._run("argocd-repo-server", [
                *_OWN_TMP, program, f"--address={self._address}", f"--port={_PORTS['repo-server']}", "--disable-tls", f"--redis={redis}",
                f"--metrics-address={self._address}", f"--metrics-port={_PORTS['repo-server metrics']}",
                f"--revision-cache-expiration={every}",
            ], executable=needs.found("unshare")),
            self._run("argocd-application-controller", [
                *_OWN_TMP, program, f"--kubeconfig={self._plane.kubeconfig}", f"--namespace={NAMESPACE}", f"--redis={redis}",
                f"--repo-server={repository_server}", "--repo-server-plaintext",
                # A busy machine is slow, and no reason to call a chart unreadable.
                "--repo-server-timeout-seconds=180",
                f"--app-resync={_LOOKS_EVERY}", "--app-resync-jitter=0",
                f"--metrics-port={_FIRST_METRICS_PORT + self._number}",
            ], executable=needs.found("unshare")),
        ]  # fmt: skip

    def _run(self, name: str, arguments: list[str], executable: str | None = None) -> subprocess.Popen[bytes]:
        home = self.data / "home"
        # Argo CD calls helm, and the git server calls itself for each request.
        search = [str(programs.helm(self._progress).parent), os.environ.get("PATH", os.defpath), _git_programs()]
        environment = {
            **os.environ,
            "PATH": ":".join(search),
            "HOME": str(home),
            "KUBECONFIG": str(self._plane.kubeconfig),
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_BINARY_NAME": name,
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_TLS_DATA_PATH": str(home),
            "ARGOCD_SSH_DATA_PATH": str(home),
            "ARGOCD_PLUGINSOCKFILEPATH": str(home),
            # Nothing of it is behind the proxy of the machine.
            **dict.fromkeys(("NO_PROXY", "no_proxy"), self._address),
        }
        with (self.data / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [name, *arguments], executable=executable, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                cwd=self.data, env=environment, preexec_fn=end_with_parent,
            )  # fmt: skip

    def prepare(self) -> None:
        """Install what it needs, and make the repositories and the objects that Argo CD keeps its settings in."""
        program = programs.tools(("argocd",), self._progress)[0]
        needs.ensure(self._progress, [] if needs.found(REDIS) else ["redis-tools"])
        (self.data / "home").mkdir(parents=True, exist_ok=True)
        bare = self.git_directory / "gpu-clusters.git"
        if not bare.is_dir():
            run(["git", "init", "--quiet", "--bare", "--initial-branch=main", bare])
        self._package()
        self._publish_definitions()
        definitions = programs.source(program.name) / "manifests" / "crds"
        for name in _CRDS:
            self._plane.kubectl("apply", "--server-side", "-f", str(definitions / f"{name}-crd.yaml"))
        kinds = [f"crd/{name}s.argoproj.io" for name in _CRDS]
        # kubectl refuses to wait for a condition as long as there is no condition at all.
        self._plane.kubectl("wait", "--for=jsonpath={.status.conditions}", "--timeout=60s", *kinds)
        self._plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *kinds)
        # The API server checks them; kubectl would fetch all definitions first, which takes long on a busy machine.
        text = json.dumps(_settings())
        self._plane.kubectl("apply", "--server-side", "--validate=ignore", "-f", "-", text=text)

    def _package(self) -> None:
        """The projects' charts as an index and archives, under the versions that the projects publish them with."""
        folder, helm = self.data / "charts", programs.helm(self._progress)
        folder.mkdir(exist_ok=True)
        versions = {}
        for program in ("nvidia-device-plugin", "nfd-master"):
            # The version in the file of Node Feature Discovery's chart is set when it is published.
            chart, version = programs.chart(program), programs.version(program).lstrip("v")
            run([helm, "package", chart, "--version", version, "--destination", folder])
            versions[chart.name] = version
        run([helm, "repo", "index", folder, "--url", self.charts_url])
        (self.data / "charts.json").write_text(json.dumps(versions), encoding="utf-8")

    def _publish_definitions(self) -> None:
        bare, work = self.git_directory / "definitions.git", self.data / "definitions"
        if bare.is_dir():
            return
        for program, folder in _DEFINITIONS.items():
            shutil.copytree(programs.source(program) / folder, work / folder)
        commit_all(work, "The definitions of the projects")
        run(["git", "clone", "--quiet", "--bare", work, bare])

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(paths.LAB_SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        with (self.data / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "nodes.argocd", str(self._lab.directory)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/", env=environment,
                start_new_session=True,
            )  # fmt: skip
        paths.write_whole(_pid(self._lab), f"{process.pid}\n")

    def _answers(self) -> bool:
        """Whether the git server answers, and the controller and the repository server are there."""
        ports = [*_PORTS.values(), _FIRST_METRICS_PORT + self._number]
        for port in ports:
            with socket.socket() as probe:
                probe.settimeout(2)
                if probe.connect_ex((self._address, port)):
                    return False
        return True


def commit_all(checkout: Path, message: str) -> None:
    """Commit what is in a folder, which is a repository from then on."""
    git = [
        "git",
        "-C",
        checkout,
        "-c",
        "user.name=gpufleet lab",
        "-c",
        "user.email=lab@gpufleet.invalid",
        "-c",
        "commit.gpgsign=false",
    ]
    if not (checkout / ".git").is_dir():
        run([*git, "init", "--quiet", "--initial-branch=main"])
    run([*git, "add", "--all"])
    if run([*git, "status", "--porcelain"]):
        run([*git, "commit", "--quiet", "--message", message])


def stop_argocd(lab: paths.LabPaths) -> None:
    """End Argo CD of a lab, if it has one."""
    for attempt in range(200):
        supervisor = _supervisor(lab)
        if supervisor is None:
            break
        os.kill(supervisor, signal.SIGTERM if attempt < 100 else signal.SIGKILL)
        time.sleep(0.05)


def _git_programs() -> str:
    return run(["git", "--exec-path"]).strip()


def _settings() -> dict[str, object]:
    """What its installation has beside programs: the namespace, its settings, and the project C(default)."""

    def named(kind: str, name: str, **rest: object) -> dict[str, object]:
        labels = {"app.kubernetes.io/part-of": "argocd"}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}

    anything = {"group": "*", "kind": "*"}
    project = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {
            "sourceRepos": ["*"],
            "destinations": [{"server": "*", "namespace": "*"}],
            "clusterResourceWhitelist": [anything],
        },
    }
    settings = ("argocd-cm", "argocd-rbac-cm", "argocd-ssh-known-hosts-cm", "argocd-tls-certs-cm")
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *(named("ConfigMap", name) for name in settings),
        # The server, which does not run here, would make its key; the others do not start a cluster's cache without one.
        named("Secret", "argocd-secret", stringData={"server.secretkey": secrets.token_hex(16)}),
        project,
    ]
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def _supervisor(lab: paths.LabPaths) -> int | None:
    return live_process(_pid(lab), str(lab.directory))


def _pid(lab: paths.LabPaths) -> Path:
    return lab.cluster / "argocd.pid"


def main(arguments: list[str]) -> int:
    """Run Argo CD of the lab in the directory C(arguments[0])."""
    # The cluster ends Argo CD with it, so it is the one that imports this module.
    from .cluster import argocd_of
    from .supervisor import keep

    return keep(argocd_of(paths.LabPaths(Path(arguments[0]).name), Progress()).start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
