# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The systemd unit of the host's MPS daemons and the file that tells one instance of it what to do. Pure text."""

from __future__ import annotations

import json

from .._formats.documents import read_record
from .._records import DAEMON, Daemon
from .._runtimes import KUBELETS
from .._schema import encode
from .host import SHM
from .mps_instances import instance

SHM_UNIT = "run-nvidia-mps-shm.mount"
FOLDER = "/etc/gpufleet/mps"
_KUBELETS = " ".join(KUBELETS)
#: How long a daemon that has just started may take to answer, on a host that is busy booting.
READY_SECONDS = 60.0

#: nvidia-cuda-mps-control forks; what is set afterwards is set again after a crash, because it is part of the start.
UNIT_TEXT = """\
# Managed by gpufleet.nvidia, module mps.
[Unit]
Description=NVIDIA MPS control daemon (%i)
After=nvidia-persistenced.service nvidia-fabricmanager.service gpufleet-mig.service gpufleet-sharing.service
Before={kubelets}
ConditionPathExists=/dev/nvidiactl

[Service]
Type=forking
EnvironmentFile=/etc/gpufleet/mps/%i.env
ExecStartPre=/usr/bin/install -d -m 0755 ${{CUDA_MPS_PIPE_DIRECTORY}} ${{CUDA_MPS_LOG_DIRECTORY}}
ExecStart=/usr/bin/nvidia-cuda-mps-control -d $MPS_OPTIONS
ExecStartPost={python} {program} mps-settings %i
ExecStop={python} {program} mps-quit %i
Restart=on-failure
RestartSec=2
# Longer than the daemon may take to answer and to be told its settings.
TimeoutStartSec=180
TimeoutStopSec=60
# A daemon that dies takes every client of the GPU with it.
OOMScoreAdjust=-900
Nice=-5

[Install]
WantedBy=multi-user.target
"""

#: What pods get of MPS as /dev/shm: memory of the servers' own, as the device plugin's chart mounts it, and not the host's.
SHM_UNIT_TEXT = f"""\
# Managed by gpufleet.nvidia, module mps.
[Unit]
Description=Shared memory of MPS servers and their clients in pods
Before={_KUBELETS}

[Mount]
What=tmpfs
Where={SHM}
Type=tmpfs
Options=nosuid,nodev,noexec,mode=1777,size=50%

[Install]
WantedBy=multi-user.target
"""

#: For the instances of UNIT whose clients are pods: their servers must see the same shared memory.
SHM_DROP_IN_TEXT = f"""\
# Managed by gpufleet.nvidia, module mps.
[Unit]
RequiresMountsFor={SHM}

[Service]
BindPaths={SHM}:/dev/shm
"""

#: How the releases with a multi-user server spell the option: 580 and 615, then 555, whose option NVIDIA's MPS documentation names.
MULTI_USER_OPTIONS = ("-M", "-multiuser-server")


def unit_text(program: str, python: str = "/usr/bin/python3") -> str:
    """Return the text of C(gpufleet-mps@.service)."""
    return UNIT_TEXT.format(program=program, python=python, kubelets=_KUBELETS)


def environment_path(name: str) -> str:
    return f"{FOLDER}/{name}.env"


def shm_drop_in(name: str) -> str:
    """Return the file, below systemd's folder, that gives the daemon C(name) the shared memory of pods."""
    return f"{instance(name)}.d/shm.conf"


def environment_text(daemon: Daemon, multi_user: str = MULTI_USER_OPTIONS[0]) -> str:
    """Return the environment file of one instance. The comment holds the whole daemon, so that it can be read back. C(multi_user): how this release
    spells the option of protocol 2.
    """
    return (
        "# Managed by gpufleet.nvidia, module mps.\n"
        f"# {json.dumps(encode(daemon), sort_keys=True)}\n"
        f"CUDA_MPS_PIPE_DIRECTORY={daemon.pipe_directory}\n"
        f"CUDA_MPS_LOG_DIRECTORY={daemon.log_directory}\n"
        f"CUDA_VISIBLE_DEVICES={','.join(daemon.devices)}\n"
        f"CUDA_MPS_PROTOCOL_VERSION={daemon.protocol}\n"
        f"MPS_OPTIONS={_options(daemon, multi_user)}\n"
    )


def _options(daemon: Daemon, multi_user: str) -> str:
    """Multi-user mode is another letter in each protocol."""
    if daemon.protocol == 3:
        return "-p 3 -m" if daemon.multi_user else "-p 3"
    return multi_user if daemon.multi_user else ""


def daemon_of(text: str) -> Daemon | None:
    """Return the daemon that an environment file of ours describes, or None when it is not ours."""
    for line in text.splitlines():
        if line.startswith("# {"):
            found: Daemon | None = read_record(DAEMON, line[2:])
            return found
    return None


def is_changed(text: str, daemon: Daemon) -> bool:
    """Whether somebody changed the variables of an environment file that described C(daemon)."""
    ours = [_variables(environment_text(daemon, option)) for option in MULTI_USER_OPTIONS]
    return _variables(text) not in ours


def _variables(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
