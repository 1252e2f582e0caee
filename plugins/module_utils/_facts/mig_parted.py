# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part C(mig_parted) of the facts document: what nvidia-mig-parted's service is set to restore at boot.

Source: deployments/systemd of NVIDIA/mig-parted (install.sh, service.sh, utils.sh): the service reads C(config.yaml), or the file that
C(MIG_PARTED_CONFIG_FILE) names, and applies the configuration that C(MIG_PARTED_SELECTED_CONFIG) names.
"""

from __future__ import annotations

import re
from typing import Any

from .._adapters.host_reader import HostReader
from .._printable import LONGEST_OUTPUT

SERVICE = "nvidia-mig-manager.service"
FOLDER = "/etc/nvidia-mig-manager"
_DEFAULT = f"{FOLDER}/config.yaml"
_DROP_INS = f"/etc/systemd/system/{SERVICE}.d/*.conf"
_SETTING = re.compile(r"MIG_PARTED_(SELECTED_CONFIG|CONFIG_FILE)=([^\s\"']+)")


def read_mig_parted(source: HostReader) -> dict[str, Any] | None:
    """Return the configuration file, the selected configuration, and whether it is applied at boot; None where there is no such file."""
    files = source.files
    settings: dict[str, str] = {}
    # systemd takes drop-ins in the order of their names; a later setting wins.
    for path in files.glob(_DROP_INS):
        for line in (files.read(path) or "").splitlines():
            if not line.lstrip().startswith("#"):
                settings.update({match.group(1): match.group(2) for match in _SETTING.finditer(line)})
    path = settings.get("CONFIG_FILE", _DEFAULT)
    config = files.read(path)
    if config is None and not settings:
        return None
    if config is not None and len(config) > LONGEST_OUTPUT:
        source.note("mig_parted.config", f"{path} is longer than {LONGEST_OUTPUT} characters")
        config = None
    return {
        "config_path": path,
        "config": config,
        "selected": settings.get("SELECTED_CONFIG"),
        "enabled": files.exists(f"/etc/systemd/system/multi-user.target.wants/{SERVICE}"),
    }
