# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Headers of kernels that DKMS cannot build the driver for: the package lists of the host are asked, and fetched by nobody."""

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import missing_headers

DEBIAN, ROCKY, SUSE = "6.1.0-25-amd64", "5.14.0-362.8.1.el9_3.x86_64", "6.4.0-150600.21-default"
BUILT = {"dkms": [{"name": "nvidia", "version": "580.178.04", "kernel": None, "state": "added"}]}
NEXT = {**BUILT, "next_kernel": {"release": "6.1.0-26-amd64", "headers": False}}


def host(manager="apt", there=False):
    kinds = {
        "apt": ("debian", "12", "debian", DEBIAN),
        "dnf": ("rocky", "9.3", "redhat", ROCKY),
        "zypper": ("sles", "15.6", "suse", SUSE),
    }
    identifier, version, family, kernel = kinds[manager]
    return {
        "distribution": {"id": identifier, "version": version, "family": family, "codename": None},
        "architecture": "x86_64",
        "package_manager": manager,
        "kernel": kernel,
        "kernel_headers": there,
    }


def lists(tree, fetched=200, installed=100, names=("deb.example_dists_bookworm_main_binary-amd64_Packages",)):
    for name in names:
        tree.write(f"/var/lib/apt/lists/{name}", "")
    for path, moment in (
        ("/var/lib/apt/lists", fetched),
        *((f"/lib/modules/6.1.0-{n}-amd64", installed) for n in (25, 26)),
    ):
        tree.folder(path)
        os.utime(tree.root / path.lstrip("/"), (moment, moment))
    return tree.source()


def madison(*names):
    return "".join(f" {name} | 6.1.1-1 | http://deb.example bookworm/main amd64 Packages\n" for name in names)


@pytest.mark.parametrize(
    ("driver", "offered", "there", "missing"),
    [
        (BUILT, (), False, [f"linux-headers-{DEBIAN}"]),
        (BUILT, (f"linux-headers-{DEBIAN}",), False, []),
        (NEXT, (f"linux-headers-{DEBIAN}",), False, ["linux-headers-6.1.0-26-amd64"]),
        (NEXT, (), True, ["linux-headers-6.1.0-26-amd64"]),
    ],
)
def test_what_no_list_has(tree, driver, offered, there, missing):
    tree.answers["apt-cache"] = madison(*offered)
    assert missing_headers(lists(tree), host(there=there), driver) == missing
    ((program, verb, *_names),) = tree.calls
    assert (program, verb) == ("apt-cache", "madison")


@pytest.mark.parametrize("moments", [{"fetched": 100, "installed": 200}, {"names": ("lock",)}, {}])
def test_lists_that_may_be_older_than_the_kernel_prove_nothing(tree, moments):
    tree.answers["apt-cache"] = ""
    source = lists(tree, **moments) if moments else tree.source()
    assert missing_headers(source, host(), BUILT) == []


@pytest.mark.parametrize(
    ("versions", "missing"),
    [
        (["5.14.0-427.13.1.el9_4"], ["kernel-devel-5.14.0-362.8.1.el9_3"]),
        (["5.14.0-427.13.1.el9_4", "5.14.0-362.8.1.el9_3"], []),
        (["5.14.0-70.13.1.el9_0"], []),
        ([], []),
    ],
)
def test_rpm_has_one_name_for_all_kernels(tree, versions, missing):
    # dnf 4 adds an end of line, and dnf 5 does not.
    tree.answers["dnf"] = "".join(f"kernel-devel|{one}\n\nkernel-devel-matched|{one}\n" for one in versions)
    assert missing_headers(tree.source(), host("dnf"), BUILT) == missing
    ((*command, name),) = tree.calls
    assert (command[:2], name) == (["dnf", "--cacheonly"], "kernel-devel")


def test_what_is_installed_is_in_no_list_of_zypper(tree):
    solvable = (
        '<solvable status="x" name="kernel-default-devel" kind="package" edition="{}" arch="x86_64" repository="{}"/>\n'
    )
    later, installed = (
        solvable.format("6.4.0-150600.23.25.1", "SLE"),
        solvable.format("6.4.0-150600.23.25.1", "(System Packages)"),
    )
    for listed, missing in ((later, ["kernel-default-devel-6.4.0-150600.21"]), (installed, []), ("", [])):
        tree.answers["zypper"] = listed
        assert missing_headers(tree.source(), host("zypper"), BUILT) == missing
    assert {call[:2] for call in tree.calls} == {("zypper", "--no-refresh")}


@pytest.mark.parametrize(
    ("driver", "there"), [({"dkms": []}, False), ({"dkms": [{"name": "gdrdrv"}]}, False), (BUILT, True)]
)
def test_hosts_that_build_nothing_or_have_headers_cost_nothing(tree, driver, there):
    assert missing_headers(lists(tree), host(there=there), driver) == [] and tree.calls == []
    assert missing_headers(tree.source(local=False), host(), BUILT) == [] and tree.calls == []


def test_a_manager_that_does_not_answer_is_noted(tree):
    source = lists(tree)
    assert missing_headers(source, host(), BUILT) == []
    assert "apt-cache" in source.unknown["host.headers_not_offered"]
