# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd's files with the keys, spellings and order that Kubespray writes, made by hand: 2.26 and 2.27 with containerd 1.7, 2.28 and 2.29 with 2.x.

Up to 2.28 the first letters of runc's options are lower case.
"""

from __future__ import annotations

_TEXT = """version = {version}

root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0

[grpc]
  max_recv_message_size = 16777216
  max_send_message_size = 16777216

[debug]
  address = ""
  level = "info"

[plugins]
  [plugins."{section}"]
    {cri}
    max_container_log_line_size = 16384
    enable_unprivileged_ports = false
    enable_unprivileged_icmp = false
    enable_selinux = false
    disable_apparmor = false
    tolerate_missing_hugetlb_controller = true
    disable_hugetlb_controller = true

    [plugins."{section}".containerd]
      default_runtime_name = "runc"
      {containerd}
      [plugins."{section}".containerd.runtimes]
        [plugins."{section}".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
          runtime_engine = ""
          runtime_root = ""
          base_runtime_spec = "/etc/containerd/cri-base.json"

          [plugins."{section}".containerd.runtimes.runc.options]
            {systemd} = true
            {binary} = "/usr/local/bin/runc"
"""
V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"


def _text(version, section, systemd, binary):
    old = version == 2
    return _TEXT.format(
        version=version,
        section=section,
        systemd=systemd,
        binary=binary,
        cri='sandbox_image = "registry.k8s.io/pause:3.10"' if old else "image_pull_progress_timeout = '5m'",
        containerd='snapshotter = "overlayfs"\n      discard_unpacked_layers = true' if old else "",
    )


#: By release: containerd's version, and the file.
FILES = {
    "2.26": ((1, 7, 22), _text(2, V2, "systemdCgroup", "binaryName")),
    "2.27": ((1, 7, 24), _text(2, V2, "systemdCgroup", "binaryName")),
    "2.28": ((2, 0, 5), _text(3, V3, "systemdCgroup", "binaryName")),
    "2.29": ((2, 1, 4), _text(3, V3, "SystemdCgroup", "BinaryName")),
}
#: What releases of ours before this rule appended to the file of 2.28, beside runc's own spellings.
BOTH = f"""
# gpufleet.nvidia: begin
[plugins."{V3}".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "/etc/containerd/cri-base.json"

[plugins."{V3}".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
  systemdCgroup = true
  binaryName = "/usr/local/bin/runc"
  SystemdCgroup = false
# gpufleet.nvidia: end
"""
BOTH_V2 = BOTH.replace(V3, V2)
