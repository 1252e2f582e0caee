# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Version of the shape of the facts document: apart from the schema, which a host need not load."""

from __future__ import annotations

SCHEMA = 1
