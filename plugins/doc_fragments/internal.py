# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation fragments: what only the playbooks and roles of the collection call, and what such actions have in common."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
notes:
  - The playbooks and roles of this collection call it. Call those; it may change in any release.
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

    ACTION = r"""
options: {}
notes:
  - This is an action plugin, which runs on the controller; the module only documents it. Which action takes which options, and which of them have to be
    given or have another default with it, is in C(OPTIONS) of the file in C(plugins/plugin_utils/actions) that has the action's name.
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

    #: How actions reach the cluster.
    CLUSTER = r"""
options:
  kubernetes:
    description: Whether there is a cluster. Otherwise, no API server is contacted.
    type: bool
    default: true
  kubeconfig:
    description: The kubeconfig on the controller. If empty, C(KUBECONFIG) or the default one.
    type: path
    default: ""
  context: {description: "The context in that kubeconfig. If empty, its current context.", type: str, default: ""}
  api_timeout: {description: Seconds to wait for an API server that does not answer., type: int, default: 300}
"""
