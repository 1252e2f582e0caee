# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The toolkit's C(config.toml), as a pure function of its text.

By default the toolkit lets any container take all GPUs by setting C(NVIDIA_VISIBLE_DEVICES); images such as CUDA's set
it by themselves, and then the counting and the isolation of a shared node are void. On a shared node an unprivileged
container gets GPUs by CDI or by volume mounts, which the device plugin makes and a pod cannot.
"""

from __future__ import annotations

from .._runtime.toml_edit import restore, set_values, settle
from .._runtime.toml_read import parse

PATH = "/etc/nvidia-container-runtime/config.toml"
ACCEPT_VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
ACCEPT_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"


def edit(text: str | None, accept_variable: bool) -> str:
    """Return what C(config.toml) becomes; every other setting, and all comments, stay.

    :param text: of the file, or None; what it does not say has the toolkit's defaults.
    :param accept_variable: the way back to the toolkit's default, for hosts of one user.
    :raises TomlError: it is not TOML.
    """
    base = restore(text or "")
    settings: dict[tuple[str, ...], bool] = {(ACCEPT_VARIABLE,): accept_variable}
    if not accept_variable:
        settings[(ACCEPT_MOUNTS,)] = True
    elif accepts_variable(base):
        return base
    return settle(text, set_values(base, settings))


def accepts_variable(text: str | None) -> bool:
    """Return whether unprivileged containers may take GPUs by the environment variable; the toolkit's default is yes.

    :raises TomlError: it is not TOML.
    """
    value = parse(text or "").data.get(ACCEPT_VARIABLE, True)
    return value is True
