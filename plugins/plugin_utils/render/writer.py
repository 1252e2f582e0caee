# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Putting a tree on disk: nothing that is as it should be is touched, nothing that a person changed, or that a part of an inventory lacks, is lost."""

from __future__ import annotations

import difflib
import glob
import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible.inventory.manager import IGNORED

from ...module_utils._adapters.files import read_bytes, read_text, remove, write_whole
from ...module_utils._formats.documents import read_record
from ...module_utils._plan import Refused
from ...module_utils._schema import Path, items, mapping, needs, not_null, of, text
from ..fleet.slurm_node import ShownSlurmNode, read_nodes
from ..fleet.text import shortened
from .capacity_document import Former, former
from .emit import json_text

VARIABLE = "gpu_kubernetes_output_directory"
MANIFEST = "manifest.json"
#: Folders of an inventory that are not read as groups, but as variables.
_OF_VARIABLES = ("group_vars", "host_vars")
_SCHEMA = 1
#: The folder of the Slurm clusters, beside that of the others.
SLURM = "slurm"


@dataclass(frozen=True)
class TreeChange:
    """One file to C(create), C(update) or C(remove) below the output directory, its text now and then; C(edited) says whose change would be lost."""

    action: str
    path: str
    before: str
    after: str
    edited: str = ""


def refuse_unwritable(root: str) -> None:
    """Refuse an output directory that cannot be written, or made, before anything is planned."""
    place = root
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        raise Refused(VARIABLE, f"{place} is not a directory", "Name another directory, or move away what is there.")
    if not os.access(place, os.W_OK | os.X_OK):
        reason = f"user ID {os.geteuid()} may not write to {place}"
        raise Refused(VARIABLE, reason, "Name another directory, or grant write permission there.")


def refuse_in_inventory(path: str, variable: str, sources: Iterable[str]) -> None:
    """Refuse a directory in one of the run's inventories, whose files Ansible would read as groups, hosts or variables from the next run on."""
    for source in sources:
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(source)).split(os.sep)
        left_out = any(IGNORED.search(part.encode()) for part in inside if part not in (".", *_OF_VARIABLES))
        if os.path.isdir(source) and inside[0] != os.pardir and not left_out:
            reason = f"{path} is inside the inventory {source}, and Ansible would read the files there as groups, hosts and variables"
            remedy = "Name a directory outside of it, or begin the name of the folder with a dot."
            raise Refused(variable, reason, remedy)


def plan(
    root: str, trees: Mapping[str, Mapping[str, str]], prune: bool, removed: Iterable[str] = ()
) -> list[TreeChange]:
    """Return what has to change on disk.

    :param trees: directory below the output directory C(root) to its files.
    :param prune: whether files of these directories that an earlier manifest names, and nothing describes any more, go.
    :param removed: directories below C(root) all of whose files go.
    """
    changes: list[TreeChange] = []
    for directory, files in sorted(trees.items()):
        changes += _directory(root, directory, {**files, MANIFEST: manifest(files)}, prune)
    for directory in removed:
        changes += _directory(root, directory, {}, True)
    return changes


def apply(root: str, changes: list[TreeChange]) -> None:
    """Write and remove files.

    The manifest of a directory first says what is about to be written, and at last what is there: a run that is cut off can be
    repeated, and even after another change of the inventory its files are known as the generator's own.
    """
    manifests = [change for change in changes if _is_manifest(change.path)]
    for change in manifests:
        if change.action != "remove":
            write_whole(os.path.join(root, change.path), _begun(change))
    for change in sorted(changes, key=lambda item: _is_manifest(item.path)):
        path = os.path.join(root, change.path)
        if change.action == "remove":
            remove(path)
            _remove_empty(os.path.dirname(path), root)
        else:
            # Where the prolog is no program, the jobs of Slurm fail.
            write_whole(path, change.after, 0o755 if _is_program(change.after) else 0o644)


def _is_program(text: str) -> bool:
    return text.startswith("#!")


def manifest(files: Mapping[str, str]) -> str:
    """Return the text of the manifest: the checksum of every file of the tree."""
    return json_text({"schema": _SCHEMA, "files": {path: _checksum(text.encode()) for path, text in files.items()}})


def digest(trees: Mapping[str, Mapping[str, str]]) -> str:
    """Return the digest of all of the files, which a saved plan names them by."""
    text = "".join(f"{directory} {manifest(files)}" for directory, files in sorted(trees.items()))
    return _checksum(text.encode())


def _is_manifest(path: str) -> bool:
    return os.path.basename(path) == MANIFEST


def _begun(change: TreeChange) -> str:
    """Return a manifest that knows the files of the tree before and after."""
    before, after = _read(change.before), _read(change.after)
    both = {path: sorted({*before.get(path, ()), *after.get(path, ())}) for path in {*before, *after}}
    return json_text({"schema": _SCHEMA, "files": both})


def _directory(root: str, directory: str, files: Mapping[str, str], prune: bool) -> list[TreeChange]:
    refuse_foreign(root, f"{directory}/{MANIFEST}")
    ours = _read(_text(read_bytes(os.path.join(root, directory, MANIFEST), links=False)))
    changes = []
    for path, after in sorted(files.items()):
        relative = f"{directory}/{path}"
        refuse_foreign(root, relative)
        place = os.path.join(root, relative)
        present = read_bytes(place, links=False)
        if present == after.encode() and (not _is_program(after) or os.lstat(place).st_mode & stat.S_IXUSR):
            continue
        edited = "" if path == MANIFEST else _edited(present, ours.get(path))
        action = "create" if present is None else "update"
        changes.append(TreeChange(action, relative, _text(present), after, edited))
    gone = sorted((set(ours) | ({MANIFEST} if ours and not files else set())) - set(files)) if prune else []
    for path in gone:
        refuse_foreign(root, f"{directory}/{path}")
        present = read_bytes(os.path.join(root, directory, path), links=False)
        if present is not None:
            edited = "" if path == MANIFEST else _edited(present, ours.get(path))
            changes.append(TreeChange("remove", f"{directory}/{path}", _text(present), "", edited))
    return changes


def refuse_foreign(root: str, path: str) -> None:
    """Refuse what is in the place of a file below C(root), or of a directory on the way: a link may lead anywhere, and reading a FIFO never ends."""
    place, parts = root, path.split("/")
    for left, part in enumerate(parts, 1 - len(parts)):
        place = os.path.join(place, part)
        if os.path.islink(place):
            raise Refused(
                place, f"it is a symbolic link to {os.readlink(place)}", "Remove it, or put its target there."
            )
        if os.path.lexists(place) and not (os.path.isdir(place) if left else os.path.isfile(place)):
            raise Refused(place, f"it is not a {'directory' if left else 'regular file'}", "Remove it.")


def _edited(present: bytes | None, recorded: frozenset[str] | None) -> str:
    if present is None:
        return ""
    if recorded is None:
        return "it was not written by gpufleet.nvidia"
    return "" if _checksum(present) in recorded else "it was changed since it was rendered"


def _checksums(value: Any, path: Path) -> frozenset[str]:
    """One, or several while a tree is being written."""
    return frozenset(items(text())([value] if isinstance(value, str) else value, path) or ())


@dataclass(frozen=True)
class WrittenFiles:
    """The manifest of a tree: by path, the checksums that a file may have."""

    files: Mapping[str, frozenset[str]] = needs(mapping(not_null(_checksums), 10**6))


_WRITTEN = of(WrittenFiles)


def _read(written: str) -> dict[str, frozenset[str]]:
    """Return, by path, the checksums that a file may have; empty for a manifest that is missing or damaged."""
    found: WrittenFiles | None = read_record(_WRITTEN, written)
    return {name: checksums for name, checksums in found.files.items() if _inside(name)} if found else {}


def _inside(path: str) -> bool:
    """A manifest names files below its own directory only, whatever was made of it."""
    return not os.path.isabs(path) and ".." not in path.split("/") and "\0" not in path


def other_clusters(root: str, trees: Collection[str]) -> list[str]:
    """Return the clusters that are in the tree and that the inventory of this run, with its C(trees), does not describe: they may be those of
    another one. The name of a Slurm cluster begins with the folder C(slurm/).
    """
    there = sorted(glob.glob("clusters/*", root_dir=root)) + sorted(glob.glob(f"{SLURM}/*", root_dir=root))
    left = [path for path in there if path not in trees and os.path.lexists(os.path.join(root, path, MANIFEST))]
    return [path.removeprefix("clusters/") for path in left]


def directory_of(name: str) -> str:
    """Return the directory of a cluster by its name as L(other_clusters) has it."""
    return name if name.startswith(f"{SLURM}/") else f"clusters/{name}"


def _remove_empty(folder: str, root: str) -> None:
    while os.path.commonpath([folder, root]) == root and folder != root:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("utf-8", "replace")


#: One tree can have the clusters of several inventories, so a cluster goes only by its name. Of its nodes a few are hosts that were taken out of service.
#: Many at once are an inventory that is not whole: AWX gives each job of a sliced template one without the hosts of the other slices (get_script_data).
REMOVE_NODES, REMOVE_CLUSTERS = "gpu_kubernetes_remove_nodes", "gpu_kubernetes_remove_clusters"
#: The smaller of two slices has half of the hosts or less; the larger one of three hosts has two.
_MANY = 3


def configurations_of_tree(root: str, directory: str) -> dict[str, Former]:
    """Return the configurations that a cluster's files have now. Raises Refused: they cannot be read."""
    path = os.path.join(root, directory, "capacity.json")
    return former(read_text(path, links=False), path)


def nodes_of_tree(root: str, directories: Iterable[str]) -> set[str]:
    """Return the nodes that are in these clusters' files as they are."""
    found = (configurations_of_tree(root, directory) for directory in directories)
    return {node for configurations in found for item in configurations.values() for node in item.nodes}


def slurm_nodes(root: str, cluster: str) -> Mapping[str, ShownSlurmNode]:
    """Return the nodes that a Slurm cluster's files have now. Raises Refused: they cannot be read."""
    path = os.path.join(root, SLURM, cluster, "capacity.json")
    return read_nodes(read_text(path, links=False), path)


def still_there(root: str, cluster: str, nodes: Collection[str], hosts: Collection[str]) -> list[str]:
    """Return the nodes in the files of a cluster (L(other_clusters)) that are C(nodes) of others now or, in a Slurm cluster, of C(hosts)."""
    if cluster.startswith(f"{SLURM}/"):
        there = slurm_nodes(root, os.path.basename(cluster))
        return sorted(name for name, node in there.items() if node.host in hosts)
    return sorted(nodes_of_tree(root, [directory_of(cluster)]) & set(nodes))


def site_files(paths: Iterable[str]) -> dict[str, str]:
    """Return the texts of the site's own files for Slurm. Raises Refused: one is not there."""
    found = {}
    for path in paths:
        text = read_text(path)
        if text is None:
            remedy = "Name slurm.conf and gres.conf where this run finds them, relative to the directory in which Ansible was started."
            raise Refused("gpu_slurm_site_files", f"there is no file {path}", remedy)
        found[path] = text
    return found


def leaving(root: str, before: Collection[str], known: Collection[str], allowed: bool) -> list[str]:
    """Return which nodes of the tree, C(before), are not C(known) any more.

    :raises Refused: they are a third or more of the nodes, and more than one, and that is not C(allowed).
    """
    gone = sorted(set(before) - set(known))
    if len(gone) > 1 and len(gone) * _MANY >= len(before) and not allowed:
        raise Refused(
            root,
            f"{len(gone)} of the {len(before)} nodes in the tree are not in this inventory and would be removed: {shortened(gone)}. An "
            "inventory with a part of the hosts, such as that of a sliced job of AWX, must not render",
            f"Render once, from the whole inventory, and add --skip-tags cluster to jobs with a part of it. If the hosts are gone, set {REMOVE_NODES}: "
            "true for this run.",
        )
    return gone


def removed_clusters(named: Collection[str], described: Collection[str], others: Collection[str]) -> list[str]:
    """Return which of the named clusters are in the tree, and so leave it. A Slurm cluster goes by its name alone, too.

    :param others: clusters in the tree that the inventory does not describe.
    :raises Refused: the inventory describes one of them, or the tree has none of that name and one of a similar name.
    """
    for name in named:
        near = difflib.get_close_matches(name, others, n=1)
        slurm = f"{SLURM}/{name}"
        if name in others or slurm in others:
            continue
        if name in described or slurm in described:
            remedy = "Take them out of it first (gpu_kubernetes_cluster, gpu_slurm_cluster)."
            reason = "hosts of this inventory are in it"
        elif near:
            reason, remedy = "the tree has no such cluster", f"Did you mean {near[0]}?"
        else:
            continue
        raise Refused(f"{REMOVE_CLUSTERS}: {name}", reason, remedy)
    meant = {name if name in others else f"{SLURM}/{name}" for name in named}
    return [name for name in others if name in meant]
