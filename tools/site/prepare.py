"""Gather the pages of the documentation site: docs/, a page for each playbook, the index and llms.txt.

Usage: prepare.py REPOSITORY FOLDER. Links that leave docs/ go to the repository, after it was looked whether the file is there.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

REPOSITORY_URL = "https://github.com/gpufleet/gpufleet.nvidia/blob/main"
#: Sections of the index, in the order in which a newcomer needs them. Pages of docs/ that are in none are under the last.
SECTIONS: dict[str, list[str]] = {
    "Begin": ["getting-started", "migration", "support", "glossary"],
    "Scenarios": ["scenarios/*"],
    "Run it": ["kubernetes", "mig", "recommend", "drift", "monitoring", "upgrade", "runbooks", "remove"],
    "Large, closed and shared sites": ["scale", "air-gap", "security"],
    "Test it": ["testing-your-pools", "lab"],
    "Develop": ["architecture", "facts", "compatibility"],
}
_LINK = re.compile(r"(?<!\\)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"```.*?```", re.DOTALL)


def main(repository: Path, folder: Path) -> None:
    docs = repository / "docs"
    pages = []
    for source in sorted(docs.rglob("*")):
        if source.is_dir():
            continue
        target = folder / source.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(_links(source.read_text(encoding="utf-8"), source, repository), encoding="utf-8")
            pages.append(target.relative_to(folder).with_suffix("").as_posix())
        else:
            shutil.copyfile(source, target)
    pages.append(_internal(repository, folder))
    playbooks = _playbooks(repository, folder)
    _index(repository, folder, pages, playbooks)
    _llms(folder, pages, playbooks)


def _links(text: str, source: Path, repository: Path) -> str:
    """Send links that leave docs/ to the repository; a file that is not there ends the build."""
    docs = repository / "docs"

    def send(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", path):
            return match[0]
        target = (source.parent / path).resolve()
        if not target.exists():
            sys.exit(f"{source.relative_to(repository)}: the link {path} leads to nothing")
        if target.is_relative_to(docs) and target.is_file():
            return match[0]
        return f"]({REPOSITORY_URL}/{target.relative_to(repository)}{anchor})"

    return _LINK.sub(send, text)


def _internal(repository: Path, folder: Path) -> str:
    """Take the modules that only the collection calls out of the index of its reference, and give them a page of their own."""
    sources = {path: path.read_text(encoding="utf-8") for path in (repository / "plugins" / "modules").glob("*.*")}
    names = sorted(path.stem for path, text in sources.items() if "  - gpufleet.nvidia.internal\n" in text)
    index = folder / "collection" / "index.rst"
    if index.exists():
        listed = re.compile(rf"^(\* :ansplugin:`({'|'.join(names)}) module <.*|    ({'|'.join(names)})_module)\n", re.M)
        index.write_text(listed.sub("", index.read_text(encoding="utf-8")), encoding="utf-8")
    lines = [
        "# Internal modules\n",
        "The playbooks and roles of the collection call these modules and actions. Call those, because these may change in any release.\n",
        "```{toctree}\n:maxdepth: 1\n",
        *(f"collection/{name}_module" for name in names),
        "```\n",
    ]
    (folder / "internal.md").write_text("\n".join(lines), encoding="utf-8")
    return "internal"


def _playbooks(repository: Path, folder: Path) -> list[str]:
    """Write a page for each playbook, from its head and its entry point in the role that documents it."""
    specs = yaml.safe_load((repository / "roles/playbooks/meta/argument_specs.yml").read_text(encoding="utf-8"))
    written = []
    for path in sorted((repository / "playbooks").glob("*.yml")):
        spec = specs["argument_specs"].get(path.stem, {})
        head = [line[1:].strip() for line in path.read_text(encoding="utf-8").splitlines()[1:] if line.startswith("#")]
        said = " ".join(line for line in _until_code(path, head))
        parts = [
            f"# gpufleet.nvidia.{path.stem}\n",
            f"{_escape(spec.get('short_description', ''))}\n",
            f"{_escape(said)}\n",
            f"```\nansible-playbook -i inventory gpufleet.nvidia.{path.stem}\n```\n",
            *_variables(spec),
            f"Source: [playbooks/{path.name}]({REPOSITORY_URL}/playbooks/{path.name})\n",
        ]
        target = folder / "playbooks" / f"{path.stem}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text("\n".join(part for part in parts if part.strip()), encoding="utf-8")
        written.append(f"playbooks/{path.stem}")
    return written


def _until_code(path: Path, head: list[str]) -> list[str]:
    """Return the comment that begins the file; others stand beside tasks."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    count = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return head[:count]


def _variables(spec: dict[str, Any]) -> list[str]:
    parts = [f"{_markup(text)}\n" for text in _several(spec.get("description"))]
    options = spec.get("options") or {}
    if options:
        parts.append("## Variables\n\n| variable | type | meaning |\n|---|---|---|")
        for name, option in options.items():
            choices = f" ({', '.join(map(str, option['choices']))})" if option.get("choices") else ""
            meaning = " ".join(_markup(text) for text in _several(option["description"]))
            parts.append(f"| `{name}` | {option['type']}{choices} | {meaning} |")
        parts.append("")
    return parts


def _several(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _escape(text: str) -> str:
    return text.replace("<", "\\<").replace("*", "\\*")


def _markup(text: str) -> str:
    """Turn Ansible's markup into Markdown; a role becomes a link to its page."""
    text = re.sub(r"P\(gpufleet\.nvidia\.(\w+)#role\)", r"[role \1](../collection/\1_role.rst)", text)
    text = re.sub(r"O\((?:[\w.]+#\w+:\w+:)?([^)]*)\)", r"`\1`", text)
    return re.sub(r"[VCEL]\(([^)]*)\)", r"`\1`", text)


def _title(path: Path) -> str:
    return next(line[2:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# "))


def _first_sentence(path: Path) -> str:
    text = _CODE.sub("", path.read_text(encoding="utf-8")).partition("\n# ")[2] or path.read_text(encoding="utf-8")
    for block in text.split("\n\n")[1:]:
        if block and not block.startswith(("#", "|", "    ", "!", "-")):
            return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split())).partition(". ")[0].rstrip(".:")
    return ""


def _sections(pages: list[str]) -> dict[str, list[str]]:
    found = {
        name: [page for pattern in patterns for page in pages if page == pattern or Path(page).match(pattern)]
        for name, patterns in SECTIONS.items()
    }
    listed = {page for members in found.values() for page in members}
    found["Develop"] += [page for page in pages if page not in listed]
    return {name: members for name, members in found.items() if members}


def _index(repository: Path, folder: Path, pages: list[str], playbooks: list[str]) -> None:
    readme = (repository / "README.md").read_text(encoding="utf-8")
    introduction = readme.partition("## Your hosts")[0].replace("(docs/", "(")
    toc = [
        "```{toctree}\n:caption: " + name + "\n:maxdepth: 1\n\n" + "\n".join(members) + "\n```\n"
        for name, members in [*_sections(pages).items(), ("Playbooks", playbooks)]
    ]
    reference = "```{toctree}\n:caption: Reference\n:maxdepth: 2\n\ncollection/index\n```\n"
    (folder / "index.md").write_text("\n".join([introduction, *toc, reference]), encoding="utf-8")


def _llms(folder: Path, pages: list[str], playbooks: list[str]) -> None:
    """Write the list of pages for language models: a line each, with what the page is about."""
    lines = [
        "# gpufleet.nvidia",
        "",
        "> An Ansible collection for NVIDIA GPU hosts on bare metal, and the generator of the Kubernetes configuration that agrees with them.",
    ]
    for name, members in [*_sections(pages).items(), ("Playbooks", playbooks)]:
        lines += ["", f"## {name}", ""]
        for page in members:
            source = folder / f"{page}.md"
            lines.append(f"- [{_title(source)}]({page}.html): {_first_sentence(source)}")
    lines += [
        "",
        "## Reference",
        "",
        "- [Modules, filters and roles](collection/index.html): every option and variable",
        "",
    ]
    extra = folder.parent / "extra"
    extra.mkdir(exist_ok=True)
    (extra / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(os.path.abspath(sys.argv[1])), Path(os.path.abspath(sys.argv[2])))
