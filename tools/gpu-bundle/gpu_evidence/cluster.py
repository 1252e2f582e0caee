# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's programs of the cluster's side on this host: nvidia-ctk, and the device plugin before a kubelet that is none."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Sequence

from gpu_evidence.host import loaded
from gpu_evidence.running import Folder, environment, run, which

_TIME_SLICING = {
    "version": "v1",
    "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
}
#: Options of the device plugin, one run each.
_PLUGIN: tuple[tuple[str, Sequence[str]], ...] = (
    ("envvar", ["--device-list-strategy=envvar"]),
    ("volume-mounts", ["--device-list-strategy=volume-mounts"]),
    ("cdi-cri", ["--device-list-strategy=cdi-cri"]),
    ("cdi-annotations", ["--device-list-strategy=cdi-annotations"]),
    ("device-specs", ["--device-list-strategy=envvar", "--pass-device-specs", "--device-id-strategy=index"]),
    ("time-slicing", ["--device-list-strategy=envvar", "--config-file={work}/time-slicing.json"]),
    ("mig-single", ["--device-list-strategy=envvar", "--mig-strategy=single"]),
    ("mig-mixed", ["--device-list-strategy=envvar", "--mig-strategy=mixed"]),
)
_STANDARD = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
_FOLDER = "/var/lib/kubelet/device-plugins/"
_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE, _MS_BIND = 0x4000, 1 << 18, 0x1000


def cdi(out: str, work: str) -> int:
    """C(nvidia-ctk cdi generate), by the bundled one and by the host's, and what we read in it."""
    folder, env = (
        Folder(out),
        environment(PYTHONPATH=os.pathsep.join([os.environ["PYTHONPATH"], f"{work}/collections"])),
    )
    facts_file = Path(out).parent / "facts" / "facts.json"
    found: dict[str, Any] = {}
    failures: list[str] = []
    ours, theirs, library = f"{work}/programs/nvidia-ctk", which("nvidia-ctk"), loaded("libcuda.so.1")
    runs: list[tuple[str, str, str, str, list[str]]] = [("ours", ours, mode, "yaml", []) for mode in ("nvml", "auto")]
    runs.append(("ours", ours, "nvml", "json", []))
    if library and os.path.dirname(library) not in _STANDARD:
        # Named, they replace the places where it looks by itself.
        runs.append(("ours-found", ours, "nvml", "yaml", [f"--library-search-path={os.path.dirname(library)}"]))
    if theirs:
        runs.append(("host", theirs, "nvml", "yaml", []))
    for name, program, mode, kind, search in runs:
        title = f"{name}-{mode}-{kind}"
        done = folder.keep(
            title, run([program, "cdi", "generate", f"--mode={mode}", f"--format={kind}", *search], 30, env)
        )
        if not done.ok:
            failures.append(f"{title}: {done.said}")
            continue
        path = Path(out) / f"{title}.spec.{kind}"
        path.write_text(done.out, encoding="utf-8")
        given = [str(facts_file)] if facts_file.exists() else []
        read = run([sys.executable, "-m", "gpu_evidence.cdi_reading", str(path), *given], 20, env)
        folder.keep(f"{title}-read", read)
        if not read.ok:
            failures.append(f"our reading of {title}: {read.said}")
            continue
        found[title] = json.loads(read.out)
        if found[title]["missing"] or found[title]["stale"]:
            failures.append(f"our reading of {title}: missing {found[title]['missing']}, stale {found[title]['stale']}")
        path.unlink()
    said = "; ".join(f"{title}: {len(one['devices'])} devices" for title, one in found.items())
    return folder.answer("failed" if failures else "ran", "; ".join(failures) or said, read=found)


def plugin(out: str, work: str) -> int:
    """The device plugin with each way of injection. Its folders are in the root of a mount namespace that is gone afterwards."""
    folder = Folder(out)
    Path(work, "time-slicing.json").write_text(json.dumps(_TIME_SLICING), encoding="utf-8")
    plugin_program, how = f"{work}/programs/nvidia-device-plugin", "in a mount namespace of its own"
    kubelet = f"{work}/programs/stand-in-kubelet"
    try:
        own_mounts()
    except OSError as error:
        how = f"with another folder than {_FOLDER}, of the same length, written into both programs: {error}"
        plugin_program, kubelet = _relocated(work, plugin_program), _relocated(work, kubelet)
    failures: list[str] = []
    resources: dict[str, Any] = {}
    runs = list(_PLUGIN)
    for name, options in runs:
        words = [one.format(work=work) for one in options]
        done = folder.keep(
            name, run([kubelet, "20", plugin_program, *words, "--driver-root-ctr-path=/"], 28, environment())
        )
        for path in sorted(Path("/var/run/cdi").glob("k8s.device-plugin*")) if "mount namespace" in how else ():
            folder.write(f"{name}-{path.name}", path.read_text(encoding="utf-8"))
            path.unlink()
        try:
            answer = json.loads(done.out)
        except ValueError:
            failures.append(f"{name}: {done.said}")
            continue
        resources[name] = {
            one["Registration"]["resource_name"]: len(one["Devices"] or []) for one in answer["resources"] or []
        }
        errors = [
            error
            for one in answer["resources"] or []
            for error in [*(one.get("Errors") or []), *(a["Error"] for a in one["Allocations"] or [] if a.get("Error"))]
        ]
        if not resources[name] or errors:
            failures.append(f"{name}: {'; '.join(errors) or answer['plugin']}")
            if name == "cdi-cri" and "namespace" in how and _libraries_found():
                runs += [(f"{one}-found", words) for one, words in _PLUGIN if one.startswith("cdi-")]
        folder.answer(
            "failed" if failures else "ran", "; ".join(failures) or str(resources), resources=resources, how=how
        )
    said = f"{how}: " + "; ".join(f"{name}: {found}" for name, found in resources.items())
    return folder.answer("failed" if failures else "ran", "; ".join(failures) or said, resources=resources, how=how)


def own_mounts() -> None:
    """Give this process mounts of its own, with an empty /var/lib/kubelet and /run/cdi.

    :raises OSError: this host does not let it.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    def mount(source: str, target: str, kind: str, flags: int) -> None:
        check(
            libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None), f"mount {target}"
        )

    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        check(libc.unshare(_NEWNS), "unshare")
    else:
        check(libc.unshare(_NEWNS | _NEWUSER), "unshare")
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")
    mount("none", "/", "none", _MS_REC | _MS_PRIVATE)
    # What the driver's daemons have in /run is kept: the plugin looks for it.
    kept = [
        path for path in ("/run/nvidia-persistenced", "/run/nvidia-fabricmanager", "/run/nvidia") if os.path.isdir(path)
    ]
    with tempfile.TemporaryDirectory() as held:
        for path in kept:
            os.mkdir(f"{held}/{os.path.basename(path)}")
            mount(path, f"{held}/{os.path.basename(path)}", "none", _MS_BIND)
        mount("tmpfs", "/run", "tmpfs", 0)
        for path in kept:
            os.mkdir(path)
            mount(f"{held}/{os.path.basename(path)}", path, "none", _MS_BIND)
            check(libc.umount2(f"{held}/{os.path.basename(path)}".encode(), 2), "umount")
    if not os.path.islink("/var/run"):
        mount("tmpfs", "/var/run", "tmpfs", 0)
    mount("tmpfs", "/var/lib", "tmpfs", 0)
    os.makedirs(_FOLDER)
    os.makedirs("/var/run/cdi")


def _libraries_found() -> bool:
    """Show the driver's libraries where NVIDIA's programs look for them, when they are elsewhere: whether that was so."""
    path = loaded("libcuda.so.1")
    standard = next((place for place in _STANDARD if os.path.isdir(place)), "")
    if not path or not standard or os.path.dirname(path) == standard:
        return False
    options = f"lowerdir={os.path.dirname(path)}:{standard}".encode()
    return ctypes.CDLL(None).mount(b"overlay", standard.encode(), b"overlay", ctypes.c_ulong(1), options) == 0


def _relocated(work: str, program: str) -> str:
    """A copy of a program whose folder of sockets is in that of the run; Go's strings have a length, so the new path has the same."""
    if len(work) > len(_FOLDER) - 2:
        raise OSError(f"{work} is too long a path for it")
    folder = f"{work}/".ljust(len(_FOLDER) - 1, "p") + "/"
    os.makedirs(folder, exist_ok=True)
    raw = Path(program).read_bytes().replace(_FOLDER.encode(), folder.encode())
    target = Path(f"{program}-relocated")
    target.write_bytes(raw)
    target.chmod(0o755)
    return str(target)
