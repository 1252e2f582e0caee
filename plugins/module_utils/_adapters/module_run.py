# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the modules that plan run on a host: timed, one at a time where they change GPUs, and with every end in the one shape of results."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Callable, NoReturn

from .._plan import Failure, Module, Plan, Refused, refuse, succeed
from .files import exclusive
from .stopwatch import Stopwatch

#: Reads, plans, applies and reads back; returns the plan, and what the module returns besides (C(parts): see L(succeed)).
Work = Callable[[Any], tuple[Plan, Mapping[str, Any]]]


def not_yet(module: Module, error: Failure, later: str) -> tuple[Plan, Mapping[str, Any]]:
    """Return the plan of check mode for GPUs that cannot be queried before the driver is loaded, which check mode does not do. C(later): what is planned then.

    :raises Failure: it is not check mode.
    """
    if not module.check_mode:
        raise error
    warning = f"The GPUs cannot be queried yet ({error}); {later} once the driver is loaded."
    return Plan(warnings=(warning,)), {"changed": True}


def run_module(module: Module, name: str, work: Work, locked: bool = False, failed: str = "") -> NoReturn:
    """Run a module to its end.

    :param name: what is planned, for the headers of C(--diff).
    :param locked: whether to keep everything else from changing the GPUs of the host meanwhile.
    :param failed: how the message of a failure begins, where it does not say by itself what was tried.
    """
    try:
        with Stopwatch() as watch, _alone(module, locked):
            plan, result = work(module)
    except Refused as refusal:
        refuse(module, refusal)
    except (Failure, OSError) as error:
        text = f"{failed}: {str(error).rstrip('.')}." if failed else str(error)
        module.fail_json(msg=text, **(error.more if isinstance(error, Failure) else {}))
    succeed(module, name, plan, **{"seconds": watch.seconds, **result})


def _alone(module: Module, locked: bool) -> AbstractContextManager[None]:
    return exclusive(module.params["lock_timeout"]) if locked else nullcontext()
