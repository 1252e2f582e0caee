# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation fragment: how actions reach the cluster."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
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
