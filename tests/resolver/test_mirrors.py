# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mirror, given by its address, key file and fingerprint, on every distribution and both architectures: configured by the
collection, and resolved by the distribution's own package manager. NVIDIA's local-repository package, likewise.
"""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.openpgp import KeyRefused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import PackageError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import Credentials, canonical
from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.apply import plan_packages
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import REPOSITORY_NAME, DesiredDriver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.packages import hold_names, versioned
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.runner import make_plan, tried_repository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from repositories import Signer, build_deb, build_deb_repository, build_rpm, build_rpm_repository, call, sign_metadata
from roots import PLUGIN_MARK, StandInSystem, bare_apt, bare_dnf, bare_zypper, dnf_root
from stand_ins import (
    DEBIAN_KERNEL,
    LATER,
    NEXT,
    RHEL_KERNEL,
    SUSE_KERNEL,
    UBUNTU_KERNEL,
    StandIn,
    deb_base,
    nvidia_debian,
    nvidia_red_hat,
    nvidia_suse,
    nvidia_ubuntu,
    rpm_base,
    streams,
    suse_base,
)

VERSIONS = (LATER, NEXT)
#: What asking makes: rpm's empty database and dnf's notes to itself.
DATABASES = ("rpmdb.sqlite", "history.sqlite", ".rpm.lock")
#: What `uname -m` says, and what dpkg and rpm call it.
MACHINES = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}
KERNELS = {"debian": DEBIAN_KERNEL, "ubuntu": UBUNTU_KERNEL, "redhat": RHEL_KERNEL, "suse": SUSE_KERNEL}


def kernel_of(distribution, machine):
    name = KERNELS[DISTRIBUTIONS[distribution].names]
    return name.replace("amd64", "arm64").replace("x86_64", machine) if machine == "aarch64" else name


def packages_for(world: str) -> dict[str, list[StandIn]]:
    """Return NVIDIA's packages by driver version."""
    makers = {"debian": nvidia_debian, "ubuntu": nvidia_ubuntu, "redhat": nvidia_red_hat, "suse": nvidia_suse}
    return {version: makers[world](version) for version in VERSIONS}


@pytest.fixture(scope="session")
def mirrors(workspace, signer):
    """Build a mirror the first time that it is asked for; tests of one worker share it."""
    built: dict[tuple[str, str, bool], str] = {}

    def mirror(distribution, machine: str) -> str:
        described = DISTRIBUTIONS[distribution]
        with_streams = described.pinning == "module_stream"
        key = (described.names, machine, with_streams)
        if key not in built:
            kernel = kernel_of(distribution, machine)
            found = packages_for(described.names)
            packages = [package for several in found.values() for package in several]
            folder = workspace / "-".join(["mirror", described.names, machine, *(["streams"] if with_streams else [])])
            if described.manager == "apt":
                built[key] = build_deb_repository(folder, [*deb_base(kernel), *packages], signer, MACHINES[machine][0])
            else:
                modules = streams(found, machine) if with_streams else ""
                base = rpm_base(kernel) if described.names == "redhat" else suse_base(kernel)
                built[key] = build_rpm_repository(folder, [*base, *packages], signer, modules, machine=machine)
        return built[key]

    return mirror


@pytest.fixture(scope="session")
def bases(workspace):
    """Packages that any SLES has: zypper cannot read an rpm database without a package in it."""
    return {
        machine: build_rpm(workspace / f"base-{machine}", StandIn("aaa_base", "84.87-1"), machine)
        for machine in MACHINES
    }


@pytest.fixture
def bare(tmp_path, plugins, bases):
    """Make a system of a distribution, with no repository at all."""

    def make(distribution, machine="x86_64", **host):
        described, root = DISTRIBUTIONS[distribution], tmp_path / "root"
        if described.manager == "apt":
            manager = bare_apt(root, MACHINES[machine][0])
        elif described.manager == "dnf":
            manager = bare_dnf(root, plugins, distribution[1].partition(".")[0], machine)
        else:
            manager = bare_zypper(root, machine)
            put = manager._rpm.run("-i", "--ignorearch", "--nosignature", str(bases[machine]))
            assert put.rc == 0, put.stderr
        return StandInSystem(manager, distribution, kernel_of(distribution, machine), machine, **host)

    return make


@pytest.fixture
def key_file(tmp_path, signer):
    path = tmp_path / "mirror.asc"
    path.write_bytes(signer.public_key())
    return str(path)


def desired_for(url, key_file, signer, **more) -> DesiredDriver:
    return DesiredDriver(version=LATER, repository=DesiredRepository(url, "", key_file, signer.fingerprint), **more)


ONE_OF_EACH = [("debian", "12"), ("rocky", "9"), ("sles", "15")]
#: By default each distribution comes once, and one of each package manager on every architecture.
EVERYWHERE = [
    pytest.param(key, machine, marks=[pytest.mark.by_name] * (number > 0 and key not in ONE_OF_EACH))
    for key, row in DISTRIBUTIONS.items()
    for number, machine in enumerate(row.machines)
]


@pytest.mark.proves("driver", "mirror", by="distribution")
@pytest.mark.parametrize(
    ("distribution", "machine"), EVERYWHERE, ids=lambda part: "-".join(part) if isinstance(part, tuple) else part
)
def test_a_mirror_is_configured_and_resolved(bare, mirrors, key_file, signer, distribution, machine):
    made, url = bare(distribution, machine), mirrors(distribution, machine)
    desired = desired_for(url, key_file, signer)
    resolved = made.plan(desired)
    assert resolved.plan.steps[0].kind is Kind.ADD_REPOSITORY
    installed = {change.name: change.after for change in resolved.changes}
    assert set(versioned(installed).values()) == {LATER}
    assert made.manager.repositories() == (url,)
    # Where NVIDIA's own repository is for this machine, which the mirror stands for.
    assert DISTRIBUTIONS[distribution].url(machine).endswith("/sbsa" if machine == "aarch64" else "/x86_64")


each_manager = pytest.mark.parametrize("distribution", ONE_OF_EACH, ids=["apt", "dnf", "zypper"])


@pytest.mark.parametrize(
    "distribution", [("debian", "12"), ("rocky", "9"), ("rhel", "10")], ids=["apt", "dnf", "dnf-flat"]
)
def test_check_mode_tries_the_mirror_and_leaves_the_host_as_it_is(bare, mirrors, key_file, signer, distribution):
    made, url = bare(distribution), mirrors(distribution, "x86_64")
    desired = desired_for(url, key_file, signer)
    root = Path(made.manager._root)
    before = {path for path in root.rglob("*") if "/var/cache/" not in str(path) and "/var/log/" not in str(path)}
    host = made.read()
    resolved = tried_repository(made, host, desired, make_plan(made, host, desired))
    assert resolved.version == LATER
    assert set(versioned({change.name: change.after for change in resolved.changes}).values()) == {LATER}
    after = {path for path in root.rglob("*") if "/var/cache/" not in str(path) and "/var/log/" not in str(path)}
    assert not [path for path in after - before if path.is_file() and not path.name.startswith(DATABASES)]
    assert made.manager.repositories() == ()
    # For real it is the same.
    assert made.plan(desired).changes == resolved.changes


@each_manager
def test_a_key_with_another_fingerprint_leaves_nothing_behind(bare, mirrors, key_file, signer, distribution):
    made = bare(distribution)
    repository = DesiredRepository(mirrors(distribution, "x86_64"), "", key_file, "0" * 40)
    with pytest.raises(KeyRefused, match=f"it holds {signer.fingerprint}, expected only 0000"):
        made.plan(DesiredDriver(version=LATER, repository=repository))
    assert not made.manager.has_repository(REPOSITORY_NAME)
    assert made.manager.repositories() == ()


@pytest.mark.proves("trap", "", rows=["key"])
@each_manager
def test_a_mirror_that_is_signed_by_somebody_else_is_not_read(tmp_path, bare, key_file, signer, distribution):
    """The key that the user vouches for is the right one, and the packages or lists are not signed by it."""
    other = Signer.create(tmp_path / "other")
    try:
        described = DISTRIBUTIONS[distribution]
        packages = packages_for(described.names)[LATER]
        if described.manager == "apt":
            url = build_deb_repository(tmp_path / "forged", [*deb_base(), *packages], other)
        else:
            base, modules = (
                (suse_base(), "") if described.manager == "zypper" else (rpm_base(), streams({LATER: packages}))
            )
            url = build_rpm_repository(tmp_path / "forged", [*base, *packages], other, modules)
            sign_metadata(tmp_path / "forged", other)
        made = bare(distribution)
        with pytest.raises(
            PackageError, match=r"NO_PUBKEY|couldn't be verified|not correct|[Ss]ignature|GPG|not installed"
        ):
            made.bring(desired_for(url, key_file, signer))
        assert not made.read().packages
        if described.manager != "apt":
            trusted = made.manager._rpm.run("-qa", "gpg-pubkey*", "--qf", "%{VERSION}\\n").stdout.split()
            assert trusted in ([], [signer.fingerprint[-8:].lower()])
    finally:
        other.close()


def test_a_mirror_without_the_module_metadata_is_refused_with_what_it_lacks(tmp_path, bare, key_file, signer):
    packages = [*rpm_base(), *packages_for("redhat")[LATER]]
    url = build_rpm_repository(tmp_path / "without", packages, signer)
    with pytest.raises(Refused, match=r"no module stream nvidia-driver:580-open.*modules\.yaml"):
        bare(("rocky", "9")).plan(desired_for(url, key_file, signer))


def test_on_a_minimal_system_the_plugin_that_locks_comes_first(tmp_path, plugins, mirrors, signer):
    """dnf without python3-dnf-plugin-versionlock, which the system's own repository has."""
    plugin = StandIn("python3-dnf-plugin-versionlock", "4.3.0-1", files=((f"/{PLUGIN_MARK}", "x\n"),))
    system = build_rpm_repository(tmp_path / "baseos", [plugin], signer)
    made = StandInSystem(
        dnf_root(tmp_path / "root", system, signer, plugins, "10", locks=False), ("rhel", "10"), RHEL_KERNEL
    )
    key = tmp_path / "key.asc"
    key.write_bytes(signer.public_key())
    desired = desired_for(mirrors(("rhel", "10"), "x86_64"), str(key), signer)
    assert made.manager.holds() == ()
    resolved = made.bring(desired)
    steps = resolved.plan.steps
    first = next(n for n, step in enumerate(steps) if step.data.get("packages") == [[plugin.name, ""]])
    assert first < [step.kind for step in steps].index(Kind.INSTALL_DRIVER)
    after = made.read()
    assert set(hold_names(after.packages)) <= set(after.holds)
    assert not made.plan(desired).plan.changes


@each_manager
def test_a_cut_before_the_lists_were_fetched_is_made_up_for(bare, mirrors, key_file, signer, distribution):
    made, url = bare(distribution), mirrors(distribution, "x86_64")
    desired = desired_for(url, key_file, signer)
    made.manager.add_repository(made.repository(made.read(), desired))
    plan = plan_packages(made, made.read(), desired, check=False)
    assert plan.version == LATER


def local_repository(made, folder, packages, signer, distribution):
    """Install NVIDIA's local-repository package: a repository below /var, and the source file that names it.

    The package cannot know the root that it comes into, so its files name the place in there.
    """
    described, root = DISTRIBUTIONS[distribution], made.manager._root
    name = f"nvidia-driver-local-repo-{described.repository}-{LATER}"
    place = f"var/{name}"
    if described.manager == "apt":
        build_deb_repository(folder / "built", [*deb_base(), *packages], signer)
        listed = f"deb [signed-by={root}/usr/share/keyrings/{name}-keyring.gpg] file://{root}/{place} /\n"
        source = (f"/etc/apt/sources.list.d/{name}.list", listed)
        package = build_deb(folder, StandIn(name, "1.0-1", files=(source,)))
        call("dpkg", f"--root={root}", "--force-not-root", f"--log={root}/var/log/dpkg.log", "-i", package)
    else:
        base = rpm_base() if described.manager == "dnf" else suse_base()
        modules = streams({LATER: packages}) if described.pinning == "module_stream" else ""
        build_rpm_repository(folder / "built", [*base, *packages], signer, modules)
        sign_metadata(folder / "built", signer)
        where = "etc/yum.repos.d" if described.manager == "dnf" else "etc/zypp/repos.d"
        # NVIDIA writes the address with one slash after the other.
        text = f"[{name}]\nname={name}\nbaseurl=file://{root}/{place}\nenabled=1\ngpgcheck=1\ngpgkey=file://{root}/{place}/key.asc\n"
        package = build_rpm(folder, StandIn(name, "1.0-1", files=((f"/{where}/{name}.repo", text),)))
        made.manager._rpm.run("-i", "--nodeps", "--nosignature", str(package))
    call("mkdir", "-p", f"{root}/var")
    call("cp", "-r", folder / "built", f"{root}/{place}")
    (made_key := folder / "built-key.asc").write_bytes(signer.public_key())
    call("cp", made_key, f"{root}/{place}/key.asc")
    return f"file:{root}/{place}/", f"{root}/{place}/key.asc"


@pytest.mark.proves("driver", "mirror", by="distribution", note="local repository; installs")
@each_manager
def test_nvidias_local_repository_package(tmp_path, bare, signer, distribution):
    """Its source file is there and nothing else: no key where apt looks for it, and no lists."""
    made = bare(distribution)
    packages = packages_for(DISTRIBUTIONS[distribution].names)[LATER]
    url, key = local_repository(made, tmp_path, packages, signer, distribution)
    repository = DesiredRepository(url, "", key, signer.fingerprint)
    desired = DesiredDriver(source="local_repository", repository=repository)
    made.bring(desired)
    after = made.read()
    assert after.version == LATER
    assert set(versioned(after.packages).values()) == {LATER}
    # apt takes no second source of one address; dnf and zypper get one with the key that was compared.
    assert made.manager.has_repository(REPOSITORY_NAME) == (made.manager.name != "apt")
    assert set(made.manager.repositories()) == {canonical(url)}
    assert not made.plan(desired).plan.changes


#: With everything that is accepted and that a file's format could stumble over.
SECRET = Credentials("gpu-hosts@example", "p@ss:w/rd%41&=+;[x]{y}|~^?<z>*,!()`")


class Guarded(SimpleHTTPRequestHandler):
    """Serves files to whom knows the password, and notes how often it refused."""

    credentials = SECRET
    refused: list[str]

    def do_GET(self):
        login = f"{self.credentials.username}:{self.credentials.password}".encode()
        if self.headers["Authorization"] == f"Basic {base64.b64encode(login).decode()}":
            return super().do_GET()
        self.refused.append(self.path)
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="mirror"')
        self.send_header("Content-Length", "0")
        return self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_arguments):
        """Say nothing."""


@pytest.fixture
def guarded():
    """Serve a mirror's folder on the loopback interface, and ask for a password."""
    servers = []

    def serve(url: str) -> tuple[str, type[Guarded]]:
        handler = type("Handler", (Guarded,), {"refused": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=url[len("file://") :]))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", handler

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def holding(root: Path, text: str) -> list[Path]:
    """Return the files of a root in which a text is."""
    return [path for path in root.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@each_manager
def test_a_mirror_that_asks_for_a_password_gets_it_from_a_file_of_root(
    bare, mirrors, guarded, key_file, signer, distribution
):
    made = bare(distribution)
    url, server = guarded(mirrors(distribution, "x86_64"))
    root = Path(made.manager._root)
    desired = desired_for(url, key_file, signer)
    with pytest.raises(PackageError) as refused:
        made.plan(desired)
    assert server.refused and SECRET.password not in str(refused.value)
    assert not made.manager.has_repository(REPOSITORY_NAME)

    opened = replace(desired, repository=replace(desired.repository, credentials=SECRET))
    if made.manager.name != "zypper":
        host = made.read()
        plan = tried_repository(made, host, opened, make_plan(made, host, opened))
        assert plan.version == LATER
        assert not holding(root, SECRET.password)
    resolved = made.plan(opened)
    assert set(versioned({change.name: change.after for change in resolved.changes}).values()) == {LATER}
    assert made.manager.repositories() == (url,)
    (secret,) = holding(root, SECRET.password)
    assert secret.stat().st_mode & 0o7777 == 0o600
    assert SECRET.password not in json.dumps(resolved.plan.as_dict()) + repr(resolved) + repr(opened)
    # It is what is wanted, and nothing is done again.
    host = made.read()
    assert Kind.ADD_REPOSITORY not in [step.kind for step in make_plan(made, host, opened).plan.steps]

    # The mirror's password changes: what was written is not what is wanted, and is written anew.
    changed = Credentials(SECRET.username, "another")
    server.credentials = changed
    with pytest.raises(PackageError):
        made.manager.refresh()
    rotated = replace(desired, repository=replace(desired.repository, credentials=changed))
    assert made.plan(rotated).plan.steps[0].kind is Kind.ADD_REPOSITORY
    assert holding(root, SECRET.password) == []
    assert holding(root, f"password {changed.password}") + holding(root, f"password={changed.password}") == [secret]
    assert made.manager.remove_repository(REPOSITORY_NAME)
    assert not [path for path in root.rglob(f"*{REPOSITORY_NAME}*") if "/var/" not in str(path)]


def test_apt_reads_the_password_before_it_gives_up_its_privileges(bare, mirrors, guarded, key_file, signer):
    """apt fetches as the user _apt, who cannot read the file: it is opened before. The roots' apt fetches as root."""
    made = bare(("debian", "12"))
    url, server = guarded(mirrors(("debian", "12"), "x86_64"))
    repository = DesiredRepository(url, "", key_file, signer.fingerprint, credentials=SECRET)
    made.manager.add_repository(made.repository(made.read(), DesiredDriver(repository=repository)))
    sandboxed = type(made.manager)(
        root=made.manager._root, options=(*made.manager._options, "-o", "APT::Sandbox::User=_apt")
    )
    sandboxed.refresh()
    assert server.refused == []
    lists = Path(made.manager._root, "var/lib/apt/lists")
    assert lists.joinpath("partial").owner() == "_apt"
    assert [path for path in lists.iterdir() if path.name.endswith("_InRelease")]
