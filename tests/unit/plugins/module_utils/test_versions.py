# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What programs answer to --version, and what is compared of it."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._versions import (
    numbers,
    product_key,
    product_version,
    version_in,
)


@pytest.mark.parametrize(
    ("text", "version", "compared"),
    [
        (
            "containerd github.com/containerd/containerd v1.7.22 7f7fdf5fed64eb6a7caf99b3e12efcf9d60e311c",
            "1.7.22",
            (1, 7, 22),
        ),
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1", "1.6.20~ds1", (1, 6, 20)),
        (
            "containerd github.com/containerd/containerd/v2 v2.1.5 fcd43222d6b07379a4be9786bda52438f0dd16a1",
            "2.1.5",
            (2, 1, 5),
        ),
        ("containerd containerd.io 2.1.4 75cb2b7193e4e490e9fbdc236c0e811ccaba3376", "2.1.4", (2, 1, 4)),
        ("containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da", "1.7.27", (1, 7, 27)),
        ("Docker version 28.3.3, build 980b856", "28.3.3", (28, 3, 3)),
        ("Docker version 20.10.24+dfsg1, build 297e128", "20.10.24+dfsg1", (20, 10, 24)),
        ("crio version 1.30.4\nVersion:        1.30.4\nGoVersion: go1.22", "1.30.4", (1, 30, 4)),
        ("Version: 1.30.0", "1.30.0", (1, 30, 0)),
        ("k3s version v1.31.2+k3s1 (6da20424)\ngo version go1.22.8", "1.31.2+k3s1", (1, 31, 2)),
        ("rke2 version v1.30.6+rke2r1 (abc)\ngo version go1.22.8", "1.30.6+rke2r1", (1, 30, 6)),
        ("no version at all", None, ()),
        ("", None, ()),
    ],
)
def test_versions_of_programs(text, version, compared):
    assert version_in(text) == version
    assert numbers(version or "") == compared


@pytest.mark.parametrize(
    ("version", "compared"),
    [
        ("1:3.2.1-2.el9", (3, 2, 1)),
        ("3.0.10-8+deb12u1", (3, 0, 10)),
        ("v1.31", (1, 31)),
        (" 1.7.2\n", (1, 7, 2)),
        ("?", ()),
    ],
)
def test_what_is_compared_of_a_packages_version(version, compared):
    assert numbers(version) == compared


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("1.20.0-1", "1.20.0"),
        ("0:1.20.0-1", "1.20.0"),
        ("1.20.0~rc.1-1", "1.20.0~rc.1"),
        ("1.20.0", "1.20.0"),
        ("1:4.5.3-1.el9", "4.5.3"),
        ("1.20.0+dfsg-1", None),
        ("1.20-1", None),
        ("x", None),
    ],
)
def test_the_version_of_a_product_in_a_package(package, version):
    assert product_version(package) == version


def test_the_order_of_products():
    """A release candidate is older than its release, and the tenth newer than the second."""
    versions = ["1.19.1", "1.20.0~rc.2", "1.20.0-rc.10", "1.20.0", "1.100.0"]
    assert sorted([*versions[2:], *versions[:2]], key=product_key) == versions
    for text in ("latest", "1.20", "", "1.20.0-1"):
        with pytest.raises(ValueError, match="is not a version"):
            product_key(text)
