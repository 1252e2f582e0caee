# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read and write the CDI specification of the GPUs, which NVIDIA's own units do not follow through a change of MIG (host.md, section 8).

It is written by C(nvidia-ctk cdi generate) with the settings of C(nvidia-cdi-refresh.service), whether or not that unit
is there: at boot, other units wait for the file, and restarting a unit from within a unit can wait for ever.

The specification names the device nodes that are there, and nothing but a first user guarantees those that belong to no GPU. So they are created
first, as the unit of 1.20.1 does (nvidia-container-toolkit, deployments/systemd/nvidia-cdi-refresh.service [code]).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .._formats.cdi import (
    DEFAULT_PATH,
    FOLDERS,
    ExpectedDevices,
    Specification,
    name_doubles,
    parse_specification,
    shape_specification,
)
from .command import CommandError, find, run
from .files import HostFiles, read_bytes, remove
from .host_reader import HostReader

#: What every CUDA process opens; C(nvidia-modeset) is for displays.
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
#: Where there are other nodes: WSL, and Tegra with its own driver.
_OTHER_NODES = ("/dev/dxg", "/sys/module/nvgpu")
#: In the toolkit from 1.13.0 on, with --load-kernel-modules from 1.13.2 on [code].
_CREATE_NODES = ["nvidia-ctk", "system", "create-device-nodes", "--control-devices"]
_UNKNOWN_COMMAND = "No help topic"
#: Seconds before each further try of C(nvidia-ctk cdi generate).
PAUSES = (1.0, 2.0, 4.0)
#: Seconds in which somebody else who writes a specification has renamed it.
_RENAMED = 1.0
_GPUS = "/proc/driver/nvidia/gpus"
_MINOR = re.compile(r"^Device Minor:\s*(\d{1,3})\s*$", re.MULTILINE)
_SETTINGS = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
_OUTPUT = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"


def available() -> bool:
    """Return whether the container toolkit, which writes the specification, is installed."""
    return find("nvidia-ctk") is not None


def settings(files: HostFiles | None = None) -> dict[str, str]:
    """Return the variables that the site set for NVIDIA's own refresh unit."""
    found = {}
    for line in ((files or HostFiles()).read(_SETTINGS) or "").splitlines():
        name, separator, value = line.strip().partition("=")
        if separator and not name.startswith(("#", ";")):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def path(files: HostFiles | None = None) -> str:
    """Return where the specification is."""
    found = settings(files).get(_OUTPUT) or DEFAULT_PATH
    return f"/var{found}" if found.startswith("/run/") else found


def read_cdi(
    source: HostReader, gpus: Sequence[Mapping[str, Any]] | None, driver: str | None, folders: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the part C(cdi) of the facts.

    :param gpus: the part C(gpus) of the facts, or None where NVML does not answer: then nothing can be compared.
    :param folders: those that a runtime reads beside, or in place of, L(FOLDERS).
    """
    own, files = path(source.files), source.files
    nodes = {} if any(map(files.exists, _OTHER_NODES)) else {node: files.device_major(node) for node in CONTROL_NODES}
    expected = None if gpus is None else ExpectedDevices(gpus, driver, nodes)
    names = [f"{folder}/{name}" for folder in dict.fromkeys((*FOLDERS, *folders)) for name in files.names(folder)]
    found: list[dict[str, Any]] = []
    read: list[Specification] = []
    for one in (*names, *(() if own in names or not files.exists(own) else (own,))):
        if not one.endswith((".json", ".yaml", ".yml")):
            continue
        text = files.read(one)
        try:
            if text is None:
                raise ValueError("it cannot be read")
            specification = parse_specification(one, text)
            absent = [hook for hook in specification.hooks if hook.startswith("/") and not files.exists(hook)]
            found.append(shape_specification(specification, one == own, expected, absent))
            read.append(specification)
        except ValueError as error:
            source.note(f"cdi[{len(found)}].kind", f"{one}: {error}")
            found.append({"path": one, "kind": None, "devices": None, "version": None, "own": one == own})
    name_doubles(found, read)
    return found


def missing_nodes() -> tuple[str, ...]:
    """Return the device nodes that a specification has to name, belong to no GPU, and are not there."""
    if any(map(os.path.exists, _OTHER_NODES)):
        return ()
    return tuple(node for node in CONTROL_NODES if not os.path.exists(node))


def create_nodes() -> None:
    """Create the device nodes that are missing, and load the kernel modules behind them. Raises CommandError: some are missing nevertheless."""
    if not missing_nodes():
        return
    command = [*_CREATE_NODES, "--load-kernel-modules"]
    result = run(command, timeout=120.0)
    if _UNKNOWN_COMMAND in result.stdout + result.stderr:
        return
    if missing_nodes():
        # As NVIDIA's unit does: with new modules on disk and old ones loaded nothing can be loaded, and nodes can be created.
        run(_CREATE_NODES, timeout=120.0)
    missing = missing_nodes()
    if missing:
        raise CommandError(
            command,
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} still missing, so the CDI specification lacks what CUDA needs. Run "
            "modprobe nvidia-uvm, look in dmesg for why it cannot be loaded, fix that and run again",
            result.stderr,
        )


def refresh() -> str:
    """Write the specification anew, with the device nodes that it needs, and return where it is. Raises CommandError: the toolkit could not write it,
    or, behind that, not create the nodes.
    """
    target = path()
    try:
        create_nodes()
    finally:
        # One without a node is better than one of GPUs that are gone.
        _generate(target)
    return target


def _generate(target: str) -> None:
    """Have the toolkit write what is there now, once more where it could not: for a moment after a reload not all is there yet that it looks for.
    Raises CommandError: the last try failed, too; with what of the driver is still missing.
    """
    command = ["nvidia-ctk", "cdi", "generate", f"--output={target}"]
    environment = {name: value for name, value in settings().items() if name != _OUTPUT}
    before = {path for path, _time, _size in _unfinished(target)}
    for pause in (*PAUSES, None):
        try:
            result = run(command, environment=environment, timeout=120.0, allowed=(0,))
            if read_bytes(target):
                return
            raise CommandError(command, f"it reported success but wrote nothing to {target}", result.stderr)
        except CommandError as error:
            # What it could not write whole it leaves (container-device-interface, Spec.write [code]): on a full disk for ever.
            left = {one for one in _unfinished(target) if one[0] not in before}
            if left:
                time.sleep(_RENAMED)
            for path, _time, _size in left & _unfinished(target):
                remove(path)
            if pause is not None:
                time.sleep(pause)
                continue
            missing = (*missing_nodes(), *_missing_gpus(HostFiles()))
            still = f"; still missing: {', '.join(missing)}" if missing else ""
            reason = f"{error.reason}, {len(PAUSES) + 1} times in {sum(PAUSES):g} s{still}"
            raise CommandError(error.command, reason, error.output) from error


def _unfinished(target: str) -> set[tuple[str, float | None, int | None]]:
    """Return the files that are not renamed yet to what they are written for, with the time and the size of the last write."""
    files = HostFiles()
    return {
        (path, files.modified(path), files.size(path)) for path in files.glob(f"{os.path.dirname(target)}/spec.*.tmp")
    }


def _missing_gpus(files: HostFiles) -> list[str]:
    """Return the device nodes of the driver's GPUs that are not there."""
    texts = (files.read(f"{_GPUS}/{name}/information") or "" for name in files.names(_GPUS))
    nodes = [f"/dev/nvidia{match.group(1)}" for match in map(_MINOR.search, texts) if match]
    return [node for node in nodes if not files.exists(node)]
