# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What build/gpu-bundle/run.sh runs: collects what a host with a real GPU says, without changing it, or, asked to, changes one GPU and
brings back what was there. Python 3.8 and newer."""
