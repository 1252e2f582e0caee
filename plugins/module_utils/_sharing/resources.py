# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names under which the device plugin offers devices."""

from __future__ import annotations

GPU = "nvidia.com/gpu"


def mig_resource(profile: str) -> str:
    """Return the extended resource of a MIG profile under the strategy mixed."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"
