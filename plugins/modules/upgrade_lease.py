#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: upgrade_lease
short_description: Let one run at a time work on a fleet
version_added: 0.1.0
description:
  - Takes the Lease C(gpufleet-upgrade) of the cluster, or gives it back. M(gpufleet.nvidia.upgrade_waves) does so by itself.
  - Ends with the name of the run that has it. A run of the same machine that is dead does not hold it.
  - This is an action; the module is only its documentation. It runs on the controller and needs the Python package C(kubernetes) there.
options:
  state:
    description: Whether this run has the lease.
    type: str
    choices: [present, absent]
    default: present
  namespace:
    description: Namespace of the lease.
    type: str
    default: default
  duration:
    description: Seconds after which a run that has not renewed its lease has lost it.
    type: int
    default: 1800
  take_over:
    description: Take it from whoever has it.
    type: bool
    default: false
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.cluster
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Acquire the fleet lock
  gpufleet.nvidia.upgrade_lease:
    state: present
"""

RETURN = r"""
holder:
  description: This run, as the lease names it.
  type: str
  returned: success
"""
