# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugins that send something to the host: pynvml for one call, and the host program.

The module's answers are given; what the plugin asks and sends is looked at.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.action import gpu_info, health, host_module, host_program
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import printable
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import host_facts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import host_program as sent
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import PynvmlNotOnController
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import facts_of
from hypothesis import given
from hypothesis import strategies as st

ARCHIVE = sent.ARCHIVE_OPTION
TMP = "/tmp/.ansible/one"


class Host:
    """What an action plugin has of a host.

    :param answers: of the module, in order; one that is asked more often than that fails the test.
    """

    def __init__(self, answers, tmpdir=TMP):
        self.answers = list(answers)
        self.calls = []
        self.sent = {}
        self.readable = []
        self.shell = SimpleNamespace(tmpdir=tmpdir, join_path=lambda *parts: "/".join(parts))

    def plugin(self, kind, arguments):
        made = object.__new__(kind)
        made._task = SimpleNamespace(args=arguments, async_val=0, check_mode=False, action="gpufleet.nvidia.mig")
        made._connection = SimpleNamespace(_shell=self.shell, exec_command=None)
        made._display = SimpleNamespace()
        made._templar = SimpleNamespace(template=lambda text: text)
        made._execute_module = self.execute
        made._transfer_data = lambda path, data: self.sent.__setitem__(path, data)
        made._fixup_perms2 = self.readable.append
        made._make_tmp_path = lambda: setattr(self.shell, "tmpdir", TMP)
        return made

    def execute(self, module_args, task_vars):
        assert task_vars == {"a": 1}
        self.calls.append(dict(module_args))
        # Ansible adds its own to the arguments that it gets.
        module_args["_ansible_check_mode"] = False
        return self.answers.pop(0)


@pytest.fixture(autouse=True)
def base(monkeypatch):
    """The base class's own preparation needs a connection."""
    monkeypatch.setattr(host_facts.ActionBase, "run", lambda *_arguments: {})


@pytest.fixture
def without_pynvml(monkeypatch):
    def none(**_arguments):
        raise PynvmlNotOnController("the controller does not have it")

    monkeypatch.setattr(sent, "pynvml_archive", none)
    monkeypatch.setattr(host_program, "host_program", none)


def run(host, kind, **arguments):
    answer = host.plugin(kind, arguments).run(task_vars={"a": 1})
    # How long the host took to answer is in every answer.
    assert answer.pop("elapsed") >= 0
    return answer


@pytest.mark.parametrize("module", [gpu_info, health, host_module])
def test_modules_that_speak_nvml_can_be_sent_pynvml(module):
    assert issubclass(module.ActionModule, sent.NvmlAction)


def test_a_host_with_pynvml_is_asked_once_and_sent_nothing():
    host = Host([{"changed": True, "created": []}])
    assert run(host, host_module.ActionModule, layout="all-balanced") == {"changed": True, "created": []}
    assert host.calls == [{"layout": "all-balanced"}]
    assert host.sent == {}


@pytest.mark.parametrize("tmpdir", [TMP, None], ids=["the task has a folder", "a folder is made"])
def test_a_host_without_pynvml_is_sent_it_and_asked_again(tmpdir):
    host = Host([{"failed": True, "msg": "no pynvml", "pynvml_missing": True}, {"changed": True}], tmpdir)
    assert run(host, host_module.ActionModule, layout="all-balanced") == {"changed": True}, (
        "nothing of the first answer is left"
    )
    path = f"{TMP}/pynvml.zip"
    assert host.calls == [{"layout": "all-balanced"}, {"layout": "all-balanced", ARCHIVE: path}]
    with zipfile.ZipFile(io.BytesIO(host.sent[path])) as archive:
        assert b"def nvmlInit" in archive.read("pynvml.py")
    assert host.readable == [[TMP, path]]


def test_what_a_host_took_is_the_time_of_both_calls():
    missing = {"failed": True, "msg": "no pynvml", "pynvml_missing": True, "seconds": {"own": 0.3}}
    host = Host([missing, {"changed": True, "seconds": {"own": 0.5, "nvml": 2.0}}])
    assert run(host, host_module.ActionModule, layout="all-balanced")["seconds"] == {"own": 0.8, "nvml": 2.0}
    absent = {"changed": False, "program_missing": True, "seconds": {"own": 0.3}}
    host = Host([absent, {"changed": True, "seconds": {"own": 0.5}}])
    assert run(host, host_program.ActionModule)["seconds"] == {"own": 0.8}


def test_a_second_answer_without_pynvml_is_a_failure_and_no_loop():
    missing = {"failed": True, "msg": "no pynvml", "pynvml_missing": True}
    host = Host([dict(missing), dict(missing)])
    assert run(host, host_module.ActionModule) == {"failed": True, "msg": "no pynvml"}


def test_facts_as_text_are_taken_in_and_say_the_same():
    facts = {"schema": 1, "host": {"name": "gpu01"}, "gpus": []}
    read = run(Host([{"changed": False, "gpu": facts}]), gpu_info.ActionModule)
    as_text = run(Host([{"changed": False, "gpu": facts}]), gpu_info.ActionModule, as_text=True)
    assert set(as_text) == {"changed", "gpu_text"}
    assert facts_of(as_text) == facts_of(read) == (view_of(facts), "")


@pytest.mark.parametrize("as_text", [True, False])
def test_the_host_is_asked_for_a_text_whatever_the_user_asked_for(as_text):
    facts = {"schema": 1, "host": {"name": "gpu01"}, "gpus": []}
    host = Host([{"changed": False, "gpu_text": json.dumps(facts)}])
    answer = run(host, gpu_info.ActionModule, as_text=as_text, gather=["health"])
    assert host.calls == [{"as_text": True, "gather": ["health"]}]
    assert (
        facts_of(answer) == (view_of(facts), "")
        and ("gpu_text" in answer) is as_text
        and ("gpu" in answer) is not as_text
    )


@pytest.mark.parametrize(("root", "asked"), [({}, True), ({"root": "/"}, True), ({"root": "/mnt"}, False)])
@pytest.mark.parametrize(
    ("url", "source"),
    [("", "https://developer.download.nvidia.com/compute/cuda/repos"), ("file:///srv/debs", "file:///srv/debs")],
)
def test_the_host_is_asked_for_the_key_files_that_the_inventory_names(root, asked, url, source):
    known = gpu_info.KEY_FINGERPRINT
    host = Host([{"changed": False, "gpu_text": '{"schema": 1}'}])
    variables = {
        "nvidia_driver_repository_key_file": "/root/{{ name }}.asc",
        "nvidia_driver_repository_key_fingerprint": "A" * 40,
        "nvidia_driver_repository_url": url,
        "nvidia_toolkit_repository_key_file": "/root/mirror.asc",
    }
    plugin = host.plugin(gpu_info.ActionModule, root)
    plugin._templar = SimpleNamespace(template=lambda text: text.replace("{{ name }}", "mirror"))
    plugin._execute_module = lambda module_args, **_others: host.calls.append(module_args) or host.answers.pop(0)
    plugin.run(task_vars=variables)
    found = {
        "nvidia_driver_repository_key_file": ["/root/mirror.asc", "gpufleet-nvidia-driver", "A" * 40, source],
        # What the driver's variables say of the same file is another question.
        "nvidia_toolkit_repository_key_file": ["/root/mirror.asc", "nvidia-container-toolkit", known, ""],
    }
    assert host.calls[0].get("_key_files") == (found if asked else None)


@pytest.mark.parametrize("said", ['{"schema": "x"}', "[" * 100_000, {"schema": "x"}])
@pytest.mark.parametrize("as_text", [True, False])
def test_what_a_host_says_is_facts_only_after_it_was_held_against_their_schema(said, as_text):
    name = "gpu_text" if isinstance(said, str) else "gpu"
    answer = run(Host([{"changed": False, name: said}]), gpu_info.ActionModule, as_text=as_text)
    facts, unread = facts_of(answer)
    assert facts is None and "its facts" in unread
    if name == "gpu" or not as_text:
        assert answer["failed"] and not {"gpu", "gpu_text"} & set(answer)


def test_a_text_of_the_host_brings_no_control_characters():
    facts = {"schema": 1, "host": {"name": "gpu\x1b[2J01"}, "gpus": []}
    answer = run(Host([{"changed": False, "gpu_text": json.dumps(facts)}]), gpu_info.ActionModule, as_text=True)
    assert json.loads(answer["gpu_text"])["host"]["name"] == "gpu?[2J01"


@given(
    st.dictionaries(
        st.text(st.sampled_from('ab"\\/:\n\t\x1b\u202e\ud800é')),
        st.text(st.sampled_from('ab"\\/: nu\n\t\x1b\u202e\ud800é')),
        max_size=3,
    ),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", " : ")]),
)
def test_what_is_taken_as_it_came_is_what_would_have_been_made_of_it(made_up, as_ascii, separators):
    facts = {"schema": 1, "host": {"name": "gpu01"}, "gpus": [], "made up": made_up}
    text = json.dumps(facts, ensure_ascii=as_ascii, separators=separators)
    answer = run(Host([{"changed": False, "gpu_text": text}]), gpu_info.ActionModule, as_text=True)
    assert json.loads(answer["gpu_text"]) == printable(facts, lines=True)


@pytest.mark.parametrize("part", ["\\n", '\\"', "\\\\", '"', '" '])
@pytest.mark.parametrize("end", ["", '"', "\\", '":'])
def test_a_text_that_was_made_to_be_looked_at_for_long_is_not(part, end):
    """With each escape looked at to the end of its string this takes hours."""
    answer = run(
        Host([{"changed": False, "gpu_text": '{"' + part * 300_000 + end}]), gpu_info.ActionModule, as_text=True
    )
    assert facts_of(answer)[0] is None


def test_the_lines_of_a_program_cost_no_second_look():
    text = json.dumps({"schema": 1, "host": {"name": 'a "host"'}, "gpus": [], "made up": "GPU 0\n\tMIG"})
    answer = run(Host([{"changed": False, "gpu_text": text}]), gpu_info.ActionModule, as_text=True)
    assert answer["gpu_text"] == text


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "x"}', "[" * 100_000])
def test_text_that_is_no_facts_is_unread(text):
    facts, unread = facts_of({"gpu_text": text})
    assert facts is None and unread


def test_users_cannot_name_an_archive():
    host = Host([{"changed": False}])
    run(host, host_module.ActionModule, layout="all-balanced", **{ARCHIVE: "/home/somebody/pynvml.zip"})
    assert host.calls == [{"layout": "all-balanced"}]


@pytest.mark.parametrize(
    ("path", "held", "found"),
    [
        ("/a.json", '{"state": "done"}', {"document": {"state": "done"}}),
        ("/a.json", "[]", {"document": []}),
        # A host that lost its power after a file was renamed, before its content was on the disk.
        ("/a.json", "", {}),
        ("/a.json", "\n", {}),
        (
            "/a.json",
            '{"state": "do',
            {"unreadable": "invalid JSON (Unterminated string", "msg": "Failed to read /a.json"},
        ),
        ("/a.txt", '{"state": "do', {}),
    ],
)
def test_a_file_of_json_is_read_and_an_empty_one_is_as_if_it_were_not_there(path, held, found):
    host = Host([{"changed": False, "content": base64.b64encode(held.encode()).decode()}])
    plugin = host.plugin(host_module.ActionModule, {"slurp": {"src": path}})
    plugin._task.action = "gpufleet.nvidia.host_module"
    plugin._shared_loader_obj = SimpleNamespace(action_loader=SimpleNamespace(has_plugin=lambda _name: False))
    plugin._execute_module = lambda _name, _arguments, **_others: host.answers.pop(0)
    answer = plugin.run(task_vars={"a": 1})
    assert set(answer) - {"changed", "content", "elapsed"} == set(found)
    assert all(str(answer[name]).startswith(str(value)) for name, value in found.items())


@pytest.mark.usefixtures("without_pynvml")
def test_neither_host_nor_controller_has_pynvml():
    host = Host([{"failed": True, "msg": "no pynvml", "pynvml_missing": True}])
    answer = run(host, host_module.ActionModule, layout="all-balanced")
    assert answer["failed"] and "nvidia-ml-py" in answer["msg"]
    assert len(host.calls) == 1 and host.sent == {}


@pytest.mark.usefixtures("without_pynvml")
def test_a_controller_without_pynvml_cannot_build_the_host_program():
    host = Host([])
    answer = run(host, host_program.ActionModule)
    assert answer["failed"] and "nvidia-ml-py" in answer["msg"]


@pytest.fixture
def program(monkeypatch, tmp_path):
    monkeypatch.setattr(host_program.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    return host_program.host_program(str(tmp_path))


def test_a_removal_needs_no_program(monkeypatch):
    monkeypatch.setattr(host_program, "host_program", None)
    host = Host([{"changed": True}])
    assert run(host, host_program.ActionModule, state="absent") == {"changed": True}
    assert host.calls == [{"state": "absent"}]


@pytest.mark.parametrize("given", [{}, {"metrics_directory": ""}, {"metrics_directory": "/var/lib/metrics"}])
def test_a_program_that_is_in_place_is_not_sent(program, given):
    host = Host([{"changed": False}])
    run(host, host_program.ActionModule, **given)
    assert host.calls == [{**given, "sha256": program.sha256, "version": program.version}]
    assert host.sent == {}


def test_a_missing_program_is_sent_and_installed_by_a_second_call(program):
    host = Host([{"changed": False, "program_missing": True}, {"changed": True, "sha256": program.sha256}], None)
    assert run(host, host_program.ActionModule) == {"changed": True, "sha256": program.sha256}
    path = f"{TMP}/gpufleet-host.pyz"
    assert host.calls[1] == {"sha256": program.sha256, "version": program.version, "src": path}
    assert hashlib.sha256(host.sent[path]).hexdigest() == program.sha256
    assert host.readable == [[TMP, path]]
