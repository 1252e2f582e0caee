# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secure Boot: modules that DKMS builds are loaded only when the key that signs them is enrolled, which a person does at the console.

DKMS makes that key when it builds its first module, and then it is too late: the module is there and cannot be loaded. So on a host without
a key the stage installs dkms, makes the key and stops; the driver follows once the key is enrolled.
"""

from __future__ import annotations

from .._adapters.package_manager import Package
from .._plan import Refused, Step
from .._steps import Kind
from .desired import PREFIX, DesiredDriver
from .packages import DKMS
from .selection import names_of
from .state import Host
from .steps import prerequisites_step

_THING = "Secure Boot"
_CONFIGURATION = "/etc/dkms/framework.conf"
_SIGNED_MODULES = f"Or switch Secure Boot off, or use modules that the distribution has signed ({PREFIX}source: distribution) where it has them."


def needs_key(host: Host, desired: DesiredDriver) -> bool:
    """Return whether the driver's modules are built here and have to be signed with a key that is not known to be enrolled."""
    if not host.secure_boot or host.container or names_of(host, desired).module != DKMS:
        return False
    return host.signing is None or host.signing.enrolled is not True


def unread_warnings(host: Host, desired: DesiredDriver) -> list[str]:
    """Return that the key is looked at later, where the facts do not have it and the driver does not run yet."""
    if not needs_key(host, desired) or host.signing is not None or host.same_everywhere:
        return []
    return [
        "Secure Boot is on: whether the key that signs modules is enrolled is checked when the stage runs. Where there is no key yet, the run "
        "installs dkms, creates the key and stops before the driver with instructions to enrol it"
    ]


def lacks_key(host: Host, desired: DesiredDriver) -> bool:
    """Return whether there is no key yet that could be enrolled, and one can be made."""
    signing = host.signing
    return needs_key(host, desired) and signing is not None and not signing.exists and signing.is_file


def module_refusals(host: Host, desired: DesiredDriver) -> list[Refused]:
    """Return why modules built on the host could not be loaded, as long as it cannot be mended by making a key."""
    if not needs_key(host, desired) or lacks_key(host, desired):
        return []
    signing = host.signing
    if signing is None:
        reason = "it is on, but whether the key that signs modules built on this host is enrolled was not read"
        return [Refused(_THING, reason, _SIGNED_MODULES)]
    if not signing.exists:
        reason = f"it is on, but the certificate {signing.certificate} of the signing key {signing.key} does not exist"
        return [Refused(_THING, reason, f"Put it there, or name another one in {_CONFIGURATION}.")]
    if signing.enrolled is None:
        reason = f"it is on, but mokutil, which shows whether the key {signing.certificate} is enrolled, cannot be run"
        return [Refused(_THING, reason, "Install the package mokutil and run again.")]
    reason = f"it is on, and the key that signs modules built on this host ({signing.certificate}) is not enrolled, so these modules could not be loaded"
    return [Refused(_THING, reason, f"{_how_to_enrol(signing.certificate)} {_SIGNED_MODULES}")]


def unsigned(host: Host) -> Refused:
    """Return the refusal to go on with a driver that is installed and was built without a key."""
    return Refused(
        _THING,
        f"it is on, and the modules of the installed driver {host.version} were built when this host had no key to sign them with, so they cannot "
        "be loaded",
        f"Remove the driver ({PREFIX}state: absent) and run again: the key is made before the driver is built. {_SIGNED_MODULES}",
    )


def key_steps(host: Host) -> list[Step]:
    """Return the steps that make a key which can be enrolled, in place of those that install the driver."""
    signing = host.signing
    if signing is None:
        return []
    why = "with Secure Boot the kernel loads only modules that an enrolled key has signed"
    create = Step(Kind.CREATE_SIGNING_KEY, signing.certificate, why, (), {"key": signing.key})
    return [*([prerequisites_step(map(Package, signing.missing), why)] if signing.missing else []), create]


def stop(host: Host) -> Refused | None:
    """Return why the run ends behind L(key_steps), with what a person has to do."""
    if host.signing is None:
        return None
    certificate = host.signing.certificate
    return Refused(
        _THING,
        f"it is on, and the key that signs modules built on this host ({certificate}) is new and not enrolled, so the driver is not installed yet",
        f"{_how_to_enrol(certificate)} {_SIGNED_MODULES}",
    )


def _how_to_enrol(certificate: str) -> str:
    return (
        f"Run on the host as root: mokutil --import {certificate} (it asks for a new one-time password). Reboot, and at the console, within ten "
        "seconds, choose Enroll MOK in the MOK manager and give the password. Then run again; the driver is installed then."
    )
