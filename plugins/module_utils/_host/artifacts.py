# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that C(site) puts on a host or changes there, in one table: which module takes it away again, and when. Pure.

C(gpufleet.nvidia.remove) is made from it: L(folders) are what its last step removes. The test on a lab host holds every file against it that
differs after C(site).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, unique

from .._adapters.lock import LOCK_PATH
from .._adapters.pynvml_loader import HOST_PROGRAM
from .._driver.desired import REPOSITORY_NAME
from .._driver.dkms import TOOLCHAIN_ENVIRONMENT, TOOLCHAIN_FILE
from .._driver.fabric import MODULES_FILE
from .._driver.previous import PATH as PREVIOUS_DRIVER
from .._driver.running import NOUVEAU_FILE, PERSISTENCE_DROP_IN
from .._driver.steps import PREFERENCES_NAME
from .._formats import imex_files
from .._formats.module_parameters import FILE as PARAMETERS_FILE
from .._formats.unit_names import BOOT_UNITS, DCGM_UNIT, wants_link
from .._health.metric_units import METRICS_FILE, METRICS_SERVICE, METRICS_TIMER, TIMER_LINK
from .._runtime import containerd, crio, docker, rancher
from .._runtimes import DISTRIBUTIONS
from .._sharing import mps_instances, mps_units
from .._sharing.host import LOGS
from .._toolkit.config import PATH as TOOLKIT_SETTINGS
from .._toolkit.packages import IDENTIFIER
from .units import RECORDED_MIG, RECORDED_SETTINGS, RECORDED_SHARING, UNIT_DIRECTORY


@unique
class RemovedWith(Enum):
    """When something goes."""

    ALWAYS = "always"
    WITH_TOOLKIT = "with the toolkit"
    WITH_DRIVER = "with the driver"
    WITH_DCGM = "with DCGM"
    WITH_BOOT = "with the next boot"


@dataclass(frozen=True)
class Artifact:
    """What a host has of the collection.

    :param path: of the file; an asterisk stands for anything.
    :param what: it is, for people.
    :param remover: the module that takes it away, or puts the file back as it was.
    :param folder: whether C(path) is a folder of the collection's own, with all that is in it.
    """

    path: str
    what: str
    remover: str
    goes: RemovedWith = RemovedWith.ALWAYS
    folder: bool = False


_PROGRAM_FOLDER = HOST_PROGRAM.rpartition("/")[0]
_RECORDS = RECORDED_MIG.rpartition("/")[0]
_JOURNALS = PREVIOUS_DRIVER.rpartition("/")[0]
_METRICS = (f"{UNIT_DIRECTORY}/{METRICS_SERVICE}", f"{UNIT_DIRECTORY}/{METRICS_TIMER}", TIMER_LINK, f"*/{METRICS_FILE}")
_MPS_UNITS = mps_instances.UNIT.replace("@", "@*")


def _each(
    paths: Iterable[str], what: str, remover: str, goes: RemovedWith = RemovedWith.ALWAYS
) -> tuple[Artifact, ...]:
    return tuple(Artifact(path, what, remover, goes) for path in paths)


def _repository(name: str, goes: RemovedWith, remover: str) -> tuple[Artifact, ...]:
    places = (
        f"/etc/apt/sources.list.d/{name}.sources",
        f"/etc/apt/keyrings/{name}.gpg",
        f"/etc/apt/auth.conf.d/{name}.conf",
        f"/etc/yum.repos.d/{name}.repo",
        f"/etc/zypp/repos.d/{name}.repo",
        f"/etc/zypp/credentials.d/{name}",
        f"/etc/pki/rpm-gpg/{name}.asc",
    )
    return _each(places, "repository, its key and credentials", remover, goes)


def _runtimes() -> tuple[Artifact, ...]:
    paths = [containerd.MAIN, f"/etc/containerd/conf.d/{containerd.DROP_IN}", docker.MAIN, crio.DROP_IN]
    for distribution in DISTRIBUTIONS:
        where = rancher.places(distribution)
        paths += [where.template, where.template_v3, where.default_runtime]
    return _each(paths, "the runtime nvidia", "container_runtime")


ARTIFACTS: tuple[Artifact, ...] = (
    # What runs and restores at boot.
    *_each((f"{UNIT_DIRECTORY}/{name}" for name in BOOT_UNITS), "unit that restores at boot", "host_program"),
    *_each(map(wants_link, BOOT_UNITS), "unit that restores at boot", "host_program"),
    *_each(_METRICS, "metrics for node_exporter", "host_program"),
    Artifact(f"{UNIT_DIRECTORY}/{_MPS_UNITS}", "unit of the MPS daemons", "mps"),
    Artifact(f"{UNIT_DIRECTORY}/{_MPS_UNITS}.d", "settings of an MPS daemon's unit", "mps", folder=True),
    Artifact(wants_link(_MPS_UNITS), "unit of the MPS daemons", "mps"),
    Artifact(f"{UNIT_DIRECTORY}/{mps_units.SHM_UNIT}", "shared memory of MPS", "mps"),
    Artifact(wants_link(mps_units.SHM_UNIT), "shared memory of MPS", "mps"),
    Artifact(mps_units.FOLDER, "settings of the MPS daemons", "mps", folder=True),
    Artifact(LOGS, "logs of the MPS daemons", "mps", folder=True),
    Artifact(RECORDED_SHARING, "recorded sharing", "mps"),
    Artifact(RECORDED_MIG, "recorded MIG layout", "mig"),
    Artifact(RECORDED_SETTINGS, "recorded settings of the GPUs", "gpu_settings"),
    # Containers.
    *_runtimes(),
    Artifact(TOOLKIT_SETTINGS, "how the toolkit accepts devices", "host_remains"),
    *_repository(IDENTIFIER, RemovedWith.WITH_TOOLKIT, "container_toolkit"),
    # The driver.
    Artifact(f"/etc/apt/preferences.d/{PREFERENCES_NAME}", "pin of the driver", "host_remains"),
    Artifact(PERSISTENCE_DROP_IN, "persistence daemon", "driver", RemovedWith.WITH_DRIVER),
    Artifact(NOUVEAU_FILE, "block of nouveau", "driver", RemovedWith.WITH_DRIVER),
    Artifact(PARAMETERS_FILE, "parameters of the kernel module", "driver", RemovedWith.WITH_DRIVER),
    Artifact(MODULES_FILE, "kernel modules of NVLink 5", "driver", RemovedWith.WITH_DRIVER),
    *_each((TOOLCHAIN_FILE, TOOLCHAIN_ENVIRONMENT), "compiler for DKMS", "driver", RemovedWith.WITH_DRIVER),
    *_each((imex_files.NODES_FILE, imex_files.MASK, imex_files.WANTS), "IMEX", "driver", RemovedWith.WITH_DRIVER),
    *_repository(REPOSITORY_NAME, RemovedWith.WITH_DRIVER, "driver"),
    # DCGM.
    Artifact(wants_link(DCGM_UNIT), "host engine of DCGM", "dcgm", RemovedWith.WITH_DCGM),
    # The folders of the collection's own, after all others: their journals say how far a run came.
    Artifact(_RECORDS, "records", "host_remains", folder=True),
    Artifact(_JOURNALS, "journals, previous packages, progress of upgrades", "host_remains", folder=True),
    Artifact(_PROGRAM_FOLDER, "host program", "host_remains", folder=True),
    Artifact(LOCK_PATH.rpartition("/")[0], "lock", "nothing", RemovedWith.WITH_BOOT, folder=True),
)


def folders() -> tuple[str, ...]:
    """Return the folders that go as a whole when everything else is gone."""
    return tuple(trace.path for trace in ARTIFACTS if trace.folder and trace.remover == "host_remains")
