#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write what follows from roles/*/meta/argument_specs.yml: the roles' defaults, the tables of variables in their READMEs, and the options of modules.

What follows from tables comes first. Of boards: their keys in the specification of gpu_facts_gpus, and the boards that the virtual NVML has; of container
runtimes: the choices of the options that name one; of metrics: their table in docs/monitoring.md.

An option of a module follows from a variable where a task of the variable's role passes it as it is, and the module does not document a type of its own.

tools/generate.py            write it
tools/generate.py --check    fail when something is not what would be written
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
_LINE = 160
#: A description is in the README as a whole up to this many characters, and with its first paragraph otherwise.
_ROW = 500
_BEGIN, _END = "<!-- begin of what tools/generate.py writes -->\n", "<!-- end of what tools/generate.py writes -->\n"
_TABLE = re.compile(f"{re.escape(_BEGIN)}.*{re.escape(_END)}", re.S)
_NAMESPACE = "gpufleet.nvidia."
_OPTIONS = "plugins/module_utils/_options.py"
_ROWS, _ROWS_END = "    # begin of what tools/generate.py writes", "    # end of what tools/generate.py writes"
_MARKUP = re.compile(r"\b(RV|[OVCMP])\(((?:[^()\\]|\\.)*)\)")
_PAGE = re.compile(r"\bdocs/[\w-]+\.md\b( of the collection)?")


def options_of(role: str) -> dict[str, Any]:
    """Return the options of a role's entry point C(main), as they are written."""
    specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    options: dict[str, Any] = specs["argument_specs"].get("main", {}).get("options", {})
    return options


def in_yaml(value: Any) -> str:
    """Return a value as it is written in a line of YAML, in quotes where it would be read as something else."""
    if isinstance(value, list):
        return f"[{', '.join(map(in_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{in_yaml(key)}: {in_yaml(one)}' for key, one in value.items())}}}"
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        plain = yaml.safe_load(f"[{value}]") == [value] and not re.search(r"[,{}\[\]%]|: ", value)
    except yaml.YAMLError:
        plain = False
    return value if plain else json.dumps(value, ensure_ascii=False)


def defaults(role: str) -> str:
    """Return the role's defaults/main.yml."""
    lines = [
        "---",
        "# Written by tools/generate.py from meta/argument_specs.yml, which says what each variable means, as do README.md and",
        f"# ansible-doc -t role gpufleet.nvidia.{role}",
    ]
    for name, option in options_of(role).items():
        of_others = "" if name.startswith(f"{role}_") else " # noqa: var-naming[no-role-prefix]"
        line = f"{name}: {in_yaml(option['default'])}{of_others}"
        several = [f"{name}:", *(f"  - {in_yaml(one)}" for one in option["default"])] if len(line) > _LINE else [line]
        lines += several
    return "\n".join([*lines, *([] if options_of(role) else ["{}"]), ""])


def _calls(tasks: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for task in tasks or []:
        for key, value in task.items():
            if key == "block":
                yield from _calls(value)
            elif key.startswith(_NAMESPACE) and isinstance(value, dict):
                yield key.removeprefix(_NAMESPACE), value


def _own(module: str) -> set[str]:
    """Return the options that a module declares itself."""
    text = (ROOT / "plugins" / "modules" / f"{module}.py").read_text(encoding="utf-8")
    found = re.search(r'^DOCUMENTATION = r?"""(.*?)"""', text, re.M | re.S)
    options = yaml.safe_load(found[1]).get("options") or {} if found else {}
    return {name for name, option in options.items() if "type" in option}


def _specification(option: dict[str, Any]) -> dict[str, Any]:
    found = {
        key: option[key] for key in ("type", "elements", "choices", "default", "required", "no_log") if key in option
    }
    if "options" in option:
        found["options"] = {name: _specification(one) for name, one in option["options"].items()}
    return found


def passed() -> dict[str, dict[str, tuple[str, dict[str, Any]]]]:
    """Return by module and option the variable that follows from a role, and its specification."""
    found: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {}
    for path in sorted((ROOT / "roles").glob("nvidia_*/tasks/*.yml")):
        variables = options_of(path.parent.parent.name)
        for module, arguments in _calls(yaml.safe_load(path.read_text(encoding="utf-8"))):
            for name, value in arguments.items():
                plain = re.fullmatch(r"\{\{ (\w+) \}\}", str(value))
                if plain and plain[1] in variables and name not in _own(module):
                    found.setdefault(module, {})[name] = (plain[1], _specification(variables[plain[1]]))
    return found


def _in_python(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_in_python(key)}: {_in_python(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_python, value))}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def module_options() -> str:
    """Return the table of C(_options.py), with its marks."""
    lines = []
    for module, options in sorted(passed().items()):
        lines.append(f'    "{module}": {{')
        for name, (variable, spec) in options.items():
            row = f'        "{name}": ("{variable}", {_in_python(spec)}),'
            keys = [f'            "{key}": {_in_python(value)},' for key, value in spec.items()]
            lines += [row] if len(row) <= _LINE else [f'        "{name}": ("{variable}", {{', *keys, "        }),"]
        lines.append("    },")
    return "\n".join([_ROWS, *lines, _ROWS_END])


def _marked(found: re.Match[str]) -> str:
    kind, text = found[1], re.sub(r"\\(.)", r"\1", found[2])
    if kind == "P":
        name, _, of = text.removeprefix("gpufleet.nvidia.").partition("#")
        return f"[{name}](../{name}/README.md)" if of == "role" else f"`{name}`"
    if kind == "M":
        return f"`{text}`"
    owner, _, rest = text.rpartition(":") if "#" in text else ("", "", text)
    name, given, value = rest.partition("=")
    of_module = f" of `{owner.partition('#')[0]}`" if "#module" in owner else ""
    return f"`{name}: {value}`{of_module}" if kind == "O" and given else f"`{rest}`{of_module}"


def in_markdown(text: str) -> str:
    """Return a text with Ansible's markup as Markdown of a file in a role."""
    linked = _PAGE.sub(lambda found: f"[{found[0].split()[0]}](../../{found[0].split()[0]})", text)
    return _MARKUP.sub(_marked, linked).replace("|", "\\|")


def _meaning(option: dict[str, Any]) -> str:
    said = option["description"]
    paragraphs = [said] if isinstance(said, str) else said
    whole = " ".join(paragraphs)
    text = in_markdown(whole if len(whole) <= _ROW else paragraphs[0])
    choices = [f"`{in_yaml(choice)}`" for choice in option.get("choices", ())]
    unnamed = [choice for choice in choices if choice not in text]
    several = "Any" if option["type"] == "list" else "One"
    return f"{text} {several} of {', '.join(choices)}." if unnamed else text


def table(role: str) -> str:
    """Return the table of a role's variables, with the marks around it."""
    rows = [
        f"| `{name}` | `{in_yaml(option['default'])}` | {_meaning(option)} |"
        for name, option in options_of(role).items()
    ]
    return "\n".join([f"{_BEGIN}| variable | default | meaning |", "|---|---|---|", *rows, _END])


def boards() -> Iterator[tuple[Path, str]]:
    """Return the files that follow from the table of boards."""
    header = ROOT / "tests" / "lab" / "virtual_nvml" / "boards.h"
    if not header.is_file():
        return
    written = subprocess.run(
        [sys.executable, header.with_name("generate_boards.py")], stdout=subprocess.PIPE, text=True, check=True
    )
    yield header, written.stdout
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS

    specification = ROOT / "roles" / "gpu_facts" / "meta" / "argument_specs.yml"
    text = specification.read_text(encoding="utf-8")
    for words, chosen in (("With MIG", True), ("Without", False)):
        keys = ", ".join(f"V({board.key})" for board in BOARDS if bool(board.profiles) is chosen)
        item = re.compile(rf"^( *)- {words} - V[^.]*\.$", re.M)
        found = item.search(text)
        if found is None:
            raise SystemExit(
                f"{specification.relative_to(ROOT)} has no item '- {words} - V(...).' for the keys of boards"
            )
        indent = found.group(1)
        lines = textwrap.wrap(
            f"- {words} - {keys}.",
            _LINE - 10,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_on_hyphens=False,
        )
        text = item.sub("\n".join(lines), text)
    yield specification, text


def runtimes() -> Iterator[tuple[Path, str]]:
    """Return the files with the choices of an option that names a container runtime."""
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES

    names = ", ".join(RUNTIMES)
    for place, others in (
        ("roles/nvidia_toolkit/meta/argument_specs.yml", ", none"),
        ("plugins/modules/container_runtime.py", ""),
        ("plugins/modules/container_toolkit.py", ""),
    ):
        path = ROOT / place
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text:
            yield path, re.sub(r"choices: \[containerd,[^\]]*\]", f"choices: [{names}{others}]", text)


def metrics() -> Iterator[tuple[Path, str]]:
    """Return the page with the table of metrics."""
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import METRICS

    page = ROOT / "docs" / "monitoring.md"
    if not page.is_file():
        return
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |\n"
        for one in METRICS
    ]
    yield page, re.sub(r"(?:^\| `gpufleet_.*\n)+", lambda _found: "".join(rows), page.read_text("utf-8"), flags=re.M)


def generated() -> Iterator[tuple[Path, str]]:
    """Return the files that are written, as a whole or in a part, with their whole content."""
    sys.path.insert(0, str(ROOT / "build" / "collections"))
    yield from boards()
    yield from runtimes()
    yield from metrics()
    table_of_modules = ROOT / _OPTIONS
    if table_of_modules.is_file():
        text = table_of_modules.read_text(encoding="utf-8")
        begin, end = text.index(_ROWS), text.index(_ROWS_END) + len(_ROWS_END)
        yield table_of_modules, text[:begin] + module_options() + text[end:]
    for folder in sorted((ROOT / "roles").iterdir()):
        role, readme = folder.name, folder / "README.md"
        if (folder / "tasks").is_dir():
            yield folder / "defaults" / "main.yml", defaults(role)
        if options_of(role):
            text = readme.read_text(encoding="utf-8")
            if not _TABLE.search(text):
                raise SystemExit(f"{readme.relative_to(ROOT)} has no place for its variables: write {_BEGIN}{_END}")
            yield readme, _TABLE.sub(table(role).replace("\\", r"\\"), text)


def main(arguments: list[str]) -> int:
    stale = 0
    # One after the other: the READMEs follow from the specifications.
    for path, text in generated():
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale += 1
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} does not follow from its source: run make generate", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return int(stale > 0 and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
