# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand in for get-pip.py where only a package registry can be reached: Python carries a pip of its own.

ensurepip runs in a process of its own, because in this one it would switch pip's configuration off.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> None:
    subprocess.run([sys.executable, "-m", "ensurepip", "--upgrade", "--default-pip"], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip==24.2"], check=True
    )


if __name__ == "__main__":
    main()
