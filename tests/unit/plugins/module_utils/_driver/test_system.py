# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver's host through its adapters: what is asked of them, and what becomes of their answers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.openpgp import KeyRefused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_apt import Apt
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import state, system
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host, Signing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages import package_set
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import names
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

DEBIAN = Host(DISTRIBUTIONS["debian", "12"], "x86_64", "6.1.0-50-amd64")
RHEL_10 = Host(DISTRIBUTIONS["rhel", "10"], "aarch64", "6.12.0")
#: Of the key file of RHEL 10, as NVIDIA's own Dockerfile has it (gpu-driver-container, rhel10).
DIGEST = "afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb"
FACTS = {
    "host": {
        "kernel": "6.1.0-50-amd64",
        "architecture": "x86_64",
        "distribution": {"id": "debian", "version": "12"},
        "secure_boot": True,
    }
}


def manager(packages):
    made = PackageManager(packages, ["nvidia-smi"])
    made.needed, made.half = ("a-plugin",), ("libcuda1",)
    made.enabled_streams, made.own_repositories = {"nvidia-driver": "580-open"}, {"gpufleet-nvidia-driver"}
    return made


@pytest.fixture
def bare(monkeypatch):
    """A host whose facts are given."""
    monkeypatch.setattr(system, "read_document", lambda _source: FACTS)
    monkeypatch.setattr(system.module_signing, "configured", lambda _kernel: {})
    monkeypatch.setattr(system.module_signing, "enrolled", lambda path: f"asked for {path}")


def fetching(_url, _credentials):
    return b"no OpenPGP key"


@pytest.mark.usefixtures("bare")
def test_a_signing_key_that_is_not_there_is_not_asked_for(monkeypatch, tmp_path):
    files = {"mok_signing_key": f"{tmp_path}/a.key", "mok_certificate": f"{tmp_path}/a.der"}
    monkeypatch.setattr(system.module_signing, "configured", lambda _kernel: files)
    read = system.DriverSystem(fetching, manager({"openssl": "3"})).read
    assert read().signing == Signing(f"{tmp_path}/a.key", f"{tmp_path}/a.der", False, None, ("dkms", "mokutil"))
    for path in files.values():
        with open(path, "w", encoding="utf-8"):
            pass
    found = read().signing
    assert found.exists
    assert found.enrolled == f"asked for {tmp_path}/a.der"


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("release", "configured", "certificate"),
    [
        (("debian", "12"), {}, "/var/lib/dkms/mok.pub"),
        (("ubuntu", "24.04"), {}, "/var/lib/shim-signed/mok/MOK.der"),
        # dkms on Ubuntu looks at the certificate of the configuration only when that names the key too.
        (("ubuntu", "24.04"), {"mok_certificate": "/srv/a.der"}, "/var/lib/shim-signed/mok/MOK.der"),
        (("ubuntu", "24.04"), {"mok_signing_key": "/srv/a.key"}, "/var/lib/dkms/mok.pub"),
        (("debian", "12"), {"mok_certificate": "/srv/a.der"}, "/srv/a.der"),
    ],
)
def test_which_certificate_dkms_signs_with(monkeypatch, release, configured, certificate):
    distribution = {"id": release[0], "version": release[1]}
    monkeypatch.setattr(
        system, "read_document", lambda _source: {"host": {**FACTS["host"], "distribution": distribution}}
    )
    monkeypatch.setattr(system.module_signing, "configured", lambda _kernel: configured)
    assert system.DriverSystem(fetching, manager({})).read().signing.certificate == certificate


def test_the_distributions_own_program_makes_the_usual_key(monkeypatch):
    calls = []
    monkeypatch.setattr(system.module_signing, "create", lambda *given: calls.append(given))
    ubuntu = DISTRIBUTIONS["ubuntu", "24.04"]
    key = ubuntu.module_key
    host = Host(ubuntu, "x86_64", "6.8.0-40-generic", signing=Signing(key.key, key.certificate))
    subject = system.DriverSystem(fetching, manager({}))
    subject.create_signing_key(host)
    subject.create_signing_key(replace(host, signing=Signing("/srv/a.key", "/srv/a.der")))
    assert calls == [
        (key.key, key.certificate, ("update-secureboot-policy", "--new-key")),
        ("/srv/a.key", "/srv/a.der", ()),
    ]


@pytest.mark.usefixtures("bare")
def test_reads_the_drivers_packages_only():
    host = system.DriverSystem(fetching, manager({"nvidia-smi": "535.261.03-1", "bash": "5"})).read()
    assert dict(host.packages) == {"nvidia-smi": "535.261.03-1"}
    assert (host.holds, host.interrupted) == (("nvidia-smi",), ("libcuda1",))
    assert all(free >= 0 for free in host.free_mib.values())
    assert {path for paths in host.free_mib for path in paths.split(",")} <= set(system.NEEDED_MIB)


@pytest.mark.usefixtures("bare")
def test_what_follows_a_kernel_and_what_the_fabric_needs_is_read_beside_the_driver(monkeypatch):
    """Without its name the headers of later kernels, and the subnet manager of NVLink 5, would be missing for ever."""
    installed = {"linux-image-amd64": "6.1.176-1", "linux-image-6.1.0-50-amd64": "6.1.176-1", "nvlsm": "2025.06.11-1"}
    read = system.DriverSystem(fetching, manager(installed)).read
    host = read()
    assert (host.kernel_packages, dict(host.packages)) == (("linux-image-amd64",), {"nvlsm": "2025.06.11-1"})
    assert not host.headers
    monkeypatch.setattr(system, "read_document", lambda _source: {"host": {**FACTS["host"], "kernel_headers": True}})
    assert read().headers


@pytest.mark.usefixtures("bare")
def test_holds_are_read_where_nothing_is_installed_too():
    host = system.DriverSystem(fetching, manager({"bash": "5"})).read()
    assert (host.holds, host.missing_for_holds) == (("nvidia-smi",), ("a-plugin",))


def test_what_remains_besides_the_packages(tmp_path):
    made = system.DriverSystem(fetching, manager({}))
    assert made.remains(DesiredDriver()).named == (
        "the repository gpufleet-nvidia-driver",
        "the module stream nvidia-driver:580-open",
    )
    theirs = DesiredDriver(repository=DesiredRepository(manage=False))
    assert made.remains(theirs).named == ("the module stream nvidia-driver:580-open",)
    apt = Apt(root=str(tmp_path))
    apt.write_preferences("gpufleet-nvidia-driver", "Package: x\n")
    assert system.DriverSystem(fetching, apt).remains(theirs).named == ("the preferences file",)
    assert made.has_file(str(tmp_path))
    other = made.over(apt)
    assert (other.manager, made.manager is apt) == (apt, False)


@pytest.mark.usefixtures("bare")
def test_the_package_manager_is_that_of_the_distribution(monkeypatch):
    asked = []
    monkeypatch.setattr(system, "manager_for", lambda name: asked.append(name) or manager({}))
    made = system.DriverSystem(fetching)
    with pytest.raises(RuntimeError, match="not been read"):
        made.manager.installed()
    made.read()
    assert made.manager.installed() == {}
    assert asked == ["apt"]


@pytest.mark.parametrize(
    ("desired", "url"),
    [
        ({"source": "distribution"}, ""),
        ({}, "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"),
        ({"repository": DesiredRepository(url="https://mirror.example.com/d/")}, "https://mirror.example.com/d"),
    ],
)
def test_where_packages_come_from(desired, url):
    assert system.DriverSystem(fetching).repository_url(DEBIAN, DesiredDriver(**desired)) == url


@pytest.mark.parametrize(
    ("host", "repository", "error", "said"),
    [
        (DEBIAN, {"url": "http://mirror.example.com/d"}, Failure, "without TLS"),
        (RHEL_10, {}, KeyRefused, f"expected {DIGEST}"),
        (DEBIAN, {"url": "https://mirror.example.com/d"}, Refused, "knows no key of the repository https://mirror"),
        (RHEL_10, {"url": "https://mirror.example.com/d"}, Refused, "knows no key of the repository https://mirror"),
        (DEBIAN, {}, KeyRefused, "OpenPGP"),
        (DEBIAN, {"key_url": "http://mirror.example.com/key"}, Failure, "without TLS"),
        (DEBIAN, {"key_file": "/nowhere/key.gpg"}, Refused, "/nowhere/key.gpg cannot be read"),
    ],
)
def test_keys_that_are_not_trusted(host, repository, error, said):
    desired = DesiredDriver(repository=DesiredRepository(**repository))
    with pytest.raises(error, match=said):
        system.DriverSystem(fetching).repository(host, desired)


def test_a_verified_key_is_handed_on(monkeypatch, tmp_path):
    (tmp_path / "key.gpg").write_bytes(b"of the file")
    monkeypatch.setattr(
        package_set, "verified_key", lambda content, fingerprint, _source: content + fingerprint.encode()
    )
    own = DesiredRepository(url="file:///srv/r", key_file=str(tmp_path / "key.gpg"), key_fingerprint="F1")
    made = system.DriverSystem(fetching).repository(DEBIAN, DesiredDriver(repository=own))
    assert (made.url, made.key, made.identifier) == ("file:///srv/r", b"of the fileF1", "gpufleet-nvidia-driver")


def test_the_key_of_rhel_10_is_fetched_by_its_name_and_known_by_its_digest(monkeypatch):
    monkeypatch.setattr(package_set, "key_of_digest", lambda *given: given)
    made = system.DriverSystem(fetching).repository(RHEL_10, DesiredDriver())
    url = "https://developer.download.nvidia.com/compute/cuda/repos/rhel10/sbsa/CDF6BA43.pub"
    assert made.key == (b"no OpenPGP key", DIGEST, url)


def test_the_record_is_private(monkeypatch, tmp_path):
    path = tmp_path / "previous.json"
    monkeypatch.setattr(state, "PATH", str(path))
    made = system.DriverSystem(fetching)
    assert made.record is None
    record = state.PreviousDriver("580.1", {"a": "1"}, "open", "nvidia")
    made.write_record(record)
    assert made.record == record
    assert path.stat().st_mode & 0o777 == 0o600


def test_only_apt_has_preferences(tmp_path):
    apt = system.DriverSystem(fetching, Apt(root=str(tmp_path)))
    (tmp_path / "etc/apt/preferences.d").mkdir(parents=True)
    assert apt.write_preferences("Package: *\n")
    assert apt.preferences() == "Package: *\n"
    assert apt.write_preferences(None)
    other = system.DriverSystem(fetching, manager({}))
    assert (other.write_preferences("x"), other.preferences()) == (False, None)


def test_files_are_written_and_removed(tmp_path):
    path = str(tmp_path / "x")
    made = system.DriverSystem(fetching)
    assert made.write_file(path, "a")
    assert not made.write_file(path, "a")
    assert made.write_file(path, None)


def test_who_has_a_device_file_open_uses_the_driver(monkeypatch):
    holders = [{"pid": 7, "command": "python3", "devices": ["/dev/nvidiactl"]}]
    monkeypatch.setattr(system, "device_holders", lambda _files: SimpleNamespace(holders=holders))
    assert names(system.DriverSystem(fetching).users()) == ("python3 (PID 7)",)


def test_modules_are_named_from_the_top_down(monkeypatch):
    made = system.DriverSystem(fetching)
    monkeypatch.setattr(made._files, "exists", lambda path: path in ("/sys/module/nvidia", "/sys/module/nvidia_uvm"))
    monkeypatch.setattr(system, "reference_count", lambda _files, name: len(name))
    assert made.modules() == ("nvidia_uvm", "nvidia")
    assert made.reference_counts(("nvidia",)) == {"nvidia": 6}


def missing(*_arguments, **_options):
    raise CommandError(("modprobe",), "it is not installed")


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda *_: Result(("modprobe",), 0, "", ""), ""),
        (lambda *_: Result(("modprobe",), 1, "", " in use \n"), "in use"),
        (lambda *_: Result(("modprobe",), 3, "", ""), "exit status 3"),
        (missing, str(CommandError(("modprobe",), "it is not installed"))),
    ],
)
def test_complaints_about_modules(monkeypatch, call, complaint):
    monkeypatch.setattr(system, "load_module", call)
    monkeypatch.setattr(system, "unload_module", call)
    made = system.DriverSystem(fetching)
    assert (made.load("nvidia"), made.unload("nvidia")) == (complaint, complaint)


def test_questions_about_the_kernel_are_passed_on(monkeypatch):
    monkeypatch.setattr(system, "module_exists", lambda name, kernel: (name, kernel) == ("a", "6.1"))
    monkeypatch.setattr(system, "is_blocked", lambda name: name == "nouveau")
    monkeypatch.setattr(system, "renew_initramfs", lambda command: command == ["dracut"])
    made = system.DriverSystem(fetching)
    assert made.module_exists("a", "6.1")
    assert made.is_blocked("nouveau")
    assert made.renew_initramfs(["dracut"])


def test_units(monkeypatch):
    called = []
    units = {"a": Unit("a", "loaded", "active"), "b": Unit("b", "not-found", "inactive")}
    monkeypatch.setattr(system.systemd, "available", lambda: True)
    monkeypatch.setattr(system.systemd, "units", lambda names: {name: units[name] for name in names})
    monkeypatch.setattr(system.systemd, "unit", units.__getitem__)
    monkeypatch.setattr(system.systemd, "enabled", lambda names: {"a"} & set(names))
    monkeypatch.setattr(system, "reload_units", lambda *given: called.append(("reload_units", *given)))
    for name in ("start", "restart", "stop", "enable"):
        monkeypatch.setattr(system.systemd, name, lambda *given, name=name, **_: called.append((name, *given)))
    monkeypatch.setattr(system, "run", lambda command, **_: called.append(command) or Result(command, 0, "text", ""))
    made = system.DriverSystem(fetching)
    assert made.active_units(["a", "b"]) == ("a",)
    assert (made.unit_exists("a"), made.unit_exists("b")) == (True, False)
    assert (made.unit_enabled("a"), made.unit_enabled("b")) == (True, False)
    assert not made.unit_wanted_at_boot("no-such-unit.service")
    assert made.unit_text("a") == "text"
    made.start("a"), made.restart("a"), made.stop("a"), made.enable("a"), made.add_wants("a"), made.reload_unit("a")
    assert called[1:] == [
        ("start", "a"),
        ("restart", "a"),
        ("stop", "a"),
        ("enable", ["a"]),
        ["systemctl", "add-wants", "--no-reload", "multi-user.target", "a"],
        ("reload_units", ["a"], ["a"]),
    ]


def test_without_systemd_there_are_no_units(monkeypatch):
    monkeypatch.setattr(system.systemd, "available", lambda: False)
    made = system.DriverSystem(fetching)
    assert made.active_units(["a"]) == ()
    assert not made.unit_exists("a")


def test_nvidia_smi_that_does_not_come_back(monkeypatch):
    monkeypatch.setattr(system, "run", lambda command, **_: Result(command, 15, "", ""))
    assert system.DriverSystem(fetching).nvidia_smi() == 15
    monkeypatch.setattr(system, "run", missing)
    assert system.DriverSystem(fetching).nvidia_smi() is None
