# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host has of the container toolkit, as the host reads it or as its facts say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._facts_view import Facts
from .._formats.cdi_state import CdiState, cdi_of
from .._packages.package_set import PackageState
from .config import ACCEPT_ENVVAR, ACCEPT_VOLUME_MOUNTS, accepts, low_level_runtimes
from .desired import DesiredToolkit
from .packages import OLD_PACKAGES, PACKAGES


@dataclass(frozen=True)
class ToolkitState(PackageState):
    """What a host has.

    :param repository: whether the wanted repository and its key are configured; None when that is not known.
    :param old_sources: apt source files of earlier generations that would conflict.
    :param config: text of C(config.toml); None where there is none, and where facts say what is in it.
    :param accepts: whether devices are accepted by the environment variable and by volume mounts; None where it is not known, as without a file.
    :param low_level_runtimes: the programs that nvidia-container-runtime looks for.
    :param cdi: the CDI specifications, where one is kept.
    :param driver_loaded: whether there are GPUs to describe.
    :param cdi_unit: whether C(nvidia-cdi-refresh.path) is enabled; None where there is no such unit.
    :param low_level_runtime: absolute path of the program that nvidia-container-runtime has to call; None where PATH has it.
    :param hooks: what the GPU Operator's folder has of its device plugin's hooks (L(read_hooks)).
    :param specifications: the CDI specification that the toolkit keeps, where it is there and the toolkit is to go.
    """

    repository: bool | None = None
    old_sources: tuple[str, ...] = ()
    config: str | None = None
    accepts: tuple[bool, bool] | None = None
    low_level_runtimes: tuple[str, ...] = ()
    cdi: CdiState = field(default_factory=CdiState)
    driver_loaded: bool = False
    cdi_unit: bool | None = None
    low_level_runtime: str | None = None
    specifications: tuple[str, ...] = ()
    hooks: Mapping[str, bool] = field(default_factory=dict)

    @property
    def held(self) -> tuple[str, ...]:
        return tuple(name for name in (*PACKAGES, *OLD_PACKAGES) if name in self.holds)


def settings(config: str | None) -> dict[str, Any]:
    """Return what a state has of C(config.toml) with this text. Raises TomlError: it is not TOML."""
    return {
        "config": config,
        "accepts": None if config is None else (accepts(config, ACCEPT_ENVVAR), accepts(config, ACCEPT_VOLUME_MOUNTS)),
        "low_level_runtimes": tuple(low_level_runtimes(config)),
    }


def from_facts(facts: Facts, desired: DesiredToolkit) -> ToolkitState | None:
    """Return what the facts say of a host; None where they do not say which packages it has.

    What they do not say (the repository, half done transactions, units) is as if it were right: the module finds out.
    """
    toolkit = facts.toolkit
    if toolkit.packages is None:
        return None
    envvar, mounts = toolkit.accept_envvar_unprivileged, toolkit.accept_volume_mounts
    runtimes = toolkit.low_level_runtimes
    runtime = (facts.runtimes or {}).get(desired.runtime)
    holds = toolkit.holds
    return ToolkitState(
        packages=toolkit.packages,
        # Holds that are not known are no reason for a step.
        holds=PACKAGES if holds is None and desired.hold else tuple(holds or ()),
        accepts=None if envvar is None or mounts is None else (envvar, mounts),
        low_level_runtime=runtime.low_level_runtime if runtime and runtimes is not None else None,
        low_level_runtimes=runtimes or (),
        cdi=cdi_of(facts) if desired.cdi else CdiState(),
        driver_loaded=bool(facts.gpus),
        hooks=toolkit.hooks or {},
    )
