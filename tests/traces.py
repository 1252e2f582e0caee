# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a host, looked up in the table of what C(site) puts there."""

from __future__ import annotations

from fnmatch import fnmatchcase

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.leftovers import ARTIFACTS


def trace_of(path):
    """Return the row that C(path) is, or is in; None where it is nothing of the collection."""
    return next((trace for trace in ARTIFACTS if _covers(trace, path)), None)


def _covers(trace, path):
    return fnmatchcase(path, trace.path) or (trace.folder and fnmatchcase(path, f"{trace.path}/*"))
