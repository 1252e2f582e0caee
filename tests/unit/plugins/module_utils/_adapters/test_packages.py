# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The adapters with captured output of the real tools; the real tools themselves are driven by tests/resolver."""

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import package_manager
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.installed_packages import (
    parse_versionlock,
    parse_zypper_locks,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import (
    Change,
    Package,
    PackageError,
    Transaction,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_tools import manager_for
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_apt import (
    Apt,
    describe,
    parse_madison,
    parse_simulation,
    parse_status,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_dnf import (
    Dnf,
    parse_streams,
    parse_transaction,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_zypper import (
    Zypper,
    parse_search,
    parse_summary,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import Repository


class Tools:
    """Answers commands by the first words that match, and remembers what was called."""

    def __init__(self, answers=None):
        self.calls = []
        self.answers = answers or {}

    def __call__(self, command, **_options):
        self.calls.append(list(command))
        line = " ".join(command)
        for words, answer in self.answers.items():
            if words in line:
                rc, stdout, stderr = answer if isinstance(answer, tuple) else (0, answer, "")
                return Result(tuple(command), rc, stdout, stderr)
        return Result(tuple(command), 0, "", "")


MADISON = """nvidia-open | 580.178.04-1 | https://mirror.invalid/debian12/x86_64  Packages
nvidia-open | 580.178.04-1 | https://other.invalid bookworm/main amd64 Packages
nvidia-open | 580.126.09-1 | https://mirror.invalid/debian12/x86_64  Packages
   nvidia-x | 1 | https://mirror.invalid x Sources
"""


def test_madison():
    assert parse_madison(MADISON) == (
        Package("nvidia-open", "580.178.04-1", "https://mirror.invalid/debian12/x86_64"),
        Package("nvidia-open", "580.126.09-1", "https://mirror.invalid/debian12/x86_64"),
    )


def test_apts_simulation():
    text = """Reading package lists...
The following packages will be upgraded:
  libcuda1
The following packages will be DOWNGRADED:
  libnvidia-ml1
0 upgraded, 1 newly installed, 1 downgraded, 1 reinstalled, 2 to remove and 0 not upgraded.
Remv nvidia-kernel-dkms [580.126.09-1]
Inst libcuda1 [580.126.09-1] (580.178.04-1 local [amd64])
Inst libnvidia-ml1:amd64 [580.178.04-1] (580.126.09-1 local [amd64]) []
Inst dkms (3.0.10-8 Debian:12/stable [all])
Purg old [1]
Inst same [1] (1 local [amd64])
Conf dkms (3.0.10-8 Debian:12/stable [all])
"""
    assert parse_simulation(text) == (
        Change("remove", "nvidia-kernel-dkms", "580.126.09-1"),
        Change("upgrade", "libcuda1", "580.126.09-1", "580.178.04-1"),
        Change("downgrade", "libnvidia-ml1", "580.178.04-1", "580.126.09-1"),
        Change("install", "dkms", "", "3.0.10-8"),
        Change("remove", "old", "1"),
        Change("reinstall", "same", "1", "1"),
    )


def test_dpkgs_states():
    text = "a\t1\tinstalled\na\t1\tconfig-files\nb\t2\thalf-configured\nc\t3\tconfig-files\nbroken line\n"
    assert parse_status(text) == [("a", "1", "installed"), ("b", "2", "half-configured"), ("c", "3", "config-files")]


def test_apt_reads_installed_and_interrupted(tmp_path):
    (tmp_path / "var/lib/dpkg/updates").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/updates/0001").touch()
    apt = Apt(root=str(tmp_path), runner=Tools({"dpkg-query": "a\t1\tinstalled\nb\t2\tunpacked\n"}))
    assert apt.installed() == {"a": "1"}
    assert apt.interrupted() == ("b", "dpkg's own journal")


def test_apt_repairs_and_says_when_it_cannot():
    tools = Tools()
    Apt(runner=tools).repair()
    assert [call[0] for call in tools.calls] == ["dpkg", "dpkg-query", "apt-get"]
    assert "--reinstall" not in tools.calls[-1]
    cut_off = Tools({"dpkg-query": "a\tok\nlibb:amd64\treinstreq\nc\treinstreq\n", "showhold": "a\nlibb\n"})
    Apt(runner=cut_off).repair()
    assert cut_off.calls[-2][-4:] == ["--reinstall", "--no-install-recommends", "c", "libb:amd64"]
    assert cut_off.calls[-1] == ["apt-mark", "hold", "libb:amd64"]
    broken = Tools({"dpkg": (1, "", "dpkg: error processing x"), "apt-get": (100, "", "E: broken")})
    with pytest.raises(PackageError, match="error processing x"):
        Apt(runner=broken).repair()


def test_apts_errors_have_the_unmet_dependencies():
    said = "noise\nThe following packages have unmet dependencies:\n a : Depends: b (= 1)\n"
    tools = Tools({"apt-get": (100, said, "E: held broken packages.\n")})
    with pytest.raises(PackageError, match=r"install a=1 and remove c: a : Depends: b \(= 1\) / E: held"):
        Apt(runner=tools).simulate(Transaction((Package("a", "1"),), ("c",)))


def test_apts_arguments():
    tools = Tools()
    apt = Apt(runner=tools)
    apt.apply(Transaction((Package("a", "1"), Package("b")), ("c",), allow_downgrades=True))
    call = tools.calls[-1]
    assert call[-3:] == ["a=1", "b", "c-"]
    assert {"--allow-downgrades", "--no-install-recommends", "--purge", "-y"} <= set(call)
    apt.simulate(Transaction((Package("a"),), ignore_holds=True, recommends=True))
    assert {"-s", "--ignore-hold", "--install-recommends"} <= set(tools.calls[-1])
    assert describe(Transaction()) == "do nothing"


def test_a_transactions_preferences_replace_those_of_the_host(tmp_path):
    folder = tmp_path / "etc/apt/preferences.d"
    folder.mkdir(parents=True)
    (folder / "mine").write_text("x")
    (folder / "nvidia-driver-pin").write_text("old")
    seen = {}

    def runner(command, **_options):
        parts = next(word for word in command if word.startswith("Dir::Etc::PreferencesParts="))
        from pathlib import Path

        seen.update({path.name: path.read_text() for path in Path(parts.partition("=")[2]).iterdir()})
        return Result(tuple(command), 0, "", "")

    Apt(root=str(tmp_path), runner=runner).simulate(
        Transaction((Package("a"),), preferences="new", replaces=("nvidia-driver-pin",))
    )
    assert seen == {"mine": "x", "00-gpufleet-transaction": "new"}


def test_apts_update_that_only_warns_is_a_failure():
    tools = Tools({"update": (0, "", "W: Failed to fetch https://x  404\n")})
    with pytest.raises(PackageError, match="404"):
        Apt(runner=tools).refresh()


def test_apts_repository_and_its_conflicts(tmp_path):
    apt = Apt(root=str(tmp_path), runner=Tools())
    repository = Repository("x", "https://mirror.invalid/r", b"key")
    assert apt.add_repository(repository)
    assert not apt.add_repository(repository)
    assert apt.repositories() == ("https://mirror.invalid/r",)
    (tmp_path / "etc/apt/sources.list.d/other.list").write_text(
        "deb [signed-by=/other.gpg] https://mirror.invalid/r /\n"
    )
    # NVIDIA's local-repository package names a key that nobody has put there yet: its source needs just that.
    assert apt.remove_repository("x")
    assert apt.repositories() == ()
    assert apt.add_repository(repository)
    assert (tmp_path / "other.gpg").read_bytes() == b"key"
    assert apt.repositories() == ("https://mirror.invalid/r",)
    assert not apt.has_repository("x")
    assert not apt.add_repository(repository)
    (tmp_path / "other.gpg").write_bytes(b"another key")
    with pytest.raises(PackageError, match=r"signed by /other\.gpg"):
        apt.add_repository(repository)
    (tmp_path / "etc/apt/sources.list.d/other.list").unlink()
    assert apt.add_repository(repository)
    assert apt.has_repository("x")
    assert apt.remove_repository("x")
    assert not apt.remove_repository("x")
    assert apt.write_preferences("p", "text")
    assert apt.preferences("p") == "text"
    assert apt.write_preferences("p", None)
    assert apt.preferences("p") is None


def test_apt_holds_and_has_no_streams():
    tools = Tools({"showhold": "b:amd64\na\n"})
    apt = Apt(runner=tools)
    assert apt.holds() == ("a", "b")
    apt.hold([])
    apt.unhold([])
    apt.hold([Package("a")])
    apt.unhold(["a"])
    assert [call[1] for call in tools.calls] == ["showhold", "hold", "unhold"]
    assert apt.streams() == {}
    for call in (lambda: apt.enable_stream("m", "s"), lambda: apt.reset_stream("m")):
        with pytest.raises(PackageError, match="no module streams"):
            call()


DNF_TABLE = """Dependencies resolved.
================================================================================
 Package               Arch   Version               Repository             Size
================================================================================
Installing:
 nvidia-open           x86_64 3:580.178.04-1.el9    cuda                  6.0 k
     replacing  old-driver.x86_64 3:1-1
Installing dependencies:
 a-package-with-a-name-that-is-far-too-long-for-its-column
                       x86_64 1-1                   cuda                  6.0 k
Upgrading:
 libnvidia-ml          x86_64 3:580.178.04-1.el9    cuda                  6.0 k
Downgrading:
 down                  x86_64 1-1                   cuda                  6.0 k
Removing dependent packages:
 kmod-nvidia-latest-dkms x86_64 3:580.126.09-1.el9  @cuda                 0
Enabling module streams:
 nvidia-driver                580-open

Transaction Summary
================================================================================
Install  2 Packages
"""


def test_dnfs_table():
    installed = {"libnvidia-ml": "3:580.126.09-1.el9", "down": "2-1", "kmod-nvidia-latest-dkms": "3:580.126.09-1.el9"}
    assert set(parse_transaction(DNF_TABLE, installed)) == {
        Change("install", "nvidia-open", "", "3:580.178.04-1.el9"),
        Change("remove", "old-driver", "3:1-1"),
        Change("install", "a-package-with-a-name-that-is-far-too-long-for-its-column", "", "1-1"),
        Change("upgrade", "libnvidia-ml", "3:580.126.09-1.el9", "3:580.178.04-1.el9"),
        Change("downgrade", "down", "2-1", "1-1"),
        Change("remove", "kmod-nvidia-latest-dkms", "3:580.126.09-1.el9"),
    }


def test_versionlocks_of_dnf_4_and_5():
    assert parse_versionlock("nvidia-driver-3:580.126.09-1.el9.*\n!excluded-0:1-1.*\n") == {
        "nvidia-driver": "3:580.126.09-1.el9"
    }
    # dnf takes a lock without the epoch, and one of any epoch; a lock of every version of a name has no version to return.
    assert parse_versionlock("# x\nlibnvidia-container1-1.20.0-1.*\na-b-*:1.0-2\nnvidia-driver-cuda\n") == {
        "libnvidia-container1": "1.20.0-1",
        "a-b": "1.0-2",
    }
    assert parse_versionlock("Package name: nvidia-driver\nevr = 3:580.126.09-1.el9\n") == {
        "nvidia-driver": "3:580.126.09-1.el9"
    }


def test_enabled_streams():
    text = "cuda\nName          Stream       Profiles\nnvidia-driver 580-open [e] default [d]\n\nHint: [d]efault, [e]nabled\n"
    assert parse_streams(text) == {"nvidia-driver": "580-open"}


def test_dnf_reads_and_writes(tmp_path):
    tools = Tools(
        {
            "--version": "4.14.0\n",
            "-qa --qf": "a|3|580.0|1.el9|x86_64|x\na|3|580.1|1.el9|x86_64|x\nb|0|1|1|noarch|(none)\n"
            "kernel|0|5|1|x86_64|x\nkernel|0|6|1|x86_64|x\n",
            "repoquery": "a|3|580.1|1.el9|x86_64|cuda\na|3|580.2|1.el9|x86_64|cuda\n",
            "module list": "nvidia-driver 580-open [e]\n",
            "versionlock list": "a-3:580.1-1.el9.*\n",
        }
    )
    dnf = Dnf(root=str(tmp_path), runner=tools)
    assert dnf.installed() == {"a": "3:580.1-1.el9", "b": "1-1", "kernel": "6-1"}
    assert dnf.interrupted() == ("a",)
    assert [package.version for package in dnf.offered(["a"])] == ["3:580.2-1.el9", "3:580.1-1.el9"]
    assert dnf.offered([]) == ()
    assert dnf.streams() == {"nvidia-driver": "580-open"}
    assert dnf.holds() == ("a",)
    dnf.enable_stream("nvidia-driver", "580-open")
    dnf.enable_stream("nvidia-driver", "595-open")
    assert tools.calls[-1][-3:] == ["module", "enable", "nvidia-driver:595-open"]
    dnf.hold([Package("a", "3:580.1-1.el9")])
    assert tools.calls[-2][-2:] == ["delete", "a"]
    assert tools.calls[-1][-2:] == ["--raw", "a-3:580.1-1.el9.*"]
    dnf.hold([Package("b", "1-1"), Package("c", "2-1")])
    assert tools.calls[-1][-3:] == ["--raw", "b-0:1-1.*", "c-0:2-1.*"]
    assert dnf.missing_for_holds() == ()
    dnf.unhold(["a"])
    dnf.refresh()
    dnf.repair()
    assert dnf.add_repository(Repository("x", "https://mirror.invalid/r", b"key"))
    assert dnf.repositories() == ("https://mirror.invalid/r",)
    assert dnf.remove_repository("x")
    dnf.apply(Transaction((Package("c", "1-1"),), ("a", "gone")))
    assert tools.calls[-1][-2:] == ["remove", "a"]


def test_dnf_tells_a_resolution_from_an_error():
    good = Tools({"--assumeno": (1, DNF_TABLE, "Operation aborted.\n"), "--version": "4.14.0"})
    changes = Dnf(runner=good).simulate(
        Transaction((Package("nvidia-open", "", "cuda"),), stream="nvidia-driver:580-open")
    )
    assert changes
    assert "--setopt=cuda.module_hotfixes=1" in good.calls[-1]
    bad = Tools({"dnf": (1, "", "Error: \n Problem: nothing provides dkms needed by x\n"), "rpm": ""})
    with pytest.raises(PackageError, match="nothing provides dkms"):
        Dnf(runner=bad).simulate(Transaction((Package("x"),), ignore_holds=True))
    with pytest.raises(PackageError, match="nothing provides dkms"):
        Dnf(runner=bad).apply(Transaction((Package("x"),)))


def test_a_minimal_system_lacks_the_plugin_that_locks():
    missing = (1, "", "No such command: versionlock. Please use /usr/bin/dnf --help\n")
    tools = Tools({"--version": "4.14.0", "versionlock list": missing, "-qa": "dkms|0|3|1|noarch|x\n"})
    assert Dnf(runner=tools).missing_for_holds() == ("python3-dnf-plugin-versionlock",)
    assert Dnf(runner=tools).holds() == ()
    tools.answers["-qa"] = "python3-dnf-plugin-versionlock|0|4|1|noarch|x\n"
    with pytest.raises(PackageError, match="enabled=1"):
        Dnf(runner=tools).missing_for_holds()
    tools.answers["versionlock list"] = (1, "", "Error: Unable to read version lock configuration\n")
    with pytest.raises(PackageError, match="list version locks"):
        Dnf(runner=tools).holds()


def test_a_repository_on_trial_is_seen_and_leaves_nothing(tmp_path):
    repository = Repository("x", "https://mirror.invalid/r/", b"key")
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list.d/own.list").write_text("deb https://own.invalid/r /\n")
    (tmp_path / "var/lib/apt/lists").mkdir(parents=True)
    (tmp_path / "var/lib/apt/lists/own.invalid_r_Packages").write_text("")
    for manager in (Apt(root=str(tmp_path), runner=Tools()), Dnf(root=str(tmp_path), runner=Tools())):
        before = sorted(tmp_path.rglob("*"))
        with manager.trial(repository) as tried:
            assert "https://mirror.invalid/r" in tried.repositories()
        assert "https://mirror.invalid/r" not in manager.repositories()
        assert sorted(tmp_path.rglob("*")) == before
    # A source of the same address with another key would keep apt from reading anything.
    same = tmp_path / "etc/apt/sources.list.d/same.list"
    same.write_text("deb [signed-by=/x.gpg] https://mirror.invalid/$(ARCH) /\n")
    tools = Tools()
    with Apt(root=str(tmp_path), runner=tools).trial(repository):
        parts = next(word for word in reversed(tools.calls[-1]) if word.startswith("Dir::Etc::SourceParts="))
        assert sorted(os.listdir(f"{parts.partition('=')[2]}/../parts")) == ["own.list", "x.sources"]
    with Zypper(root=str(tmp_path), runner=Tools()).trial(repository) as tried:
        assert tried is None


def test_streams_that_are_offered():
    listed = "cuda\nName Stream Profiles\nnvidia-driver 580-open [e] default\nnvidia-driver 595-open default\n\nHint: [d]efault\n"
    tools = Tools({"--version": "4.14.0", "module list nvidia-driver": listed})
    assert Dnf(runner=tools).offered_streams("nvidia-driver") == ("580-open", "595-open")
    tools.answers["module list nvidia-driver"] = (1, "", "Error: No matching Modules to list\n")
    assert Dnf(runner=tools).offered_streams("nvidia-driver") == ()
    assert Dnf(runner=Tools({"--version": "dnf5 version 5.2\n"})).offered_streams("x") == ()
    assert Apt().offered_streams("x") == Zypper().offered_streams("x") == ()


def test_dnf_5_is_told_apart():
    tools = Tools({"--version": "dnf5 version 5.2\n"})
    dnf = Dnf(runner=tools)
    assert dnf.generation() == 5
    assert dnf.streams() == {}
    dnf.hold([Package("a", "3:1-1")])
    assert tools.calls[-1][-1] == "a = 3:1-1"
    assert dnf.missing_for_holds() == ()


ZYPPER_SEARCH = """<?xml version='1.0'?>
<stream>
<search-result version="0.0"><solvable-list>
<solvable status="installed" name="a" kind="package" edition="580.1-1" arch="x86_64" repository="cuda"/>
<solvable status="installed" name="b" kind="package" edition="1-1" arch="x86_64" repository="(System Packages)"/>
<solvable status="other-version" name="p" kind="pattern" edition="1-1" arch="x86_64" repository="cuda"/>
</solvable-list></search-result>
</stream>
"""
ZYPPER_SUMMARY = """<?xml version='1.0'?>
<stream>
<install-summary download-size="0">
<to-install><solvable type="package" name="a" edition="580.1-1" arch="x86_64"/></to-install>
<to-upgrade><solvable type="package" name="b" edition="2-1" edition-old="1-1"/></to-upgrade>
<to-downgrade><solvable type="package" name="d" edition="1-1" edition-old="2-1"/></to-downgrade>
<to-remove><solvable type="package" name="c" edition="3-1"/><solvable type="pattern" name="p" edition="1"/></to-remove>
<other/>
</install-summary>
</stream>
"""


def test_zyppers_answers():
    assert parse_search(ZYPPER_SEARCH) == (Package("a", "580.1-1", "cuda"),)
    assert parse_summary(ZYPPER_SUMMARY) == (
        Change("install", "a", "", "580.1-1"),
        Change("upgrade", "b", "1-1", "2-1"),
        Change("downgrade", "d", "2-1", "1-1"),
        Change("remove", "c", "3-1", ""),
    )
    assert parse_summary("nothing") == ()
    assert parse_zypper_locks("\ntype: package\nmatch_type: glob\nsolvable_name: a\n") == ("a",)
    with pytest.raises(PackageError, match="read zypper's answer"):
        parse_search("<?xml version='1.0'?><stream><a></stream>")


def test_zypper_reads_and_writes(tmp_path):
    (tmp_path / "etc/zypp").mkdir(parents=True)
    (tmp_path / "etc/zypp/locks").write_text("solvable_name: a\n")
    tools = Tools(
        {
            "-qa": "a|0|580.1|1|x86_64|x\nb|3|1|1|noarch|x\n",
            "-Va": "Unsatisfied dependencies for nvidia-x-1-1.x86_64:\nUnsatisfied dependencies for other-1:\n",
            "search": ZYPPER_SEARCH,
            "--dry-run": ZYPPER_SUMMARY,
        }
    )
    zypper = Zypper(root=str(tmp_path), runner=tools)
    assert zypper.installed() == {"a": "580.1-1", "b": "3:1-1"}
    assert zypper.interrupted() == ("nvidia-x-1-1.x86_64",)
    assert zypper.offered(["a"]) == (Package("a", "580.1-1", "cuda"),)
    assert zypper.offered([]) == ()
    assert zypper.holds() == ("a",)
    transaction = Transaction((Package("a", "580.1-1"), Package("b")), ("c",), allow_downgrades=True, ignore_holds=True)
    assert len(zypper.simulate(transaction)) == 4
    zypper.apply(transaction)
    assert tools.calls[-1][-3:] == ["a=580.1-1", "b", "!c"]
    assert "--oldpackage" in tools.calls[-1]
    zypper.apply(Transaction(remove=("c",)))
    assert tools.calls[-1][-3:] == ["remove", "--no-clean-deps", "c"]
    zypper.hold([Package("a")])
    zypper.unhold(["a"])
    zypper.refresh()
    zypper.repair()
    assert zypper.add_repository(Repository("x", "https://mirror.invalid/r", b"key"))
    assert any("--import" in call for call in tools.calls)
    assert zypper.repositories() == ("https://mirror.invalid/r",)
    assert zypper.remove_repository("x")
    assert zypper.streams() == {}


@pytest.mark.parametrize("rc", [4, 7, 107])
def test_zyppers_failures_are_told_from_its_information(rc):
    tools = Tools({"zypper": (rc, "Loading repository data...\n<message>nothing provides x</message>\n", "")})
    zypper = Zypper(runner=tools)
    for call in (zypper.simulate, zypper.apply):
        with pytest.raises(PackageError, match="nothing provides x"):
            call(Transaction((Package("a"),)))
    Zypper(runner=Tools({"zypper": (102, "", "")})).apply(Transaction((Package("a"),)))
    assert Zypper(runner=Tools({"search": (104, "", "")})).offered(["a"]) == ()
    for call in (lambda: zypper.enable_stream("m", "s"), lambda: zypper.reset_stream("m")):
        with pytest.raises(PackageError, match="no module streams"):
            call()


@pytest.mark.parametrize(("made", "said"), [(Apt, "E: Could not get lock"), (Dnf, "it is locked by another process")])
def test_a_lock_is_waited_for_until_it_is_free_or_patience_is_over(monkeypatch, made, said):
    monkeypatch.setattr(package_manager, "_PAUSE", 0)
    answers = iter([1, 1, 0])
    made(runner=lambda command, **_options: Result(tuple(command), next(answers), "", said)).unhold(["a"])
    assert next(answers, None) is None
    monkeypatch.setattr(package_manager, "LOCK_TIMEOUT", 0)
    with pytest.raises(PackageError, match=said):
        made(runner=lambda command, **_options: Result(tuple(command), 1, "", said)).unhold(["a"])


def test_a_change_of_a_package_as_it_is_reported():
    assert Change("install", "a", "", "1").as_dict() == {"action": "install", "name": "a", "before": "", "after": "1"}


def test_managers_by_name():
    assert [manager_for(name).name for name in ("apt", "dnf", "zypper")] == ["apt", "dnf", "zypper"]
    with pytest.raises(PackageError, match="pacman"):
        manager_for("pacman")
