# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""k3s on a lab host, as far as its container runtime goes: at every start it looks for NVIDIA's runtime where k3s does, renders the template by Go's
engine with the values that k3s has, and becomes the real containerd. There is no kubelet and no API server.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.nvidia.tests.lab import container_tools

#: In the shape of the template "base" of k3s, and with its fields; its text is longer.
BASE = """version = {version}
root = {{{{ printf "%q" .NodeConfig.Containerd.Root }}}}
state = {{{{ printf "%q" .NodeConfig.Containerd.State }}}}
[grpc]
  address = {{{{ printf "%q" .NodeConfig.Containerd.Address }}}}
[plugins."{section}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."{section}".containerd.runtimes.runc.options]
  SystemdCgroup = {{{{ .SystemdCgroup }}}}
{{{{ range $k, $v := .ExtraRuntimes }}}}
[plugins."{section}".containerd.runtimes."{{{{$k}}}}"]
  runtime_type = "{{{{$v.RuntimeType}}}}"
[plugins."{section}".containerd.runtimes."{{{{$k}}}}".options]
  BinaryName = "{{{{$v.BinaryName}}}}"
  SystemdCgroup = {{{{ $.SystemdCgroup }}}}
{{{{ end }}}}"""
_SHARE = "/usr/local/share/k3s"
_UNIT = "/etc/systemd/system/k3s.service"
_PROGRAM = f'''#!/usr/bin/python3
import json, os, subprocess, sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("k3s version v1.33.5+k3s1 (fab4d0a7)"))
if sys.argv[1:] != ["server"]:
    sys.exit(print("   --default-runtime value  (agent/runtime) Set the default runtime in containerd"))
folder = "/var/lib/rancher/k3s/agent/etc/containerd"
os.makedirs(folder, exist_ok=True)
there = [f"{{place}}/nvidia-container-runtime" for place in ("/usr/local/nvidia/toolkit", "/usr/bin")]
found = next((path for path in there if os.path.exists(path)), None)
extra = {{"nvidia": {{"RuntimeType": "io.containerd.runc.v2", "BinaryName": found}}}} if found else {{}}
base = open("{_SHARE}/base.tmpl").read()
own = f"{{folder}}/config-v3.toml.tmpl"
places = {{"Root": "/var/lib/rancher/k3s/agent/containerd", "State": "/run/k3s/containerd", "Address": "/run/k3s/containerd/containerd.sock"}}
given = {{
    "template": open(own).read() if os.path.exists(own) else base,
    "base": base,
    "data": {{"SystemdCgroup": False, "ExtraRuntimes": extra, "NodeConfig": {{"Containerd": places}}}},
}}
done = subprocess.run(["{_SHARE}/render"], input=json.dumps(given), capture_output=True, text=True, check=True)
with open(f"{{folder}}/config.toml", "w") as file:
    file.write(done.stdout)
os.execv("{_SHARE}/containerd", ["containerd", "--config", f"{{folder}}/config.toml"])
'''
_SERVICE = """[Service]
Type=notify
KillMode=process
ExecStart=/usr/local/bin/k3s server
TimeoutStartSec=60

[Install]
WantedBy=multi-user.target
"""


def install(lab: Any, host: str, release: str = "2.1.5") -> None:
    """Start it on a host; C(release): of its containerd."""
    lab.sh(host, f"mkdir -p {_SHARE}")
    for path, content in {
        f"{_SHARE}/containerd": container_tools.containerd(release).read_bytes(),
        f"{_SHARE}/render": container_tools.template_renderer().read_bytes(),
        f"{_SHARE}/base.tmpl": BASE.format(version=3, section="io.containerd.cri.v1.runtime"),
        "/usr/local/bin/k3s": _PROGRAM,
        _UNIT: _SERVICE,
    }.items():
        lab.write(host, path, content)
    lab.sh(
        host,
        f"chmod 755 {_SHARE}/* /usr/local/bin/k3s; systemctl daemon-reload; systemctl enable --now k3s.service",
    )


def remove(lab: Any, host: str) -> None:
    lab.sh(
        host,
        f"systemctl disable --now k3s.service; rm -rf {_SHARE} {_UNIT} /usr/local/bin/k3s /var/lib/rancher; systemctl daemon-reload",
    )
