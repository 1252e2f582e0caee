# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The examples for large sites: what they name exists, and what they set is taken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.playbook_variables import check
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.demand import described as demand_of

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"
TOOLS = REPOSITORY / ".venv" / "bin"
PLAYBOOKS = {path.stem for path in (REPOSITORY / "playbooks").glob("*.yml")}


def load(path):
    return DataLoader().load_from_file(str(EXAMPLES / path))


def ansible(*command):
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["site.yml", "install.yml"])
def test_the_playbooks_of_pull_are_playbooks(playbook):
    inventory = str(EXAMPLES / "fleet" / "inventory.yml")
    program = str(TOOLS / "ansible-playbook")
    done = ansible(program, "-i", inventory, "--syntax-check", str(EXAMPLES / "pull" / playbook))
    assert done.returncode == 0, done.stderr


def test_the_unit_of_pull_calls_ansible_pull_as_it_wants_to_be_called():
    unit = (EXAMPLES / "pull" / "gpufleet-pull.service").read_text(encoding="utf-8").replace("\\\n", " ")
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).split()
    known = ansible(str(TOOLS / "ansible-pull"), "--help").stdout
    options = [word for word in command if word.startswith("--")]
    assert options
    assert [option for option in options if not re.search(rf"{option}\b", known)] == []
    assert command[-1] == "site.yml"


def _key(folder, name):
    """Make a throwaway key without a passphrase and return its fingerprint."""
    folder.mkdir(mode=0o700)
    gpg = ["gpg", "--batch", "--homedir", str(folder)]
    subprocess.run([*gpg, "--passphrase", "", "--quick-gen-key", name, "ed25519", "sign", "1d"], check=True)
    listed = subprocess.run([*gpg, "--with-colons", "--list-keys", name], capture_output=True, text=True, check=True)
    return next(line.split(":")[9] for line in listed.stdout.splitlines() if line.startswith("fpr:"))


@pytest.mark.slow
def test_a_host_that_pulls_applies_only_commits_of_the_keys_that_it_was_given(tmp_path):
    ours, theirs = (_key(tmp_path / name, f"{name}@example.com") for name in ("ours", "theirs"))
    exported = subprocess.run(
        ["gpg", "--homedir", tmp_path / "ours", "--armor", "--export", ours], capture_output=True, check=True
    ).stdout
    # As install.yml does it.
    keyring = tmp_path / "keyring"
    keyring.mkdir(mode=0o700)
    subprocess.run(["gpg", "--batch", f"--homedir={keyring}", "--import"], input=exported, check=True)
    repository, applied = tmp_path / "repository", tmp_path / "applied"
    (repository / "inventory").mkdir(parents=True)
    (repository / "inventory" / "hosts.yml").write_text(
        f"gpu_hosts: {{hosts: {{this: {{ansible_python_interpreter: {sys.executable}}}}}}}\n"
    )
    task = {
        "ansible.builtin.lineinfile": {"path": str(applied), "line": "{{ commit }}", "create": True, "mode": "0600"}
    }

    def commit(name, key, home):
        play = {"hosts": "gpu_hosts", "gather_facts": False, "vars": {"commit": name}, "tasks": [task]}
        (repository / "site.yml").write_text(yaml.safe_dump([play]))
        signing = [f"-S{key}"] if key else ["--no-gpg-sign"]
        git = ["git", "-C", repository, "-c", "user.name=x", "-c", "user.email=x@example.com"]
        for words in (["add", "-A"], ["commit", "-q", "-m", name, *signing]):
            subprocess.run([*git, *words], env={**os.environ, "GNUPGHOME": str(home)}, check=True)

    def pull():
        unit = (EXAMPLES / "pull" / "gpufleet-pull.service").read_text(encoding="utf-8").replace("\\\n", " ")
        command = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).partition("=")[2]
        for before, after in {
            "/opt/gpufleet-pull/bin": str(TOOLS),
            "/var/lib/gpufleet-pull": str(tmp_path / "state"),
            "${REPOSITORY}": str(repository),
            "${BRANCH}": "main",
            "${HOST}": "this",
        }.items():
            assert before in command
            command = command.replace(before, after)
        environment = {**os.environ, "GNUPGHOME": str(keyring), "HOME": str(tmp_path)}
        return subprocess.run(command.split(), env=environment, capture_output=True, text=True, check=False)

    subprocess.run(["git", "init", "-q", "-b", "main", repository], check=True)
    commit("signed", ours, tmp_path / "ours")
    done = pull()
    assert done.returncode == 0, done.stdout + done.stderr
    for name, key in (("unsigned", ""), ("of somebody else", theirs)):
        commit(name, key, tmp_path / "theirs")
        assert pull().returncode != 0
    assert applied.read_text() == "signed\n"
    for home in ("ours", "theirs", "keyring"):
        subprocess.run(["gpgconf", "--homedir", tmp_path / home, "--kill", "all"], check=True)


def test_the_variables_of_a_rollout_by_runner_are_taken():
    given = load("runner/env/extravars")
    assert given
    assert check("upgrade", given) == check("upgrade", {})
    assert set(load("runner/env/settings")) >= {"container_image", "process_isolation"}
    assert all(name.startswith("ANSIBLE_") for name in load("runner/env/envvars"))


def test_the_job_templates_of_awx_run_playbooks_of_the_collection():
    objects = load("awx/controller.yml")
    templates = {entry["name"]: entry for entry in objects["controller_templates"]}
    for entry in templates.values():
        playbook = Path(entry["playbook"]).stem
        assert playbook in PLAYBOOKS
        if playbook in ("upgrade", "repartition"):
            assert check(playbook, entry.get("extra_vars") or {}).refusals == ()
            assert "job_slice_count" not in entry, "its budget is that of one rollout"
            assert entry["allow_simultaneous"] is False
    workflows = {entry["name"]: entry["simplified_workflow_nodes"] for entry in objects["controller_workflows"]}
    for schedule in objects["controller_schedules"]:
        named = schedule["unified_job_template"]
        for node in workflows.get(named, [{"unified_job_template": named}]):
            template = templates[node["unified_job_template"]]
            given = {**(template.get("extra_vars") or {}), **schedule.get("extra_data", {})}
            assert check(Path(template["playbook"]).stem, given).refusals == ()


def test_the_demands_of_day_and_night_are_taken():
    schedules = load("awx/controller.yml")["controller_schedules"]
    demands = [entry["extra_data"]["gpu_recommend_demand"] for entry in schedules if "extra_data" in entry]
    assert len(demands) == 2 and all(demand_of(demand) for demand in demands)


def test_an_alert_about_pods_that_wait_starts_a_recommendation():
    """The label of the documented alert is what the rulebook waits for, and the playbook is one of the collection."""
    page = (REPOSITORY / "docs" / "recommend.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    (alert,) = (one for block in blocks if isinstance(block, list) for one in block if "alert" in one)
    (ruleset,) = yaml.safe_load((REPOSITORY / "extensions/eda/rulebooks/recommend.yml").read_text(encoding="utf-8"))
    (rule,) = ruleset["rules"]
    assert re.search(r'commonLabels\.repair == "(.*?)"', rule["condition"])[1] == alert["labels"]["repair"]
    assert rule["action"]["run_playbook"]["name"].removeprefix("gpufleet.nvidia.") in PLAYBOOKS
    assert alert["for"] and "kube_pod_status_unschedulable" in alert["expr"]


def test_a_plan_of_awx_is_approved_before_it_is_applied():
    objects = load("awx/controller.yml")
    templates = {entry["name"]: entry for entry in objects["controller_templates"]}
    workflow = next(one for one in objects["controller_workflows"] if one["name"] == "GPU reviewed site")
    nodes = {node["identifier"]: node for node in workflow["simplified_workflow_nodes"]}
    assert nodes["plan"]["success_nodes"] == ["approval"] and nodes["approval"]["success_nodes"] == ["site"]
    saved, applied = (templates[nodes[name]["unified_job_template"]]["extra_vars"] for name in ("plan", "site"))
    assert saved["gpu_plan_out"] == applied["gpu_plan_apply"]
    for playbook, given in (("plan", saved), ("site", applied)):
        assert check(playbook, given).refusals == ()


def test_every_package_is_pinned_in_one_place_and_the_readme_installs_from_it():
    described = yaml.safe_load((REPOSITORY / "meta" / "execution-environment.yml").read_text(encoding="utf-8"))
    for path in described["dependencies"].values():
        assert (REPOSITORY / path).is_file()
    controller = REPOSITORY / described["dependencies"]["python"]
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (installed,) = re.findall(r"^ +pip install (.*)$", readme, re.MULTILINE)
    assert installed.endswith(f"/gpufleet/nvidia/{controller.relative_to(REPOSITORY)}")
    files = [controller, *sorted((REPOSITORY / "requirements").glob("*.in"))]
    pinned = [
        line
        for file in files
        for line in file.read_text(encoding="utf-8").split()
        if re.match(r"[A-Za-z][\w.-]*[<=>]", line)
    ]
    names = [re.split("[<=>]", line)[0].lower() for line in pinned]
    # The oldest Python has releases of its own of what tests run with.
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"hypothesis", "pytest", "pytest-xdist"}
    assert {"kubernetes", "nvidia-ml-py"} <= set(names)
    includes = {
        file.name: re.findall(r"^-[rc] (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE) for file in files
    }
    assert includes["development.in"] == includes["oldest-python.in"] == ["../meta/ee-requirements.txt"]


def test_the_inventory_that_the_readme_gives_to_paste_is_taken_and_says_what_its_plan_shows():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(gpu_hosts:.*?)```", readme, re.DOTALL)
    described = yaml.safe_load(text)["gpu_hosts"]
    pools = {name: list(pool["hosts"]) for name, pool in described["children"].items()}
    for name, pool in described["children"].items():
        for host, own in pool["hosts"].items():
            found = describe(host, {**described["vars"], **pool["vars"], **own}, pools)
            assert found.pool == name and not found.refusals
            (row,) = re.findall(rf"^{host} +{name} .*$", readme, re.MULTILINE)
            assert ("mig" in row) is bool(found.variables["nvidia_mig_layout"])
    shown = "mig: partition GPUs 0-7 (wanted: 3g.40gb + 2g.20gb + 1g.10gb x2)"
    assert shown in readme
    assert described["children"]["training"]["vars"]["nvidia_mig_layout"][0]["instances"] == {
        "3g.40gb": 1,
        "2g.20gb": 1,
        "1g.10gb": 2,
    }


def test_the_image_for_awx_has_the_collection_in_the_version_of_this_tree():
    described = load("awx/execution-environment.yml")
    ours = yaml.safe_load((REPOSITORY / "galaxy.yml").read_text(encoding="utf-8"))
    (collection,) = described["dependencies"]["galaxy"]["collections"]
    assert collection == {"name": f"{ours['namespace']}.{ours['name']}", "version": ours["version"]}
    image = next(entry["image"] for entry in load("awx/controller.yml")["controller_execution_environments"])
    for page in ("docs/scale.md", "examples/runner/README.md"):
        commands = re.findall(
            r"ansible-builder build -f (\S+) -t (\S+)", (REPOSITORY / page).read_text(encoding="utf-8")
        )
        assert commands
        for path, tag in commands:
            base = REPOSITORY if page.startswith("docs") else (REPOSITORY / page).parent
            assert (base / path).resolve() == EXAMPLES / "awx" / "execution-environment.yml"
            assert tag == image
