# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import Package
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import find
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import DistributionFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import loads
from ansible_collections.gpufleet.nvidia.plugins.module_utils._injection import Injection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit import packages as toolkit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.config import accepts, edit, low_level_runtimes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.packages import PACKAGES, repository_url
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.plan import select
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.state import ToolkitState
from ansible_collections.gpufleet.nvidia.plugins.module_utils._versions import product_key


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("1.16.1", "CVE-2024-0132"),
        ("1.16.2", "CVE-2024-0134"),
        ("1.17.0", "CVE-2024-0137"),
        ("1.17.3", "CVE-2025-23359"),
        ("1.17.7", "CVE-2025-23266"),
        ("1.18.2", "CVE-2026-24260"),
        ("1.19.0", "CVE-2026-24260 (fixed in 1.19.1, CVSS 8.5)"),
        ("1.19.1-rc.1", "CVE-2026-24260"),
    ],
)
def test_versions_with_published_vulnerabilities_are_refused(version, found):
    with pytest.raises(Refused) as refused:
        toolkit.check_version(version, allow_vulnerable=False)
    assert found in refused.value.message
    assert "nvidia_toolkit_allow_vulnerable" in refused.value.message
    assert found in toolkit.check_version(version, allow_vulnerable=True)


@pytest.mark.parametrize("version", ["1.19.1", "1.20.0", "1.20.1", "2.0.0"])
def test_versions_at_or_above_the_floor(version):
    assert toolkit.check_version(version, allow_vulnerable=False) == ""
    assert toolkit.FLOOR == "1.19.1"


@pytest.mark.parametrize("version", ["latest", "1.20", "", "1.20.0-1", "1.20.0-rc"])
def test_what_is_no_version(version):
    with pytest.raises(Refused, match="is not a version of the container toolkit"):
        toolkit.check_version(version, allow_vulnerable=True)


def test_every_entry_is_fixed_after_the_last_affected_version():
    for entry in toolkit.VULNERABILITIES:
        assert product_key(entry.last_affected) < product_key(entry.fixed)
        assert entry not in toolkit.vulnerabilities_of(entry.fixed)
        assert entry in toolkit.vulnerabilities_of(entry.last_affected)


@pytest.mark.parametrize("spelled", ["1.20.0~rc.1", "1.20.0-rc.1"])
def test_a_release_candidate_is_one_version_for_facts_and_plan(spelled):
    """What a host has of it is not its release, and is what a site asks for however it spells it."""
    packages = dict.fromkeys(PACKAGES, "1.20.0~rc.1-1")
    options = {"state": "present", "device_injection": "cdi", "runtime": "containerd", "cdi": True, "hold": True}
    wanted = from_options({**options, "version": spelled, "allow_vulnerable": False, "repository": {}})
    assert not ToolkitState(packages=packages).differing(PACKAGES, wanted.version)
    assert set(ToolkitState(packages=packages).differing(PACKAGES, "1.20.0")) == set(PACKAGES)
    assert [one.version for one in select([Package(*one) for one in packages.items()], wanted.version)] == [
        *packages.values()
    ]


DEFAULT = """#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false

[nvidia-container-cli]
load-kmods = true # needed here
"""


class TestConfig:
    ENVVAR = "accept-nvidia-visible-devices-envvar-when-unprivileged"
    VOLUME_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"

    @pytest.mark.parametrize("text", [None, "", DEFAULT, DEFAULT.replace("\n", "\r\n")])
    @pytest.mark.parametrize("method", ["cdi", "volume_mounts", "envvar"])
    def test_exactly_one_way_is_accepted(self, text, method):
        wanted = Injection(method)
        after = edit(text, wanted.accepts_envvar, wanted.accepts_volume_mounts)
        assert accepts(after, self.ENVVAR) is (method == "envvar")
        assert accepts(after, self.VOLUME_MOUNTS) is (method == "volume_mounts")
        loads(after)
        assert all(line in after for line in (text or "").splitlines())
        assert edit(after, wanted.accepts_envvar, wanted.accepts_volume_mounts) == after

    @pytest.mark.parametrize("text", ["", DEFAULT])
    @pytest.mark.parametrize("volume_mounts", [True, False])
    def test_the_way_back(self, text, volume_mounts):
        assert edit(edit(text, False, volume_mounts), True, False) == text

    def test_the_way_back_after_another_program_removed_the_marks(self):
        assert accepts(edit(f"{self.ENVVAR} = false\n", True, False), self.ENVVAR)

    @pytest.mark.parametrize("text", ["", DEFAULT, '[nvidia-container-runtime]\nruntimes = ["runc"]\n'])
    def test_the_low_level_runtime_comes_first(self, text):
        after = edit(text, True, False, "/usr/libexec/crio/crun")
        assert low_level_runtimes(after) == ["/usr/libexec/crio/crun", *low_level_runtimes(text)]
        assert edit(after, True, False, "/usr/libexec/crio/crun") == after
        assert edit(after, True, False, None) == text
        assert low_level_runtimes(None) == ["runc", "crun"]

    def test_default(self):
        assert accepts(None, self.ENVVAR)
        assert not accepts(None, self.VOLUME_MOUNTS)


@pytest.mark.parametrize(
    ("name", "version", "machine", "url"),
    [
        ("debian", "12", "x86_64", "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"),
        ("ubuntu", "24.04", "aarch64", "https://nvidia.github.io/libnvidia-container/stable/deb/arm64"),
        ("rocky", "9.4", "x86_64", "https://nvidia.github.io/libnvidia-container/stable/rpm/x86_64"),
        ("sles", "15.6", "aarch64", "https://nvidia.github.io/libnvidia-container/stable/rpm/aarch64"),
        ("ol", "9.6", "x86_64", "https://nvidia.github.io/libnvidia-container/stable/rpm/x86_64"),
        ("opensuse-leap", "15.6", "aarch64", "https://nvidia.github.io/libnvidia-container/stable/rpm/aarch64"),
        ("fedora", "43", "aarch64", "https://nvidia.github.io/libnvidia-container/stable/rpm/aarch64"),
        ("amzn", "2023", "x86_64", "https://nvidia.github.io/libnvidia-container/stable/rpm/x86_64"),
    ],
)
def test_repositories(name, version, machine, url):
    manager = find(DistributionFacts(name, version)).manager
    assert repository_url(manager, machine) == url
    assert repository_url(manager, machine, "https://m/stable/") == f"https://m/stable/{url.rsplit('/', 1)[1]}"


def test_unknown_places_are_refused():
    with pytest.raises(Refused, match="arch 1 is not supported"):
        find(DistributionFacts("arch", "1"))
    with pytest.raises(Refused, match="unknown"):
        find(DistributionFacts())
    with pytest.raises(Refused, match="no container toolkit for ppc64le"):
        repository_url("apt", "ppc64le")
