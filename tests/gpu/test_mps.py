# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An MPS daemon of the test's own, in a pipe directory of its own, and CUDA clients whose memory limit is seen to hold.

The host keeps its settings: the GPU stays in its compute mode, and no other daemon is asked for anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import mps_control
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import Daemon
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import apply as sharing_apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.mps_units import environment_text

CLIENT = Path(__file__).with_name("cuda_client.py")
LIMIT_MIB = 2048
#: Below the limit with what a context takes by itself; above it; and both together below what the GPU has free.
BELOW, ABOVE = 1024, 3072
FREE_MIB = 8192
SUCCESS, OUT_OF_MEMORY = 0, 2


@pytest.fixture(scope="module")
def gpu(nvidia_smi):
    """Return the UUID of a GPU that a test may compute on."""
    if not mps_control.installed():
        pytest.skip("nvidia-cuda-mps-control is not installed")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.skip(f"the CUDA driver library cannot be loaded: {error}")
    reasons = []
    for row in nvidia_smi("uuid", "compute_mode", "mig.mode.current", "memory.free"):
        if row["compute_mode"] != "Default":
            reasons.append(f"{row['uuid']} is in compute mode {row['compute_mode']}")
        elif row["mig.mode.current"] == "Enabled":
            reasons.append(f"{row['uuid']} is in MIG mode")
        elif int(row["memory.free"]) < FREE_MIB:
            reasons.append(f"{row['uuid']} has {row['memory.free']} MiB free, and the test wants {FREE_MIB}")
        else:
            return row["uuid"]
    pytest.skip("; ".join(reasons))


@pytest.fixture(scope="module", params=[2, 3], ids=["protocol 2", "protocol 3"])
def daemon(request, gpu):
    """Start a daemon as the unit of the host does, with its options and settings; end it afterwards."""
    if request.param == 3 and not mps_control.has_protocol_3():
        pytest.skip("this release of nvidia-cuda-mps-control does not speak protocol 3")
    if request.param == 3 and os.geteuid() != 0:
        pytest.skip("multi-user mode of protocol 3 needs root")
    # Short: a socket's path holds 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    made = Daemon(
        name="test",
        devices=(gpu,),
        pipe_directory=str(folder / "pipe"),
        log_directory=str(folder / "log"),
        limits_mib=(LIMIT_MIB,),
        percentage=50.0,
        priority=0,
        multi_user=request.param == 3,
        protocol=request.param,
    )
    variables = dict(line.split("=", 1) for line in environment_text(made).splitlines() if not line.startswith("#"))
    options = variables.pop("MPS_OPTIONS").split()
    for name in ("pipe", "log"):
        (folder / name).mkdir(mode=0o755)
    folder.chmod(0o755)
    try:
        environment = {**os.environ, **variables}
        subprocess.run([mps_control.PROGRAM, "-d", *options], env=environment, check=True, timeout=120)
        _settle(made, folder)
        yield made
    finally:
        with contextlib.suppress(mps_control.MpsError):
            sharing_apply.control_of(made).quit()
        shutil.rmtree(folder, ignore_errors=True)


def _settle(made, folder):
    try:
        sharing_apply.apply_settings(made)
    except mps_control.MpsError as error:
        log = folder / "log" / "control.log"
        pytest.fail(f"{error}\n{log.read_text(errors='replace') if log.exists() else 'no control.log'}")


@contextlib.contextmanager
def client(daemon, *sizes):
    """Run a CUDA client of the daemon that allocates C(sizes), and holds them; yield what it said."""
    pipe = daemon.pipe_directory
    if daemon.protocol == 3:
        pipe = f"{pipe}/{mps_control.SERVER}"
    # The devices of a client are those of its server, which are already the chosen ones: 0 is the first of them.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    process = subprocess.Popen(
        [sys.executable, str(CLIENT), *map(str, sizes)],
        env={**environment, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": daemon.log_directory},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        answer = json.loads(line)
        assert not any(answer["steps"].values()), answer
        yield answer
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def clients(daemon):
    control = sharing_apply.control_of(daemon)
    return {pid for server in control.servers() for pid in control.clients(server)}


def test_the_limit_of_a_client_holds(daemon):
    with client(daemon, ABOVE, BELOW) as answer:
        assert answer["allocations"] == [OUT_OF_MEMORY, SUCCESS]
        assert answer["pid"] in clients(daemon), "without MPS there would be no limit either"
        assert answer["devices"] == 1


def test_each_client_has_the_limit_for_itself(daemon):
    with client(daemon, BELOW) as one, client(daemon, BELOW, BELOW) as other:
        assert one["allocations"] == [SUCCESS]
        assert other["allocations"] == [SUCCESS, OUT_OF_MEMORY], "1 GiB and 1 GiB and a context are more than 2 GiB"
        assert {one["pid"], other["pid"]} <= clients(daemon)


def test_without_the_daemon_the_same_allocation_succeeds(daemon, gpu):
    """The proof that it was the limit that refused it, and not the GPU."""
    nowhere = f"{daemon.pipe_directory}/nowhere"
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": nowhere, "CUDA_VISIBLE_DEVICES": gpu}
    done = subprocess.run(
        [sys.executable, str(CLIENT), str(ABOVE)],
        env=environment,
        input="",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(done.stdout)["allocations"] == [SUCCESS]


def test_settings_are_read_back_from_the_daemon(daemon):
    control = sharing_apply.control_of(daemon)
    assert control.responds()
    assert control.thread_percentage() == 50.0
    assert control.memory_limit(0) == "2G"
    assert control.priority() == "0"
