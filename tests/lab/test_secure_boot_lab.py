# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with Secure Boot gets a driver that DKMS builds and signs, and keeps it through an upgrade of its kernel: real dkms, OpenSSL, sign-file of Debian's
kernel headers, mokutil and modinfo.

Stand-ins: the firmware's variables are files that the real mokutil reads and writes, and at boot the MOK manager enrols whatever was imported, as a person
at the console would. The lab's kernel does not check signatures: what is asserted is what modinfo and mokutil show. See also grub_host.py. The tests run
in order: each begins with what the one before left.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from grub_host import VERSION, boot_unit, grub_host

pytestmark = pytest.mark.dkms

#: Where the variables are while the host is off, and where its kernel shows them.
STORED, SHOWN = "/var/lib/lab-firmware", "/sys/firmware/efi/efivars"
# libefivar reads another directory than efivarfs only where it is told to.
MOKUTIL = f"""#!/bin/sh
exec env EFIVARFS_PATH={SHOWN}/ /usr/bin/mokutil.distrib "$@"
"""
FIRMWARE = f"""#!/bin/bash
# What firmware and shim do at boot. A variable is four bytes of attributes and its value.
set -eu
shim=605dab50-e046-4300-abb6-3dd810dd8b23
if [ -e {STORED}/MokNew-$shim ]; then
    [ -e {STORED}/MokListRT-$shim ] || printf '\\6\\0\\0\\0' > {STORED}/MokListRT-$shim
    tail -c +5 {STORED}/MokNew-$shim >> {STORED}/MokListRT-$shim
    rm {STORED}/MokNew-$shim {STORED}/MokAuth-$shim
fi
mount -t tmpfs tmpfs /sys/firmware
mkdir -p {SHOWN}
mount --bind {STORED} {SHOWN}
# A host with firmware is no container.
rm -f /run/systemd/container
mount --bind /dev/null /proc/1/environ
"""
GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
PREPARE = f"""
export DEBIAN_FRONTEND=noninteractive
apt-get -q -y --no-install-recommends install mokutil
dpkg-divert --quiet --local --rename --add /usr/bin/mokutil
mkdir -p {STORED}
printf '\\6\\0\\0\\0\\1' > {STORED}/SecureBoot-{GLOBAL}
printf '\\6\\0\\0\\0\\0' > {STORED}/SetupMode-{GLOBAL}
"""
SIGNER = "DKMS module signing key"
KEYS = "/var/lib/dkms/mok.key /var/lib/dkms/mok.pub"


@pytest.fixture(scope="module")
def host(make_fleet, tmp_path_factory):
    found = grub_host(make_fleet, "secure-boot", tmp_path_factory.mktemp("secure-boot"))
    found.sh(PREPARE)
    found.write("/usr/bin/mokutil", MOKUTIL)
    found.write("/usr/local/sbin/firmware", FIRMWARE)
    found.write("/etc/systemd/system/firmware.service", boot_unit("firmware", "RequiresMountsFor=/var/lib\n"))
    found.sh("chmod +x /usr/bin/mokutil /usr/local/sbin/firmware && systemctl enable firmware")
    found.reboot()
    assert found.sh("mokutil --sb-state").strip() == "SecureBoot enabled"
    return found


def site(host):
    return host.fleet.play("site", "--skip-tags", "cluster")


def key_of(host, release):
    """Signer and key of the module that the kernel of this release would load."""
    return [host.sh(f"modinfo -k {release} -F {field} nvidia").strip() for field in ("signer", "sig_key")]


def enrolled(host):
    """The serial numbers of the keys that shim knows, as modinfo writes them."""
    shown = host.sh("mokutil --list-enrolled")
    return [number.upper() for number in re.findall(r"Serial Number:\s+([0-9a-f:]+)", shown)]


def test_without_a_key_it_is_made_and_the_driver_waits_for_its_enrolment(host):
    stopped = site(host)
    assert stopped.rc != 0
    assert "is new and not enrolled, so the driver is not installed yet" in stopped.text
    assert host.sh(f"ls {KEYS}").split() == KEYS.split()
    assert "nvidia" not in host.sh("ls /lib/modules/*/updates/dkms 2>/dev/null || true")

    keys = host.sh(f"sha256sum {KEYS}")
    again = site(host)
    assert again.rc != 0 and "is not enrolled, so these modules could not be loaded" in again.text, again.text[-4000:]
    assert host.sh(f"sha256sum {KEYS}") == keys


def test_a_person_does_what_the_message_says_and_the_modules_are_signed(host):
    (command,) = set(re.findall(r"mokutil --import [^\s\"']+", re.sub(r"\s+", " ", site(host).text)))
    host.sh(f"printf 'one-time\\none-time\\n' | {command}")
    host.reboot()
    (number,) = enrolled(host)

    done = site(host)
    assert done.rc == 0, done.text[-4000:]
    host.works(host.old)
    assert key_of(host, host.old) == [SIGNER, number]
    again = site(host)
    assert again.rc == 0 and again.quiet(host.name), again.text[-4000:]


def test_a_kernel_whose_module_another_key_signed_is_refused_and_never_booted(host):
    # Without its key dkms makes a new one, says nothing, and signs with that.
    host.sh(f"mkdir /root/keys && mv {KEYS} /root/keys")
    refused = host.upgrade()
    assert refused.rc != 0
    found = host.record
    assert found["state"] == "refused", found
    reason = f"signed with the key of {SIGNER}, which is not enrolled"
    assert host.new in found["failed_reason"] and reason in found["failed_reason"], found
    signer, number = key_of(host, host.new)
    assert signer == SIGNER and number not in enrolled(host)
    host.works(host.old)
    host.reboot()
    host.works(host.old)


@pytest.mark.proves("driver", "nvidia", rows=["debian-12"], note="Secure Boot")
def test_with_the_enrolled_key_the_kernel_is_taken_up_with_a_module_that_it_signed(host):
    host.sh("mv /root/keys/* /var/lib/dkms")
    # What the message of the refusal says.
    for action in ("build", "install"):
        host.sh(f"dkms {action} --force nvidia/{VERSION} -k {host.new}")
    done = host.upgrade()
    assert done.rc == 0, done.text[-4000:]
    host.works(host.new)
    assert key_of(host, host.new) == [SIGNER, *enrolled(host)]
