# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file of this host with the key of a repository. Every host that is read is sent whatever this imports: nothing of package managers."""

from __future__ import annotations

import os

from .._adapters.files import list_directory, open_regular, read_bytes
from .._adapters.openpgp import KeyRefused, fingerprints, verified_key
from .._plan import Refused
from .._printable import printable

#: Bytes of the largest key file that is read. Keys of repositories have some thousand.
_MOST = 1 << 20
#: Characters of a reason.
_LONGEST = 512
#: Where package managers have their sources.
_SOURCES = ("/etc/apt", "/etc/apt/sources.list.d", "/etc/yum.repos.d", "/etc/zypp/repos.d")


def key_is_there(identifier: str) -> bool:
    """Return whether the host has the key of a repository that was configured under this name."""
    return any(map(os.path.exists, (f"/etc/apt/keyrings/{identifier}.gpg", f"/etc/pki/rpm-gpg/{identifier}.asc")))


def read_key(path: str, variable: str) -> bytes:
    """Return what a key file has. Raises Refused: it cannot be read, or is larger than any key."""
    try:
        with open_regular(path) as handle:
            content = handle.read(_MOST + 1)
    except OSError as error:
        raise Refused(variable, f"{path} cannot be read: {error.strerror}", "It is a path on the host.") from error
    if len(content) > _MOST:
        raise Refused(variable, f"{path} is larger than 1 MiB, so it is no key", "It is a path on the host.")
    return content


def key_file_fault(path: str, identifier: str, fingerprint: str, url: str) -> str | None:
    """Return why a file of this host does not have the key that a repository needs; None where nobody will read it, because the host has the key.

    :param fingerprint: of the right one; empty where that is not known.
    :param url: what a source that came otherwise (an image, a package of NVIDIA's) names where it is taken as it is; empty where none is.
    """
    if key_is_there(identifier) or (url and _is_named(url)):
        return None
    try:
        # As a module takes an option that is a path.
        content = read_key(os.path.expanduser(os.path.expandvars(path)), path)
        if fingerprint:
            verified_key(content, fingerprint, path)
        else:
            fingerprints(content)
    except Refused as refused:
        reason = refused.reason
    except KeyRefused as error:
        said = str(error).removeprefix(f"Failed to verify the key {path}: ").rstrip(".")
        reason = f"{path}: {said}"
    else:
        return None
    return str(printable(reason, longest=_LONGEST))


def _is_named(url: str) -> bool:
    """Return whether a source names an address. One that is disabled, or whose key is missing, is left to the stage, which asks the package manager."""
    address = url.removeprefix("file://").rstrip("/").encode()
    paths = (f"{folder}/{name}" for folder in _SOURCES for name in list_directory(folder))
    return any(address in (read_bytes(path) or b"") for path in paths)
