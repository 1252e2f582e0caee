# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a product's packages come from, as the user wants it, and the repository's verified key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._adapters.openpgp import key_of_digest, verified_key
from .._adapters.package_tools import Fetch
from .._adapters.repositories import Credentials, check_url, checked_credentials, for_server_of, refuse_credentials_in
from .._facts_view import Facts
from .._plan import Refused
from .key_file import read_key


@dataclass(frozen=True)
class DesiredRepository:
    """Where the packages come from.

    :param url: of a mirror, or empty for NVIDIA's own repository.
    :param key_url: where its signing key is fetched from; empty for NVIDIA's own.
    :param key_file: a file on the host with its signing key, in place of C(key_url).
    :param key_fingerprint: of that key, all hexadecimal digits; empty for the known one of NVIDIA's own repository.
    :param manage: whether the collection configures the repository; otherwise it has to be there already.
    :param credentials: what the mirror asks for.
    """

    url: str = ""
    key_url: str = ""
    key_file: str = ""
    key_fingerprint: str = ""
    manage: bool = True
    credentials: Credentials | None = None

    def signing_key(
        self, url: str, key_url: str, fingerprint: str, fetch: Fetch, prefix: str, digest: str = ""
    ) -> bytes:
        """Return the key that signs the repository at C(url).

        :param key_url: where it is fetched from unless the user says otherwise.
        :param fingerprint: of the right one; empty where its C(digest) is known alone.
        :param prefix: of the role's variables, for messages.
        :raises Refused: the key file cannot be read.
        :raises KeyRefused: the key is another one.
        """
        if self.key_file:
            source, content = self.key_file, read_key(self.key_file, f"{prefix}repository_key_file")
        else:
            source = check_url(self.key_url or key_url, f"{prefix}repository_key_url")
            content = fetch(source, for_server_of(source, url, self.credentials))
        return verified_key(content, fingerprint, source) if fingerprint else key_of_digest(content, digest, source)


def read_repository(option: Mapping[str, Any], prefix: str) -> DesiredRepository:
    """Return what the option C(repository) of a module says.

    :param prefix: of the role's variables.
    :raises Refused: credentials stand in an address, or cannot be taken as they are.
    """
    names = ("url", "key_url", "key_file", "key_fingerprint", "username", "password")
    texts = {name: str(option.get(name) or "") for name in names}
    manage = bool(option.get("manage", True))
    username, password = texts.pop("username"), texts.pop("password")
    refuse_credentials_in(texts["url"], f"{prefix}repository_url")
    refuse_credentials_in(texts["key_url"], f"{prefix}repository_key_url")
    credentials = checked_credentials(prefix, texts["url"], username, password, manage)
    return DesiredRepository(**texts, manage=manage, credentials=credentials)


def key_file_refusals(facts: Facts, wanted: DesiredRepository, prefix: str) -> list[Refused]:
    """Return that the file with the key is of no use, where packages are to come from the repository."""
    variable = f"{prefix}repository_key_file"
    fault = (facts.key_files or {}).get(variable) if wanted.manage and wanted.key_file else None
    remedy = f"Put the key of the repository there, on the host, or give {prefix}repository_key_url instead."
    return [Refused(variable, fault, remedy)] if fault else []
