# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every kind of call that the collection makes of the Kubernetes API, as a program of its own: what each answered, as JSON.

client_calls.py COLLECTIONS KUBECONFIG STRANGER DEAD

It runs in an environment with some release of the client, so it imports nothing of pytest. STRANGER is the kubeconfig of a user without
rights, DEAD one of a server that is not there. There are the nodes C(a) and C(b), and pods C(free), C(kept) and C(other) on C(a).
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any, Callable

from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder


def said(call: Callable[[], Any]) -> Any:
    """What a call returns, or the status and the text of its error."""
    from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError

    try:
        return call()
    except ApiError as error:
        return [error.status, str(error)]


def main(collections: str, kubeconfig: str, stranger: str, dead: str) -> None:
    _AnsibleCollectionFinder(paths=[collections])._install()
    from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import Cluster

    waits: list[str] = []
    cluster = Cluster(kubeconfig, "", 5)
    found: dict[str, Any] = {"release": version("kubernetes")}
    found["nodes"] = sorted(cluster.nodes())
    found["missing node"] = said(lambda: cluster.node("nobody"))

    # A merge patch: null takes a key away, and the other keys stay.
    cluster.change_node(
        "a", {"gpufleet.github.io/one": "1", "gpufleet.github.io/two": "2"}, True, {"example.com/x": "y"}
    )
    cordoned = cluster.change_node("a", {"gpufleet.github.io/one": None})
    found["patched"] = {
        "annotations": {key: value for key, value in cordoned["metadata"]["annotations"].items() if "gpufleet" in key},
        "label": cordoned["metadata"]["labels"].get("example.com/x"),
        "unschedulable": cordoned["spec"].get("unschedulable"),
    }
    found["uncordoned"] = cluster.change_node("a", {}, False)["spec"].get("unschedulable")
    found["refused patch"] = said(lambda: cluster.change_node("a", {}, labels={"not a label": "y"}))

    found["pods"] = sorted(pod["metadata"]["name"] for pod in cluster.pods())
    on_a = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in cluster.pods_on("a")}
    found["pods on a"], found["pods on b"] = sorted(on_a), cluster.pods_on("b")
    found["labelled pods"] = sorted(pod["metadata"]["name"] for pod in cluster.pods_on("a", "app in (kept, nothing)"))
    found["daemon sets"] = cluster.daemon_sets()
    # Subresources. A budget counts for pods that run.
    running = {"status": {"phase": "Running"}}
    cluster.call("PATCH", "/api/v1/namespaces/default/pods/kept/status", "change the status of pod kept", running)
    found["evict another"] = cluster.evict("default", "free", "00000000-0000-0000-0000-000000000000")
    found["evict kept"] = cluster.evict("default", "kept", on_a["kept"])
    found["evict"] = cluster.evict("default", "free", on_a["free"])
    found["evict again"] = cluster.evict("default", "free", on_a["free"])
    uids = ("00000000-0000-0000-0000-000000000000", on_a["other"], on_a["other"])
    found["deleted"] = [cluster.delete_pod("default", "other", uid) for uid in uids]
    status = {"status": {"allocatable": {"nvidia.com/gpu": "2"}, "capacity": {"nvidia.com/gpu": "2"}}}
    patched = cluster.call("PATCH", "/api/v1/nodes/b/status", "change the status of node b", status)
    found["status"] = patched["status"]["allocatable"]
    found["left"] = sorted(pod["metadata"]["name"] for pod in cluster.pods_on("a"))
    # A list in pages.
    page = cluster.call("GET", "/api/v1/nodes", "list the nodes", limit="1")
    rest = cluster.call(
        "GET", "/api/v1/nodes", "list the nodes", **{"limit": "1", "continue": page["metadata"]["continue"]}
    )
    found["pages"] = [[node["metadata"]["name"] for node in part["items"]] for part in (page, rest)]

    # A Lease changes only as it was read.
    found["no lease"] = cluster.lease("default", "l")
    made = cluster.write_lease("default", "l", {"holderIdentity": "me"}, None)
    twice = cluster.write_lease("default", "l", {"holderIdentity": "you"}, None)
    read = (cluster.lease("default", "l") or {})["metadata"]["resourceVersion"]
    renewed = cluster.write_lease("default", "l", {"holderIdentity": "me", "leaseDurationSeconds": 60}, read)
    stale = cluster.write_lease("default", "l", {"holderIdentity": "you"}, read)
    found["lease"] = [made, twice, renewed, stale, (cluster.lease("default", "l") or {})["spec"]]
    cluster.call("DELETE", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", "delete lease l")

    found["forbidden"] = said(lambda: Cluster(stranger, "", 5).nodes())
    found["dead"] = said(lambda: Cluster(dead, "", 1, waits.append).nodes())
    found["waits"] = len(waits)
    json.dump(found, sys.stdout)


main(*sys.argv[1:])
