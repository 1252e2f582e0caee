"""Make the pictures of the documentation of what tests recorded: docs/assets/*.svg of docs/transcripts/*.ansi, and gpus.png of gpus.html.

Usage: screenshots.py [--check]. With --check nothing is written, and a picture of something else than what is recorded now is an error. A
picture of a page cannot be made again to the byte: it carries the digest of the page that it was made of.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from io import StringIO
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "docs" / "assets"
PAGE, PICTURE = ASSETS / "gpus.html", ASSETS / "gpus.png"
#: Of the terminal in tests/unit/test_terminal.py.
_COLUMNS = 120
#: As wide as the page wants to be, with its margins.
_WIDTH = 1144
_SCALE = 1.5
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
#: rich loads a font from the network, which a picture in a page must not.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main(check: bool) -> None:
    stale = []
    for transcript in sorted((ROOT / "docs" / "transcripts").glob("*.ansi")):
        picture = ASSETS / f"{transcript.stem}.svg"
        drawn = terminal(transcript.read_text(encoding="utf-8"), f"gpufleet.nvidia.{transcript.stem}")
        if check and not (picture.exists() and picture.read_text(encoding="utf-8") == drawn):
            stale.append(f"{picture.relative_to(ROOT)} is not of {transcript.relative_to(ROOT)}")
        elif not check:
            picture.write_text(drawn, encoding="utf-8")
    mark = _mark(PAGE.read_bytes())
    if mark not in PICTURE.read_bytes():
        if check:
            stale.append(f"{PICTURE.relative_to(ROOT)} is not of {PAGE.relative_to(ROOT)}")
        else:
            PICTURE.write_bytes(_marked(photograph(PAGE), mark))
    if stale:
        sys.exit("\n".join([*stale, "Make them anew, and look at them: make screenshots"]))


def terminal(text: str, title: str) -> str:
    """Draw what a terminal showed."""
    console = Console(record=True, file=StringIO(), width=_COLUMNS)
    console.print(Text.from_ansi(text.rstrip("\n")))
    return console.export_svg(title=title, code_format=_FORMAT, unique_id=title.replace(".", "-")) + "\n"


def photograph(page: Path) -> bytes:
    """Return the picture of a page as PNG, as high as the page is."""
    browser = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"There is no browser to make pictures with. Install one of: {', '.join(_BROWSERS)}")
    height = _height(browser, page)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.png"
        _browse(
            browser,
            page,
            f"--window-size={_WIDTH},{height}",
            f"--force-device-scale-factor={_SCALE}",
            f"--screenshot={file}",
        )
        return file.read_bytes()


def _height(browser: str, page: Path) -> int:
    """Return how high a page is, as the browser lays it out."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        script = "<script>document.title = 'height ' + document.documentElement.offsetHeight</script>"
        copy.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{script}</body>"), encoding="utf-8")
        shown = _browse(browser, copy, f"--window-size={_WIDTH},100", "--dump-dom")
    margins = 64
    return int(re.search(r"<title>height (\d+)", shown)[1]) + margins


def _browse(browser: str, page: Path, *options: str) -> str:
    # The sandbox does not start for root; the page is our own and has no script.
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def _mark(page: bytes) -> bytes:
    return b"Source\0gpus.html sha256:" + hashlib.sha256(page).hexdigest().encode()


def _marked(picture: bytes, mark: bytes) -> bytes:
    """Return the PNG with a chunk of text behind its head, which is 33 bytes."""
    chunk = b"tEXt" + mark
    return picture[:33] + struct.pack(">I", len(mark)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + picture[33:]


if __name__ == "__main__":
    main("--check" in sys.argv[1:])
