# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""tools/generate.py: what it writes for a specification, and that it says what it would write."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import METRICS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES

TOOL = Path(__file__).resolve().parents[2] / "tools" / "generate.py"


def test_the_repository_is_what_it_would_write():
    done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def generate(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("generate", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    role = tmp_path / "roles" / "gpu_x"
    for folder in ("tasks", "meta", "defaults"):
        (role / folder).mkdir(parents=True)
    options = {
        "gpu_x_mode": {
            "type": "str",
            "choices": ["a", "off"],
            "default": "a",
            "description": ["How. V(a) is it.", "More."],
        },
        "gpu_x_share": {"type": "str", "default": "25%", "description": "See O(gpu_x_mode=off) and docs/heal.md."},
    }
    specs = {"argument_specs": {"main": {"options": options}}}
    (role / "meta" / "argument_specs.yml").write_text(yaml.safe_dump(specs), encoding="utf-8")
    (role / "README.md").write_text(f"# x\n\n{module._BEGIN}{module._END}\nMore.\n", encoding="utf-8")
    return module


@pytest.mark.parametrize(
    "value",
    [
        "",
        "25%",
        "1.30",
        "off",
        "a: b",
        "a, b",
        "[x]",
        "~",
        "plain",
        "#x",
        'a"b',
        "12",
        None,
        True,
        3,
        0.5,
        ["a", ""],
        {"a": [1]},
    ],
)
def test_a_default_is_read_as_it_was_meant(generate, value):
    assert yaml.safe_load(f"name: {generate.in_yaml(value)}") == {"name": value}
    assert yaml.safe_load(f"- [{generate.in_yaml(value)}]") == [[value]]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("O(gpu_x_mode=off) and V(a) | C(b)", "`gpu_x_mode: off` and `a` \\| `b`"),
        (r"V(all\(1\))", "`all(1)`"),
        (
            "P(gpufleet.nvidia.nvidia_mig#role), P(gpufleet.nvidia.x#filter)",
            "[nvidia_mig](../nvidia_mig/README.md), `x`",
        ),
        ("O(gpufleet.nvidia.mig#module:layout)", "`layout` of `gpufleet.nvidia.mig`"),
        ("O(gpufleet.nvidia.nvidia_mig#role:main:nvidia_mig_layout)", "`nvidia_mig_layout`"),
        ("docs/heal.md of the collection", "[docs/heal.md](../../docs/heal.md)"),
    ],
)
def test_markup_becomes_markdown(generate, text, written):
    assert generate.in_markdown(text) == written


def test_it_names_what_is_not_generated_and_writes_it(generate, capsys):
    assert generate.main(["--check"]) == 1
    assert "roles/gpu_x/defaults/main.yml does not follow" in capsys.readouterr().err
    assert generate.main([]) == 0 and generate.main(["--check"]) == 0
    role = generate.ROOT / "roles" / "gpu_x"
    assert yaml.safe_load((role / "defaults" / "main.yml").read_text("utf-8")) == {
        "gpu_x_mode": "a",
        "gpu_x_share": "25%",
    }
    readme = (role / "README.md").read_text("utf-8")
    assert readme.startswith("# x\n") and readme.endswith("\nMore.\n")
    assert '| `gpu_x_mode` | `a` | How. `a` is it. More. One of `a`, `"off"`. |' in readme
    assert "`gpu_x_mode: off` and [docs/heal.md](../../docs/heal.md)" in readme


def test_a_readme_without_a_place_for_the_table_is_named(generate):
    (generate.ROOT / "roles" / "gpu_x" / "README.md").write_text("# x\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="has no place for its variables"):
        generate.main([])


def test_an_option_follows_from_the_variable_that_a_task_passes_as_it_is(generate):
    root = generate.ROOT
    (root / "roles" / "gpu_x").rename(root / "roles" / "nvidia_x")
    for folder in ("plugins/modules", "plugins/module_utils"):
        (root / folder).mkdir(parents=True)
    options = {"mode": "{{ gpu_x_mode }}", "part": "{{ gpu_x_share }}", "other": "{{ gpu_x_mode | upper }}"}
    tasks = [{"name": "Do", "block": [{"name": "Do it", "gpufleet.nvidia.x": options}]}]
    (root / "roles" / "nvidia_x" / "tasks" / "main.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")
    own = {"options": {"part": {"type": "str"}, "mode": {"description": "With its own words."}}}
    module = root / "plugins" / "modules" / "x.py"
    module.write_text(f'DOCUMENTATION = r"""{yaml.safe_dump(own)}"""\n', encoding="utf-8")
    specification = {"type": "str", "choices": ["a", "off"], "default": "a"}
    assert generate.passed() == {"x": {"mode": ("gpu_x_mode", specification)}}

    table = root / "plugins" / "module_utils" / "_options.py"
    table.write_text(f"OPTIONS = {{\n{generate._ROWS}\n{generate._ROWS_END}\n}}\n", encoding="utf-8")
    generate.main([])
    found: dict = {}
    exec(table.read_text(encoding="utf-8"), found)
    assert found["OPTIONS"] == generate.passed()


def test_what_follows_from_the_tables_of_runtimes_and_metrics_is_replaced_in_its_place(generate):
    stale = {
        "roles/nvidia_toolkit/meta/argument_specs.yml": "a: 1\nchoices: [containerd, gone, none]\nb: 2\n",
        "plugins/modules/container_runtime.py": "choices: [containerd, gone]\nchoices: [present, absent]\n",
        "docs/monitoring.md": "Before.\n\n| `gpufleet_gone` | gauge |  | Of before. |\n| `gpufleet_too` | gauge |  | x |\n\nAfter.\n",
    }
    for name, text in stale.items():
        path = generate.ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    written = {str(path.relative_to(generate.ROOT)): text for path, text in (*generate.runtimes(), *generate.metrics())}
    assert set(written) == set(stale)
    names = ", ".join(RUNTIMES)
    assert written["roles/nvidia_toolkit/meta/argument_specs.yml"] == f"a: 1\nchoices: [{names}, none]\nb: 2\n"
    assert written["plugins/modules/container_runtime.py"] == f"choices: [{names}]\nchoices: [present, absent]\n"
    head, *rows, tail = (
        written["docs/monitoring.md"].replace("Before.\n\n", "Before.\n").replace("\n\nAfter", "\nAfter").splitlines()
    )
    assert (head, tail) == ("Before.", "After.")
    assert [row.split("`")[1] for row in rows] == [metric.name for metric in METRICS]
