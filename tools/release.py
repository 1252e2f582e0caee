# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which version may be released, and the files of a release that no tool writes; tools/release.sh calls it.

release.py check VERSION PUBLISHED...              whether VERSION is semantic and newer than what galaxy.yml and the tags say
release.py version VERSION FOLDER                  give a copy of the repository that version
release.py components VERSION SBOM FOLDER          say in a bill of materials what it is of, by the copy in FOLDER
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

#: https://semver.org, without build metadata, which Galaxy does not tell apart.
_SEMANTIC = re.compile(
    r"(?P<core>(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*))(?:-(?P<pre>(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
)
#: Every place where the version of the collection stands, with what surrounds it.
PLACES = {
    "galaxy.yml": "version: {}\n",
    "charts/gpufleet-nvidia/Chart.yaml": "ersion: {}\n",
    "charts/gpufleet-nvidia/README.md": "# gpufleet-nvidia {}\n",
    "plugins/plugin_utils/render/versions.py": 'OWN_CHART_VERSION = "{}"\n',
    "examples/awx/controller.yml": "gpufleet-ee:{}\n",
    "examples/awx/execution-environment.yml": "version: {}}}\n",
    "examples/pull/install.yml": "gpufleet.nvidia:=={}\n",
    "examples/runner/README.md": "gpufleet-ee:{} ",
    "examples/runner/env/settings": "gpufleet-ee:{}\n",
    "docs/scale.md": "gpufleet-ee:{}\n",
}


def order(version: str) -> tuple[Any, ...]:
    """Return what versions are compared by: a pre-release comes before its release.

    :raises ValueError: it is no semantic version.
    """
    found = _SEMANTIC.fullmatch(version)
    if not found:
        raise ValueError(
            f"'{version}' is not a semantic version: write MAJOR.MINOR.PATCH, such as 1.2.0 or 1.2.0-rc.1."
        )
    numbers = tuple(int(part) for part in found["core"].split("."))
    if found["pre"] is None:
        return (*numbers, 1, ())
    return (
        *numbers,
        0,
        tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in found["pre"].split(".")),
    )


def refusal(version: str, galaxy: str, published: list[str]) -> str:
    """Return why C(version) cannot be released, or nothing.

    :param galaxy: the version in galaxy.yml: the one that is prepared, or the one that was released last.
    :param published: tags of releases, with or without a leading v.
    """
    try:
        asked = order(version)
    except ValueError as error:
        return str(error)
    tags = [tag.removeprefix("v") for tag in published if _SEMANTIC.fullmatch(tag.removeprefix("v"))]
    newest = max(tags, key=order, default=None)
    if newest is not None and asked <= order(newest):
        return f"{version} is not newer than {newest}, which is tagged. Name a newer version."
    if asked < order(galaxy):
        return f"{version} is older than {galaxy}, which galaxy.yml prepares. Name that or a newer version."
    return ""


def set_version(folder: Path, version: str) -> list[str]:
    """Write C(version) into every file of C(folder) that holds the collection's, and return their names.

    :raises ValueError: a file does not hold the version of galaxy.yml where it should.
    """
    present = str(yaml.safe_load((folder / "galaxy.yml").read_text(encoding="utf-8"))["version"])
    for name, around in PLACES.items():
        path = folder / name
        text = path.read_text(encoding="utf-8")
        if around.format(present) not in text:
            raise ValueError(
                f"{name} does not say {around.format(present).strip()!r}. Mend it, or PLACES in tools/release.py."
            )
        path.write_text(text.replace(around.format(present), around.format(version)), encoding="utf-8")
    return list(PLACES)


def describe(document: dict[str, Any], version: str, charts: Mapping[str, str]) -> dict[str, Any]:
    """Return a bill of materials of the Python environment as that of the collection, with the collections and charts that it uses.

    :param charts: name to version.
    """
    galaxy = yaml.safe_load((Path(__file__).parents[1] / "galaxy.yml").read_text(encoding="utf-8"))
    own = {
        "type": "application",
        "bom-ref": "gpufleet.nvidia",
        "group": "gpufleet",
        "name": "nvidia",
        "version": version,
        "description": " ".join(galaxy["description"].split()),
        "licenses": [{"license": {"id": galaxy["license"][0]}}],
    }
    others = [
        {"type": "library", "bom-ref": name, "name": name, "description": f"Ansible collection {name}{needed}"}
        for name, needed in sorted(galaxy["dependencies"].items())
    ]
    others += [
        {"type": "application", "bom-ref": f"chart-{name}", "name": name, "version": pinned}
        for name, pinned in sorted(charts.items())
    ]
    return {
        **document,
        "metadata": {**document["metadata"], "component": own},
        "components": [*document.get("components", []), *others],
    }


def pinned_charts(folder: Path) -> dict[str, str]:
    """Return the charts that the generator of C(folder) writes values for, name to version."""
    place = folder / "plugins/plugin_utils/render/versions.py"
    spec = importlib.util.spec_from_file_location("versions", place)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["versions"] = module
    spec.loader.exec_module(module)
    return {name: chart.version for name, chart in module.CHARTS.items()}


def main(arguments: list[str]) -> int:
    """Run one of the three commands; the exit status is 1 with the reason where it cannot be done."""
    command, version, *rest = arguments
    if command == "check":
        galaxy = yaml.safe_load(Path("galaxy.yml").read_text(encoding="utf-8"))["version"]
        reason = refusal(version, str(galaxy), rest)
        if reason:
            print(reason, file=sys.stderr)
        return 1 if reason else 0
    if command == "version":
        print("\n".join(set_version(Path(rest[0]), version)))
        return 0
    path = Path(rest[0])
    document = describe(json.loads(path.read_text(encoding="utf-8")), version, pinned_charts(Path(rest[1])))
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as problem:
        sys.exit(str(problem))
