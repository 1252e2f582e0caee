# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The toolkit's C(config.toml), as a pure function of its text.

By default the toolkit lets any container take all GPUs by setting C(NVIDIA_VISIBLE_DEVICES); images such as CUDA's set
it by themselves, and then the counting and the isolation of a shared node are void. Which ways are open follows from how
devices reach containers (injection.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._adapters.files import HostFiles
from .._formats.toml_read import parse
from .._migration import FORMER
from .._plan import Refused

PATH = "/etc/nvidia-container-runtime/config.toml"
ACCEPT_ENVVAR = "accept-nvidia-visible-devices-envvar-when-unprivileged"
ACCEPT_VOLUME_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
#: What the toolkit does without a file, or with one that does not say (nvidia-container-toolkit 1.20, internal/config/config.go).
_DEFAULTS = {ACCEPT_ENVVAR: True, ACCEPT_VOLUME_MOUNTS: False}
#: Which programs nvidia-container-runtime calls, the first that it finds: names are looked up in PATH, absolute paths are taken as
#: they are (nvidia-container-toolkit internal/oci/runtime_low_level.go, pkg/lookup/executable.go; the defaults: api/config/v1/config.go).
_RUNTIMES = ("nvidia-container-runtime", "runtimes")
_DEFAULT_RUNTIMES = ("runc", "crun")

#: What decides besides whether containers get GPUs at all. The driver root and the mode count for every container
#: (internal/runtime/runtime.go and runtime_factory.go [code]).
ROOT, MODE, NO_CGROUPS = "nvidia-container-cli.root", "nvidia-container-runtime.mode", "nvidia-container-cli.no-cgroups"
#: Among them, why the file cannot be read.
UNREADABLE = "unreadable"
#: Of the other one, C(csv), NVIDIA says that it is for Tegra.
_MODES = ("auto", "legacy", "cdi", "jit-cdi")


def edit(
    text: str | None, accept_envvar: bool, accept_volume_mounts: bool, low_level_runtime: str | None = None
) -> str:
    """Return what C(config.toml) becomes; every other setting, and all comments, stay.

    :param text: of the file, or None; what it does not say has the toolkit's defaults.
    :param accept_envvar: whether unprivileged containers get the devices that C(NVIDIA_VISIBLE_DEVICES) names.
    :param accept_volume_mounts: whether they get those that mounts below /var/run/nvidia-container-devices name.
    :param low_level_runtime: absolute path of the program that nvidia-container-runtime is to call; None leaves that alone.
        CRI-O's packages keep theirs outside of PATH, where the default finds none (gpu-operator#984, nvidia-container-toolkit#1365).
        That the path is enough there is NVIDIA's own installer's way (cmd/nvidia-ctk-installer) and not confirmed on a CRI-O host.
    :raises TomlError: it is not TOML.
    """
    # Not at the top: reading a host needs this module, and no editor.
    from .._formats.toml_edit import restore, set_values, settle

    base = restore(text or "")
    wanted = {ACCEPT_ENVVAR: accept_envvar, ACCEPT_VOLUME_MOUNTS: accept_volume_mounts}
    settings: dict[tuple[str, ...], Any] = {
        (name,): value for name, value in wanted.items() if accepts(base, name) is not value
    }
    runtimes = low_level_runtimes(base)
    if low_level_runtime is not None and runtimes[:1] != [low_level_runtime]:
        settings[_RUNTIMES] = [low_level_runtime, *(name for name in runtimes if name != low_level_runtime)]
    return settle(text, set_values(base, settings)) if settings else base


def accepts(text: str | None, name: str) -> bool:
    """Return what the toolkit does by a file with C(text): its own default where the file does not say.

    :param name: L(ACCEPT_ENVVAR) or L(ACCEPT_VOLUME_MOUNTS).
    :raises TomlError: it is not TOML.
    """
    return parse(text or "").data.get(name, _DEFAULTS[name]) is True


def decisive(text: str | None) -> dict[str, str]:
    """Return those of L(ROOT), L(MODE) and L(NO_CGROUPS) that a file with C(text) sets. Raises TomlError: it is not TOML."""
    document = parse(text or "")
    found = {name: document.get(tuple(name.split("."))) for name in (ROOT, MODE, NO_CGROUPS)}
    return {name: str(value)[:256] for name, value in found.items() if value}


def unreadable(error: str) -> Refused:
    """Return that the file is not TOML."""
    return Refused(PATH, f"it cannot be read: {error}", "Correct the file by hand.")


def refuse_decisive(found: Mapping[str, str], packaged: bool) -> Refused | None:
    """Return which of the settings that L(decisive) found keeps GPUs from all containers of the host, or that they cannot be read.

    :param packaged: whether the driver is installed on the host itself.
    """
    if UNREADABLE in found:
        return unreadable(found[UNREADABLE])
    root, mode = found.get(ROOT, "/"), found.get(MODE, "auto")
    if root.rstrip("/") and packaged:
        reason = f"it is {root}, where containers get the driver's libraries from, and the driver is installed on the host itself"
        return Refused(f"{PATH}, {ROOT}", reason, "Remove the line.")
    if mode not in _MODES:
        reason = (
            f"it is {mode}, and the toolkit has {', '.join(_MODES)}, and csv for Tegra alone: no container gets a GPU"
        )
        return Refused(f"{PATH}, {MODE}", reason, 'Set it to "auto".')
    return None


def low_level_runtimes(text: str | None) -> list[str]:
    """Return the programs, by path or name, of which nvidia-container-runtime calls the first that it finds. Raises TomlError: it is not TOML."""
    found = parse(text or "").get(_RUNTIMES)
    return [str(name) for name in (found if isinstance(found, list) else _DEFAULT_RUNTIMES)]


# The hooks of a host that brings its toolkit to a cluster to whose other nodes the GPU Operator brings it.
# As long as toolkit.enabled is true in the ClusterPolicy, the operator's device plugin has CDI hooks run from the operator's folder on all nodes
# (NVIDIA_CDI_HOOK_PATH, in earlier releases NVIDIA_CTK_PATH: controllers/object_controls.go).

LINKS = {f"{FORMER}/{name}": f"/usr/bin/{name}" for name in ("nvidia-cdi-hook", "nvidia-ctk")}


def read_hooks(files: HostFiles) -> dict[str, bool]:
    """Return what the operator's folder has of them: whether it is a link to the host's, and no program of the operator's."""
    found = {path: files.link_target(path) for path in LINKS}
    return {path: target == LINKS[path] for path, target in found.items() if target is not None or files.exists(path)}
