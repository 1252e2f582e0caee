# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All calls of the Kubernetes API that the collection makes, such as evictions one by one, guarded changes of a Lease, and the cordon with its
record in one change. An API server that is away for a while is waited for.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, TypeVar

from ansible import constants

from ..module_utils._formats.documents import read_json
from ..module_utils._plan import Failure
from ..module_utils._printable import printable
from .fleet import objects

_Answer = TypeVar("_Answer")
#: Statuses of a server that is starting, overloaded or behind a proxy that does not reach it.
_AWAY = (0, 500, 502, 503, 504)
_PAUSE = 2.0
_CLAIMS = f"/apis/{objects.CLAIMS}"
#: By kind, where quotas of teams are: those of the core, and those of Kueue.
_QUOTAS = {
    "ResourceQuota": "/api/v1/resourcequotas",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta1/clusterqueues",
    "ResourceFlavor": "/apis/kueue.x-k8s.io/v1beta1/resourceflavors",
}
_REMEDIATIONS = "/apis/nvsentinel.dgxc.nvidia.com/v1/externalremediationrequests"
#: Statuses of what is not there, or is another one by now, and of what somebody else has changed or made.
_GONE, _CONFLICT = (404, 409), (409,)
_LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
#: Kinds of patches: a list is replaced as a whole, or merged by what Kubernetes knows of its items.
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


class ApiError(Failure):
    """The API server's answer to a call that failed."""

    def __init__(self, status: int, what: str, reason: str) -> None:
        self.status = status
        super().__init__(str(printable(f"Failed to {what}: {reason}", lines=True)))


def if_there(
    call: Callable[..., _Answer], *arguments: Any, but: Collection[int] = (404,), **options: Any
) -> _Answer | None:
    """Return the answer of a call; None where it fails with one of the statuses C(but), as it does for what is not there."""
    try:
        return call(*arguments, **options)
    except ApiError as error:
        if error.status not in but:
            raise
        return None


def at_once(display: Any) -> Callable[[str], None]:
    """Return how to tell people that a task waits: from ansible-core 2.19 on a warning of a task is kept until the task has ended."""
    return lambda text: display.display(f"[WARNING]: {text}", color=constants.COLOR_WARN)


class Cluster:
    """A connection to the API server.

    :param patience: seconds to wait for an API server that does not answer.
    :param notify: told once when waiting begins, such as L(at_once).
    """

    def __init__(
        self, kubeconfig: str, context: str, patience: float, notify: Callable[[str], None] = lambda _text: None
    ) -> None:
        try:
            from kubernetes import client, config, dynamic
        except ImportError as error:
            raise Failure(
                f"Failed to import kubernetes on the controller: {error}. Install it there: pip install kubernetes"
            ) from error
        try:
            configuration = client.Configuration()
            config.load_kube_config(kubeconfig or None, context or None, configuration)
        except Exception as error:
            raise Failure(
                f"Failed to read the kubeconfig {kubeconfig or '(default)'}: {error}. Set gpu_cluster_kubeconfig."
            ) from error
        configuration.retries = False
        # The dynamic client's request() is the same in every release; ApiClient.call_api changed its signature in 36 and in 37.
        # Without a discoverer it asks only what is asked here, and leaves no cache of the API in the shared /tmp.
        self._api = dynamic.DynamicClient(client.ApiClient(configuration), discoverer=lambda _client, _cache: None)
        self._patience = patience
        self._notify = notify

    def call(
        self, method: str, path: str, what: str, body: Any = None, patch: str = MERGE, **query: str
    ) -> dict[str, Any]:
        """Make one call and return its answer as plain data.

        :param what: what is tried, for the message.
        :param patch: the kind of patch that C(body) is.
        :raises ApiError: the server refused it, or did not answer within the patience.
        """
        until = time.monotonic() + self._patience
        notified = False
        while True:
            error = self._try(method, path, body, patch, query)
            if isinstance(error, dict):
                return error
            status, reason = error
            if status not in _AWAY or time.monotonic() >= until:
                raise ApiError(status, what, reason)
            if not notified:
                self._notify(
                    f"The API server does not answer ({reason}); waiting up to {self._patience:.0f} s to {what}."
                )
                notified = True
            time.sleep(_PAUSE)

    def _try(
        self, method: str, path: str, body: Any, patch: str, query: Mapping[str, str]
    ) -> dict[str, Any] | tuple[int, str]:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        kind = patch if method == "PATCH" else "application/json"
        try:
            answer = self._api.request(
                method,
                path,
                body=body,
                query_params=list(query.items()),
                header_params={"Accept": "application/json"},
                content_type=kind,
                serialize=False,
                _request_timeout=(5, 30),
            )
            return dict(read_json(answer.data, None))
        except ApiException as error:
            return int(error.status or 0), _reason(error)
        except (HTTPError, OSError) as error:
            return 0, str(error).rpartition(": ")[2] or type(error).__name__
        except (TypeError, ValueError) as error:
            return 0, f"its answer is not the JSON of the Kubernetes API: {error}"

    def nodes(self, version: str = "0") -> dict[str, dict[str, Any]]:
        """Return all Node objects by name. C(version): empty for those of now, whatever a cache has."""
        found = self._list("/api/v1/nodes", "the nodes", objects.NODE, resourceVersion=version)
        return {name: one for one in found if (name := objects.metadata(one).get("name"))}

    def node(self, name: str) -> dict[str, Any]:
        return self.call("GET", f"/api/v1/nodes/{name}", f"read node {name}")

    def change_node(
        self,
        name: str,
        annotations: Mapping[str, str | None],
        unschedulable: bool | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> dict[str, Any]:
        """Write annotations and, in the same change, whether the node takes pods: a cordon without its record cannot be."""
        body: dict[str, Any] = {"metadata": {"annotations": dict(annotations)}}
        if labels:
            body["metadata"]["labels"] = dict(labels)
        if unschedulable is not None:
            body["spec"] = {"unschedulable": unschedulable or None}
        return self.call("PATCH", f"/api/v1/nodes/{name}", f"change node {name}", body)

    def remove_resources(self, name: str, resources: Sequence[str]) -> None:
        """Remove extended resources from the status of a node."""
        gone: dict[str, None] = dict.fromkeys(resources)
        body = {"status": {"capacity": gone, "allocatable": gone}}
        self.call("PATCH", f"/api/v1/nodes/{name}/status", f"remove resources of node {name}", body)

    def set_condition(self, name: str, condition: Mapping[str, str]) -> None:
        """Write one condition of a node; those of the kubelet and of others stay."""
        body = {"status": {"conditions": [dict(condition)]}}
        self.call("PATCH", f"/api/v1/nodes/{name}/status", f"set a condition of node {name}", body, patch=STRATEGIC)

    def pods_on(self, node: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the pods on a node that have not ended, those with the labels of C(selector) alone where it is given.

        A kubelet limits how many there are, and rejects what somebody assigns to it beyond.
        """
        query = {
            "fieldSelector": f"spec.nodeName={node},{_NOT_ENDED}",
            **({"labelSelector": selector} if selector else {}),
        }
        answer = self.call("GET", "/api/v1/pods", f"list the pods on {node}", **query)
        return objects.taken(answer["items"], objects.POD)

    def _list(self, path: str, what: str, shape: Mapping[str, Any], **query: str) -> list[dict[str, Any]]:
        """Return all objects of a kind that have the shape of it, as any API server has them in its cache."""
        query = {"resourceVersion": "0", **query}
        return objects.taken(self.call("GET", path, f"list {what}", **query)["items"], shape)

    def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete a pod, so that its controller makes another. One of the same name that was made since is not meant."""
        body = {"preconditions": {"uid": uid}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        if_there(self.call, "DELETE", path, f"delete pod {namespace}/{name}", body, but=_GONE)

    def pods(self) -> list[dict[str, Any]]:
        """Return all pods that have not ended."""
        return self._list("/api/v1/pods", "the pods", objects.POD, fieldSelector=_NOT_ENDED)

    def daemon_sets(self) -> list[dict[str, Any]]:
        return self._list("/apis/apps/v1/daemonsets", "the DaemonSets", objects.DAEMON_SET)

    def resource_slices(self) -> list[dict[str, Any]]:
        return self._list(f"{_CLAIMS}/resourceslices", "the ResourceSlices", objects.RESOURCE_SLICE)

    def device_classes(self) -> list[dict[str, Any]]:
        found = self.call("GET", f"{_CLAIMS}/deviceclasses", "list the DeviceClasses", resourceVersion="0")
        return list(found["items"])

    def api_groups(self) -> frozenset[str]:
        """Return the names of the API groups that the server has."""
        found = self.call("GET", "/apis", "list the API groups")["groups"]
        return frozenset(str(one["name"]) for one in found)

    def kinds(self, api: str) -> frozenset[str]:
        """Return the kinds, in the plural, of a version of an API such as C(resource.k8s.io/v1); none where the server does not have it."""
        found = if_there(self.call, "GET", f"/apis/{api}", f"list the kinds of {api}") or {}
        return frozenset(str(one["name"]) for one in found.get("resources") or ())

    def definition(self, name: str) -> dict[str, Any]:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        return self.call("GET", path, f"read the definition {name}")

    def device_taint_rules(self) -> list[dict[str, Any]] | None:
        """Return all DeviceTaintRules, or None where the server has no v1 of them, as it has from Kubernetes 1.37 on.

        Before, they are served where nobody heeds them: what the scheduler's gates are, no API says.
        """
        if "devicetaintrules" not in self.kinds(objects.CLAIMS):
            return None
        return self._list(f"{_CLAIMS}/devicetaintrules", "the DeviceTaintRules", objects.DEVICE_TAINT_RULE)

    def write_device_taint_rule(self, rule: Mapping[str, Any]) -> None:
        """Make a DeviceTaintRule, or give one of its name this taint."""
        name = rule["metadata"]["name"]
        what = f"taint a device by DeviceTaintRule {name}"
        if if_there(self.call, "POST", f"{_CLAIMS}/devicetaintrules", what, dict(rule), but=_CONFLICT) is None:
            self.call("PATCH", f"{_CLAIMS}/devicetaintrules/{name}", f"change DeviceTaintRule {name}", dict(rule))

    def delete_device_taint_rule(self, name: str) -> None:
        if_there(self.call, "DELETE", f"{_CLAIMS}/devicetaintrules/{name}", f"remove DeviceTaintRule {name}")

    def remediation_request(self, name: str) -> dict[str, Any]:
        return self.call("GET", f"{_REMEDIATIONS}/{name}", f"read ExternalRemediationRequest {name}")

    def report_remediation(self, name: str, conditions: Callable[[Mapping[str, Any]], Any]) -> None:
        """Write what C(conditions) makes of a request as its conditions. They are written as one list, so nobody else may have written them since."""
        path, what = f"{_REMEDIATIONS}/{name}/status", f"report the repair in ExternalRemediationRequest {name}"
        written = None
        while written is None:
            found = self.remediation_request(name)
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            body = {"metadata": version, "status": {"conditions": conditions(found)}}
            written = if_there(self.call, "PATCH", path, what, body, but=_CONFLICT)

    def quotas(self, kind: str, selector: str = "") -> list[Any]:
        """Return the quotas of a kind with the labels of C(selector) as they are; none where the server does not know the kind."""
        what = f"list the {kind}s"
        found = if_there(self.call, "GET", _QUOTAS[kind], what, labelSelector=selector) or {}
        if not isinstance(found.get("items") or [], list):
            raise ApiError(0, what, "its answer is not a list of the Kubernetes API")
        return found.get("items") or []

    def change_quota(self, kind: str, live: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Write a part of the spec of a quota, unless somebody has changed or removed it since it was read."""
        found = live["metadata"]
        name, namespace = found["name"], found.get("namespace")
        path = f"/api/v1/namespaces/{namespace}/resourcequotas" if namespace else _QUOTAS[kind]
        body = {"metadata": {"resourceVersion": found["resourceVersion"]}, "spec": dict(spec)}
        if_there(self.call, "PATCH", f"{path}/{name}", f"change the numbers of {kind} {name}", body, but=_GONE)

    def create_flavor(self, flavor: Mapping[str, Any]) -> None:
        """Make a ResourceFlavor of Kueue, unless there is one of its name by now."""
        what = f"make ResourceFlavor {flavor['metadata']['name']}"
        if_there(self.call, "POST", _QUOTAS["ResourceFlavor"], what, dict(flavor), but=_CONFLICT)

    def version(self) -> str:
        """Return the version of the API server, such as C(v1.34.4)."""
        return str(self.call("GET", "/version", "read the version of the API server")["gitVersion"])

    def resource_claims(self) -> list[dict[str, Any]]:
        return self._list(f"{_CLAIMS}/resourceclaims", "the ResourceClaims", objects.RESOURCE_CLAIM)

    def evict(self, namespace: str, name: str, uid: str) -> str | None:
        """Ask for the eviction of one pod; return why it may not go now, or None.

        The UID is a precondition: a pod of the same name that was made since is not meant.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        try:
            if_there(self.call, "POST", path, f"evict pod {namespace}/{name}", body, but=_GONE)
        except ApiError as error:
            if error.status == 429:
                return str(error)
            raise
        return None

    def lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        return if_there(self.call, "GET", _lease_path(namespace, name), f"read lease {namespace}/{name}")

    def clock(self, namespace: str) -> datetime.datetime:
        """Return the time of the API server: that of a lease which is not made. Machines that share leases need not agree on the time."""
        body = {**_LEASE, "metadata": {"generateName": "clock-", "namespace": namespace}}
        answer = self.call("POST", _lease_path(namespace, ""), "ask the API server for its time", body, dryRun="All")
        return parse_time(answer["metadata"]["creationTimestamp"])

    def write_lease(self, namespace: str, name: str, spec: Mapping[str, Any], version: str | None) -> bool:
        """Write a lease if it is still at C(version) (None: not there); return whether it was."""
        of_version = {"resourceVersion": version} if version else {}
        document = {**_LEASE, "metadata": {"name": name, "namespace": namespace, **of_version}, "spec": dict(spec)}
        path, what = _lease_path(namespace, name if version else ""), f"write lease {namespace}/{name}"
        written = if_there(self.call, "PUT" if version else "POST", path, what, document, but=_CONFLICT)
        return written is not None


def parse_time(text: str) -> datetime.datetime:
    """Return a time of the API: RFC 3339, in UTC."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def by_node(pods: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return pods by the name of their node; those on none under the empty name."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for pod in pods:
        found.setdefault(str((pod.get("spec") or {}).get("nodeName") or ""), []).append(pod)
    return found


def titles(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _lease_path(namespace: str, name: str) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


def _reason(error: Any) -> str:
    try:
        document = read_json(error.body)
    except (TypeError, ValueError):
        return str(error.reason or error.status)
    text = str(document.get("message") or error.reason)
    causes = (document.get("details") or {}).get("causes") or []
    return " ".join([text, *(str(cause.get("message")) for cause in causes if cause.get("message"))])
