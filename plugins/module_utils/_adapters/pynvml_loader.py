# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find pynvml (the package nvidia-ml-py) on a host that has no Python package registry.

In order: an archive that the action plugin sent for this one call, the host program that the roles install, and the
host's own Python packages.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

#: The program that the roles install on a host; a Python zipapp with pynvml inside.
HOST_PROGRAM = "/usr/local/lib/gpufleet/gpufleet-host.pyz"


class PynvmlMissing(Exception):
    """No pynvml on this host. The action plugin answers this by sending the controller's."""


def load_pynvml(archive: str | None = None) -> ModuleType:
    """Return the module pynvml.

    :param archive: a zip file with pynvml in it, sent for this call; None when there is none.
    :raises PynvmlMissing: it is nowhere.
    """
    for place in (archive, HOST_PROGRAM):
        if place and os.path.isfile(place) and place not in sys.path:
            sys.path.insert(0, place)
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise PynvmlMissing(
            "The Python module pynvml (nvidia-ml-py) is not on this host. Run gpufleet.nvidia.site (role nvidia_driver), "
            "which installs the host program that carries it, or install nvidia-ml-py"
        ) from error
