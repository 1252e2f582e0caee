#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_toolkit
short_description: Install and configure the NVIDIA Container Toolkit
version_added: 0.1.0
description:
  - Brings the four packages of the NVIDIA Container Toolkit to one exact version, as one transaction that is simulated first, and
    holds them there.
  - Refuses versions with published vulnerabilities, with which a container can break out of its isolation.
  - Sets C(/etc/nvidia-container-runtime/config.toml) so that unprivileged containers get GPUs in one way only, by O(device_injection).
    All other settings and comments of that file stay.
  - Keeps the CDI specification true to the driver and the GPUs that are there.
  - Does not configure a container runtime; that is M(gpufleet.nvidia.container_runtime).
options:
  state:
    description:
      - Whether the toolkit is installed or removed.
      - V(absent) removes its packages and their holds, C(/etc/nvidia-container-runtime/config.toml), the CDI specification and the repository
        with its key.
    type: str
    choices: [present, absent]
    default: present
  version:
    description: The version of all four packages, without package revision.
    type: str
    default: 1.20.0
  repository:
    description: Where the packages come from.
    type: dict
    default: {}
    suboptions:
      url:
        description:
          - A mirror, C(https://) or C(file:///), of NVIDIA's directory C(stable/deb) or C(stable/rpm). The directory of the host's
            architecture (C(amd64), C(arm64); C(x86_64), C(aarch64)) is below it.
          - Empty for NVIDIA's own.
        type: str
        default: ""
      key_url:
        description: Where the signing key is. Empty for NVIDIA's own.
        type: str
        default: ""
      key_file:
        description: The signing key as a file on the host, instead of O(repository.key_url).
        type: path
        default: ""
      key_fingerprint:
        description:
          - All 40 hexadecimal digits of the signing key's fingerprint. The key file must hold this key and no other.
          - Empty for NVIDIA's key, which is right for a mirror as well unless the site signs anew.
        type: str
        default: ""
      manage:
        description: Whether the repository is configured here. V(false) where the site does that.
        type: bool
        default: true
      username:
        description:
          - User of the mirror at O(repository.url), where it asks for one (HTTP Basic authentication). It is also sent to O(repository.key_url) on the same
            server. An address with a user or a password in it is refused.
          - Printable ASCII without blanks, quotation marks, V($), V(#), colons and backslashes.
        type: str
        default: ""
      password:
        description:
          - Its password; printable ASCII without blanks, quotation marks, V($), V(#) and backslashes.
          - Written where the package manager reads it and root alone can, C(/etc/apt/auth.conf.d), the C(.repo) file in C(/etc/yum.repos.d), or
            C(/etc/zypp/credentials.d), and removed with the repository.
        type: str
        default: ""
  device_injection:
    description:
      - How containers of this host get their devices; the toolkit then accepts no other way in unprivileged containers.
      - V(cdi) means that the container runtime injects them, and the toolkit accepts neither the variable C(NVIDIA_VISIBLE_DEVICES)
        nor volume mounts. A container cannot ask for a device by itself.
      - V(volume_mounts) means that it reads mounts below C(/var/run/nvidia-container-devices), for runtimes without CDI. A pod that may
        use hostPath volumes can ask for any GPU.
      - V(envvar) means that it reads C(NVIDIA_VISIBLE_DEVICES), which every container and every image can set. NVIDIA's default, for
        hosts of one user and for Docker.
      - V(auto) means V(envvar) where O(runtime=docker), and V(cdi) elsewhere.
    type: str
    choices: [auto, cdi, volume_mounts, envvar]
    default: auto
  runtime:
    description: The host's container runtime, for which O(device_injection=auto) chooses.
    type: str
    choices: [containerd, docker, crio, k3s, rke2]
    default: containerd
  hold:
    description: Whether the package manager holds the four packages, so that unattended upgrades do not move them.
    type: bool
    default: true
  cdi:
    description:
      - Whether a CDI specification is kept, and NVIDIA's units that refresh it are enabled.
      - Without a loaded driver there is nothing to describe; the specification is then made when the driver is.
    type: bool
    default: true
  allow_vulnerable:
    description: Take a version with published vulnerabilities. Warns every time.
    type: bool
    default: false
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.container_runtime
"""

EXAMPLES = r"""
- name: The toolkit, as shared nodes need it
  gpufleet.nvidia.container_toolkit:
    version: 1.20.0

- name: From a mirror in an air-gapped site
  gpufleet.nvidia.container_toolkit:
    repository:
      url: https://mirror.example.com/libnvidia-container/stable/deb
      key_file: /usr/share/keyrings/site.gpg
      key_fingerprint: 0123456789ABCDEF0123456789ABCDEF01234567

- name: A workstation of one user, with plain 'docker run --gpus'
  gpufleet.nvidia.container_toolkit:
    device_injection: envvar
"""

RETURN = r"""
version:
  description: The toolkit's version afterwards; in check mode the one that it would be. Empty for none.
  type: str
  returned: success
  sample: 1.20.0
seconds:
  description: >-
    Seconds that were spent on downloads (C(download), with apt), builds of kernel modules (C(build)), other work of the package manager
    (C(packages)), other programs (C(programs)) and the module itself (C(own)); what took none is not there.
  type: dict
  returned: success
  sample: {download: 61.0, build: 301.5, packages: 38.2, programs: 6.1, own: 1.9}
plan:
  description: >-
    What was, or in check mode would be, done. Its C(steps) have each C(kind) and C(target), which are keys that do not change with the
    words, C(data), C(text), and of the text C(why) and C(disturbs).
  type: dict
  returned: success
packages:
  description: The installed packages of the toolkit, by name.
  type: dict
  returned: success
"""

import traceback
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.credentials import Credentials
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.openpgp import KeyRefused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages import PackageError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import UrlRefused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.stopwatch import Stopwatch
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import TomlError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._injection import (
    AUTO,
    METHODS,
    Injection,
    choose,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, steps_diff
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import RUNTIMES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.config import PATH
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import DesiredToolkit, credentials_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.floors import DEFAULT_VERSION
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.stage_run import Failed, run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.system import ToolkitSystem

ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "version": {"type": "str", "default": DEFAULT_VERSION},
    "repository": {
        "type": "dict",
        "default": {},
        "options": {
            "url": {"type": "str", "default": ""},
            # Fingerprint and key of a repository are public; "key" in the name would have Ansible think otherwise.
            "key_url": {"type": "str", "default": "", "no_log": False},
            "key_file": {"type": "path", "default": "", "no_log": False},
            "key_fingerprint": {"type": "str", "default": "", "no_log": False},
            "manage": {"type": "bool", "default": True},
            "username": {"type": "str", "default": ""},
            "password": {"type": "str", "default": "", "no_log": True},
        },
    },
    "device_injection": {"type": "str", "choices": [AUTO, *METHODS], "default": AUTO},
    "runtime": {"type": "str", "choices": list(RUNTIMES), "default": "containerd"},
    "hold": {"type": "bool", "default": True},
    "cdi": {"type": "bool", "default": True},
    "allow_vulnerable": {"type": "bool", "default": False},
}


def desired(params: dict[str, Any]) -> DesiredToolkit:
    """Return the desired state that the options describe."""
    repository = params["repository"]
    return DesiredToolkit(
        present=params["state"] == "present",
        version=params["version"],
        injection=Injection(choose(params["device_injection"], params["runtime"])),
        runtime=params["runtime"],
        cdi=params["cdi"],
        hold=params["hold"],
        allow_vulnerable=params["allow_vulnerable"],
        manage_repository=repository.get("manage", True),
        repository_url=repository.get("url", ""),
        key_url=repository.get("key_url", ""),
        key_file=repository.get("key_file", ""),
        key_fingerprint=repository.get("key_fingerprint", ""),
        credentials=credentials_of(
            **{name: repository.get(name) or "" for name in ("url", "key_url", "username", "password")},
            manage=repository.get("manage", True),
        ),
    )


def fetch(url: str, credentials: Credentials | None = None) -> bytes:
    """Return what is at C(url), with TLS verified where the URL has it."""
    login: dict[str, Any] = {"follow_redirects": "safe"}
    if credentials is not None:
        # A redirect would take the password to another server.
        login = {
            "follow_redirects": "none",
            "force_basic_auth": True,
            "url_username": credentials.username,
            "url_password": credentials.password,
        }
    try:
        return bytes(open_url(url, timeout=60, **login).read())
    except Exception as error:
        raise PackageError(f"Failed to fetch {url}: {error}.") from error


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        with Stopwatch() as watch:
            report = run_stage(ToolkitSystem(fetch), desired(module.params), module.check_mode)
    except Refused as refusal:
        module.fail_json(msg=refusal.message, refusal=refusal.as_dict())
    except TomlError as error:
        module.fail_json(msg=f"Failed to read {PATH}: {error}. Correct the file by hand; nothing was changed.")
    except (Failed, PackageError, KeyRefused, UrlRefused, CommandError) as error:
        module.fail_json(msg=str(error), exception=traceback.format_exc())
    for warning in report.plan.warnings:
        module.warn(warning)
    module.exit_json(
        changed=report.plan.changes,
        version=report.version,
        plan=report.plan.as_dict(),
        packages=dict(report.after.packages),
        seconds=watch.seconds,
        diff=[steps_diff("container toolkit", report.plan.steps), report.plan.diff("container toolkit")],
    )


if __name__ == "__main__":
    main()
