# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real Kubernetes control plane for tests: etcd, kube-apiserver and, where they are wanted, the scheduler and the
controllers of workloads and budgets, on the loopback interface. There are no nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

_BUILD = Path(__file__).parent / "build.sh"
_STARTS_WITHIN = 120.0
#: The controller of nodes is not among them: it would take nodes without kubelets for dead.
_CONTROLLERS = "replicaset-controller,daemonset-controller,disruption-controller"


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane.

    :param kubeconfig: of its administrator.
    :param url: of the API server.
    :param folder: where the binaries are.
    :param server: process id of kube-apiserver.
    :param operator: kubeconfig of the user C(operator), who may do nothing that no role gives.
    """

    kubeconfig: Path
    url: str
    folder: Path
    server: int
    operator: Path

    def pause(self) -> None:
        """Let the API server answer nobody, as behind a network that is cut off."""
        os.kill(self.server, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.server, signal.SIGCONT)

    def allow_operator(self, role: str) -> None:
        """Give the user C(operator) a ClusterRole, as YAML, and nothing else."""
        name = yaml.safe_load(role)["metadata"]["name"]
        group = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "operator"}],
        }
        self.kubectl("apply", "-f", "-", text=f"{role}\n---\n{yaml.safe_dump(binding)}")

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; C(text) is its standard input."""
        command = [str(self.folder / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return done


def binaries() -> Path:
    """Return the folder with the programs of the control plane and kubectl; they are built once, which takes minutes."""
    done = subprocess.run([_BUILD], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip().splitlines()[-1])


@contextlib.contextmanager
def control_plane(workloads: bool = False) -> Iterator[ControlPlane]:
    """Start a control plane; end it, and remove its data, on leaving.

    :param workloads: whether ReplicaSets and DaemonSets get pods, pods get nodes, and PodDisruptionBudgets are kept.
    """
    folder = binaries()
    data = Path(tempfile.mkdtemp(prefix="gpufleet-control-plane-"))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        etcd, peer, secure = _free_ports(3)
        processes.append(_start(data, "etcd", [str(folder / "etcd"), *_etcd(data, etcd, peer)]))
        token = secrets.token_hex(16)
        processes.append(
            _start(data, "kube-apiserver", [str(folder / "kube-apiserver"), *_apiserver(data, etcd, secure, token)])
        )
        plane = ControlPlane(
            _kubeconfig(data / "kubeconfig", data, secure, token),
            f"https://127.0.0.1:{secure}",
            folder,
            processes[1].pid,
            _kubeconfig(data / "kubeconfig-operator", data, secure, f"{token}-operator"),
        )
        _wait(plane, token, data, processes)
        if workloads:
            # Nothing serves anything: two control planes may be beside each other.
            common = [f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false", "--secure-port=0"]
            manager = [str(folder / "kube-controller-manager"), *common, f"--controllers={_CONTROLLERS}"]
            processes.append(_start(data, "kube-controller-manager", manager))
            processes.append(_start(data, "kube-scheduler", [str(folder / "kube-scheduler"), *common]))
        yield plane
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()
            process.wait()
        shutil.rmtree(data, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _number in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


def _start(data: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    with open(data / f"{name}.log", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=data)


def _etcd(data: Path, client: int, peer: int) -> list[str]:
    return [
        f"--data-dir={data / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    ]


def _apiserver(data: Path, etcd: int, port: int, token: str) -> list[str]:
    users = [f'{token},admin,admin,"system:masters"', f"{token}-operator,operator,operator"]
    (data / "tokens.csv").write_text("\n".join(users) + "\n")
    key = data / "service-account.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--cert-dir={data / 'certificates'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--token-auth-file={data / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        # There is no controller that would make service accounts, and no node that would take a token.
        "--disable-admission-plugins=ServiceAccount",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://control-plane.test",
        "--service-cluster-ip-range=10.96.0.0/16",
    ]


def _kubeconfig(path: Path, data: Path, port: int, token: str) -> Path:
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(data / "certificates" / "apiserver.crt"),
    }
    context = {"cluster": "test", "user": "admin"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    path.write_text(json.dumps(document))
    os.chmod(path, 0o600)
    return path


def _wait(plane: ControlPlane, token: str, data: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    context = ssl._create_unverified_context()
    request = urllib.request.Request(f"{plane.url}/readyz", headers={"Authorization": f"Bearer {token}"})
    until = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < until:
        if any(process.poll() is not None for process in processes):
            break
        try:
            with urllib.request.urlopen(request, context=context, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    logs = "\n".join(
        f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(data.glob("*.log"))
    )
    raise RuntimeError(f"The control plane did not start within {_STARTS_WITHIN:.0f} s:\n{logs}")
