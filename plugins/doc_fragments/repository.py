# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation fragment: the repository of packages that a module configures (C(REPOSITORY_OPTION) of the adapter)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  repository:
    description:
      - The repository of the packages.
    type: dict
    default: {}
    suboptions:
      url:
        description:
          - URL (C(https) or C(file)) of a mirror, of NVIDIA's directory C(stable/deb) or C(stable/rpm) for the container toolkit. If empty, NVIDIA's own
            repository.
        type: str
        default: ""
      key_url:
        description:
          - URL of the signing key of the mirror. If empty, M(gpufleet.nvidia.container_toolkit) uses NVIDIA's own, and M(gpufleet.nvidia.driver) requires
            O(repository.key_file).
        type: str
        default: ""
      key_file:
        description:
          - File on the host with the signing key, instead of O(repository.key_url).
        type: path
        default: ""
      key_fingerprint:
        description:
          - The full hexadecimal fingerprint of the key. The key file must contain this key and no other.
          - M(gpufleet.nvidia.driver) requires it with a mirror. If empty, M(gpufleet.nvidia.container_toolkit) uses that of NVIDIA's key, which is also
            correct for a mirror unless you sign the packages again.
        type: str
        default: ""
      manage:
        description:
          - Whether the module configures the repository. Set it to V(false) if something else does.
        type: bool
        default: true
      username:
        description:
          - User name for a mirror at O(repository.url) with HTTP Basic authentication. It is also sent to O(repository.key_url) on the same server. A
            URL that contains a user name or a password is refused.
          - Printable ASCII without spaces, quotation marks, V($), V(#), colons and backslashes.
        type: str
        default: ""
      password:
        description:
          - Password of that user. Printable ASCII without spaces, quotation marks, V($), V(#) and backslashes.
          - It is written to a file of the package manager that only root can read, in C(/etc/apt/auth.conf.d), the C(.repo) file in
            C(/etc/yum.repos.d), or C(/etc/zypp/credentials.d), and removed with the repository.
        type: str
        default: ""
"""
