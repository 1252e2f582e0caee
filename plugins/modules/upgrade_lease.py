#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: upgrade_lease
short_description: Allow only one run at a time to change a fleet
version_added: 0.1.0
description:
  - Acquires or releases the Lease C(gpufleet-upgrade) of the cluster. M(gpufleet.nvidia.upgrade_waves) does so by itself.
  - Fails with the name of the run that holds it. A run on the same machine that no longer exists does not hold it.
  - This is an action plugin; the module only documents it. It runs on the controller and requires the Python package C(kubernetes) there.
options:
  state:
    description: Whether this run holds the Lease.
    type: str
    choices: [present, absent]
    default: present
  namespace:
    description: Namespace of the Lease.
    type: str
    default: default
  duration:
    description: Seconds after which a run that has not renewed its Lease loses it.
    type: int
    default: 1800
  take_over:
    description: Whether to take over the Lease from its current holder.
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
  description: The identity of this run in the Lease.
  type: str
  returned: success
"""
