# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation fragment: what every module that speaks NVML takes from its action plugin."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  _pynvml_archive:
    description:
      - Path on the host of the pynvml that the controller sent for this call. Set by the action plugin; a value set in a task is ignored.
    type: path
requirements:
  - nvidia-ml-py on the controller, which sends it if the host has none
"""
