# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real Kubernetes control plane: etcd, kube-apiserver, all controllers and the scheduler.

A lab with nodes has one at addresses of its own (M(nodes.cluster)); tests that need no node have one on the loopback
interface for as long as they run (C(control_plane)).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import re
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hosts.progress import Progress

from . import programs

_STARTS_WITHIN = 120.0
#: By release, the gates that are other than by default: extended resources by DRA (KEP-5004) and shares of a device (KEP-5075) are off in 1.34,
#: and on in the newest.
FEATURE_GATES: Mapping[str, Mapping[str, bool]] = {
    programs.KUBERNETES: {},
    programs.OLDEST_KUBERNETES: {"DRAExtendedResource": True, "DRAConsumableCapacity": True},
}
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Endpoints:
    """Where the parts of a control plane listen."""

    address: str
    secure: int
    etcd: int
    peer: int
    services: str = "10.96.0.0/16"

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.secure}"


@dataclass(frozen=True)
class ControlPlane:
    """A control plane and what it keeps in its folder.

    :param data: keys, tokens, logs and the data of etcd.
    :param folder: where the programs are.
    :param controllers: whether they run, and the scheduler.
    :param gates: that are other than by default, and whether they are on.
    """

    data: Path
    folder: Path
    endpoints: Endpoints
    controllers: bool = True
    gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        """Of its administrator."""
        return self.data / "kubeconfig"

    @property
    def operator(self) -> Path:
        """Of the user C(operator), who may do nothing that no role gives."""
        return self.data / "kubeconfig-operator"

    @property
    def url(self) -> str:
        return self.endpoints.url

    def node_kubeconfig(self, node: str) -> str:
        """The text of the kubeconfig with which the kubelet of C(node) signs in."""
        server, token = self.endpoints.url, f"{self._token()}-{node}"
        return json.dumps(_kubeconfig(server, (self.data / "certificates" / "ca.crt").read_text(), token))

    def pause(self) -> None:
        """Let the API server answer nobody, as behind a network that is cut off."""
        os.kill(self._server(), signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._server(), signal.SIGCONT)

    def allow_operator(self, roles: str) -> None:
        """Give the user C(operator) the Roles and ClusterRoles of some YAML documents, and nothing else."""
        import yaml

        group = "rbac.authorization.k8s.io"
        documents = []
        for role in yaml.safe_load_all(roles):
            kind, metadata = role["kind"], role["metadata"]
            if "namespace" in metadata:
                namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": metadata["namespace"]}}
                documents.append(namespace)
            binding = {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": kind, "name": metadata["name"]},
                "subjects": [{"apiGroup": group, "kind": "User", "name": "operator"}],
            }
            documents += [role, binding]
        self.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(documents))

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; C(text) is its standard input."""
        command = [str(self.folder / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=180)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return done

    def enabled(self, gate: str) -> bool:
        """Whether the API server says that a feature gate is on."""
        metrics = self.kubectl("get", "--raw", "/metrics").stdout
        (value,) = re.findall(rf'^kubernetes_feature_enabled{{name="{gate}",[^}}]*}} ([01])$', metrics, re.MULTILINE)
        return value == "1"

    def prepare(self, nodes: Sequence[str] = ()) -> None:
        """Write keys, tokens and kubeconfigs."""
        keys = self.data / "certificates"
        keys.mkdir(parents=True)
        self.data.chmod(0o700)
        _certificates(keys, self.endpoints)
        token = secrets.token_hex(16)
        users = [f'{token},admin,admin,"system:masters"', f"{token}-operator,operator,operator"]
        users += [f'{token}-{node},system:node:{node},{node},"system:nodes"' for node in nodes]
        (self.data / "tokens.csv").write_text("\n".join(users) + "\n")
        authority = (keys / "ca.crt").read_text()
        for path, secret in ((self.kubeconfig, token), (self.operator, f"{token}-operator")):
            path.write_text(json.dumps(_kubeconfig(self.endpoints.url, authority, secret)))
            path.chmod(0o600)

    def start(self) -> list[subprocess.Popen[bytes]]:
        """Start the programs; they end when the calling process ends."""
        common = [f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0", *self._gates()]
        keys = self.data / "certificates"
        manager = [
            *common,
            f"--root-ca-file={keys / 'ca.crt'}",
            f"--service-account-private-key-file={keys / 'service-account.key'}",
            "--use-service-account-credentials=true",
        ]
        processes = [self._start("etcd", self._etcd()), self._start("kube-apiserver", self._apiserver())]
        self._wait(processes)
        if self.controllers:
            processes += [self._start("kube-controller-manager", manager), self._start("kube-scheduler", common)]
        return processes

    def _start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with open(self.data / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [str(self.folder / name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.data,
                preexec_fn=end_with_parent,
            )
        (self.data / f"{name}.pid").write_text(f"{process.pid}\n")
        return process

    def _etcd(self) -> list[str]:
        client = f"http://{self.endpoints.address}:{self.endpoints.etcd}"
        peer = f"http://{self.endpoints.address}:{self.endpoints.peer}"
        return [
            f"--data-dir={self.data / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ]

    def _apiserver(self) -> list[str]:
        keys = self.data / "certificates"
        # Without the controller that makes service accounts no pod would be admitted.
        alone = ["--disable-admission-plugins=ServiceAccount"]
        # 1.37 announces no address of the loopback interface.
        announced = ["--endpoint-reconciler-type=none"] if self.endpoints.address.startswith("127.") else []
        return [
            *([] if self.controllers else alone),
            *announced,
            *self._gates(),
            f"--etcd-servers=http://{self.endpoints.address}:{self.endpoints.etcd}",
            f"--bind-address={self.endpoints.address}",
            f"--advertise-address={self.endpoints.address}",
            f"--secure-port={self.endpoints.secure}",
            f"--tls-cert-file={keys / 'server.crt'}",
            f"--tls-private-key-file={keys / 'server.key'}",
            f"--client-ca-file={keys / 'ca.crt'}",
            f"--kubelet-client-certificate={keys / 'client.crt'}",
            f"--kubelet-client-key={keys / 'client.key'}",
            # Their names are known to nobody but the cluster.
            "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={self.data / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--service-account-key-file={keys / 'service-account.key'}",
            f"--service-account-signing-key-file={keys / 'service-account.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={self.endpoints.services}",
        ]

    def _gates(self) -> list[str]:
        return [f"--feature-gates={name}={str(on).lower()}" for name, on in self.gates.items()]

    def _token(self) -> str:
        return (self.data / "tokens.csv").read_text().partition(",")[0]

    def _server(self) -> int:
        return int((self.data / "kube-apiserver.pid").read_text())

    def _wait(self, processes: list[subprocess.Popen[bytes]]) -> None:
        """Wait until the API server is ready."""
        if not self.ready(_STARTS_WITHIN, processes):
            stop(processes)
            logs = "\n".join(
                f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                for path in sorted(self.data.glob("*.log"))
            )
            raise RuntimeError(f"The control plane did not start within {_STARTS_WITHIN:.0f} s:\n{logs}")

    def ready(self, within: float = 5.0, processes: Sequence[subprocess.Popen[bytes]] = ()) -> bool:
        """Whether the API server says so within some seconds."""
        context = ssl.create_default_context(cafile=str(self.data / "certificates" / "ca.crt"))
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {self._token()}"})
        until = time.monotonic() + within
        while time.monotonic() < until:
            if any(process.poll() is not None for process in processes):
                return False
            try:
                with urllib.request.urlopen(request, context=context, timeout=5) as answer:
                    if answer.status == 200:
                        return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        return False


@contextlib.contextmanager
def control_plane(
    version: str = programs.KUBERNETES, gates: Mapping[str, bool] | None = None, controllers: bool = False
) -> Iterator[ControlPlane]:
    """Start an API server alone on free loopback ports; end it, and remove its data, on leaving.

    :param controllers: whether the scheduler and the controllers run, too.
    :param gates: in place of those of the lab's nodes.
    """
    data = Path(tempfile.mkdtemp(prefix="gpufleet-control-plane-"))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        endpoints = Endpoints("127.0.0.1", *_free_ports(3))
        folder = programs.kubernetes(Progress(), version)
        chosen = FEATURE_GATES[version] if gates is None else gates
        plane = ControlPlane(data, folder, endpoints, controllers=controllers, gates=chosen)
        plane.prepare()
        processes = plane.start()
        yield plane
    finally:
        stop(processes)
        shutil.rmtree(data, ignore_errors=True)


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the programs of a control plane, at once: an API server in order waits for its clients, and nothing is kept."""
    for process in reversed(processes):
        process.kill()
    for process in processes:
        process.wait()


def end_with_parent() -> None:
    """For C(preexec_fn): nothing of a lab runs unattended."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _number in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


def _certificates(folder: Path, endpoints: Endpoints) -> None:
    """An authority, the API server's certificate, and the one with which it signs in to kubelets."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    openssl("genrsa", "-out", "service-account.key", "2048")
    new = ("req", "-newkey", "rsa:2048", "-noenc")
    authority = ("-addext", "keyUsage=critical,keyCertSign,digitalSignature")
    openssl(*new, "-x509", "-days", "3650", "-subj", "/CN=lab", *authority, "-keyout", "ca.key", "-out", "ca.crt")
    names = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1"
    extensions = {"server": f"subjectAltName={names},IP:{endpoints.address}", "client": "extendedKeyUsage=clientAuth"}
    subjects = {"server": "/CN=kube-apiserver", "client": "/O=system:masters/CN=kube-apiserver"}
    for name, extension in extensions.items():
        openssl(*new, "-subj", subjects[name], "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (folder / f"{name}.cnf").write_text(f"{extension}\n")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "3650", "-extfile", f"{name}.cnf")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")


def _kubeconfig(server: str, authority: str, token: str) -> dict[str, object]:
    data = base64.b64encode(authority.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority-data": data}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "user"}}],
        "current-context": "lab",
    }
