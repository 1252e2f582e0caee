# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods and other objects that the policies admit, and those that they refuse with the words that the message must contain."""

from __future__ import annotations

from typing import Any

Item = dict[str, Any]

#: As the pods of NVIDIA's documentation and of the device plugin's examples ask for them.
GPU: Item = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
NO_GPU: Item = {"resources": {"limits": {"nvidia.com/gpu": "0"}}}
CLAIM: Item = {"resources": {"claims": [{"name": "gpus"}]}}
PRIVILEGED: Item = {"securityContext": {"privileged": True}}
MAGIC = "/var/run/nvidia-container-devices"


def container(name: str = "main", *parts: Item) -> Item:
    result: Item = {"name": name, "image": "example.com/cuda"}
    for part in parts:
        result.update(part)
    return result


def pod(*parts: Item, name: str = "probe", annotations: dict[str, str] | None = None, **spec: Any) -> Item:
    """Return a pod with one container of C(parts); C(spec) is merged over its specification."""
    metadata: Item = {"name": name, **({"annotations": annotations} if annotations else {})}
    merged = {"containers": [container("main", *parts)], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": merged}


def gpu_pod(*parts: Item, **spec: Any) -> Item:
    return pod(GPU, *parts, runtimeClassName="nvidia", **spec)


def env(value: str, name: str = "NVIDIA_VISIBLE_DEVICES") -> Item:
    return {"env": [{"name": name, "value": value}]}


def host_path(path: str) -> Item:
    return {"volumes": [{"name": "x", "hostPath": {"path": path}}]}


def magic_mount(source: Item, path: str = f"{MAGIC}/all", *parts: Item) -> Item:
    return pod({"volumeMounts": [{"name": "x", "mountPath": path}]}, *parts, volumes=[{"name": "x", **source}])


def claiming(*parts: Item, **spec: Any) -> Item:
    return pod(CLAIM, *parts, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "x"}], **spec)


def capability(name: str) -> Item:
    return {"securityContext": {"capabilities": {"add": [name]}}}


def data(kind: str, field: str = "data", **values: str) -> Item:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "probe"}, field: values}


def runtime_class(name: str, handler: str) -> Item:
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler}


def debug(*parts: Item) -> Item:
    return container("debugger", *parts)


def limit(resource: str, count: str = "1") -> Item:
    return {"resources": {"limits": {resource: count}}}


def read_only(path: str) -> Item:
    return pod({"volumeMounts": [{"name": "x", "mountPath": "/x", "readOnly": True}]}, **host_path(path))


#: What the pools of the cluster offer, as the generator says it.
GPU_RESOURCES = (
    "^(nvidia[.]com/gpu|nvidia[.]com/gpu[.]shared|nvidia[.]com/mig-1g[.]10gb|nvidia[.]com/mig-1g[.]10gb[.]me)$"
)


ADMITTED: dict[str, Item] = {
    "no GPU at all": pod(),
    "a GPU in its limits": gpu_pod(),
    "a GPU without a runtime class, by CDI": pod(GPU),
    "two GPUs under the shared name": pod(
        {"resources": {"limits": {"nvidia.com/gpu.shared": "2"}}}, runtimeClassName="nvidia"
    ),
    "a MIG device": pod({"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}, runtimeClassName="nvidia"),
    "a MIG device with media extensions": pod(
        {"resources": {"limits": {"nvidia.com/mig-1g.10gb.me": "1"}}}, runtimeClassName="nvidia"
    ),
    "a share by MPS with a narrower limit": gpu_pod(env("0=4G", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")),
    "a share by HAMi": pod(
        {"resources": {"limits": {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "4096"}}}, runtimeClassName="nvidia"
    ),
    "a claim": claiming(),
    "a claim in the runtime class, with void": claiming(env("void"), runtimeClassName="nvidia"),
    "a second container with void": gpu_pod(
        containers=[container("main", GPU), container("sidecar", env("void")), container("other", env("none"))]
    ),
    "an init container with void": gpu_pod(initContainers=[container("init", env("void"))]),
    "an init container with a GPU": gpu_pod(initContainers=[container("init", GPU)]),
    "void devices": pod(env("void")),
    "envFrom": pod({"envFrom": [{"configMapRef": {"name": "x"}}, {"prefix": "APP_", "secretRef": {"name": "x"}}]}),
    "a ConfigMap with settings": data("ConfigMap", NVIDIA_DRIVER_CAPABILITIES="compute", NVIDIA_VISIBLE_DEVICES="void"),
    "a Secret with settings": data("Secret", "stringData", PASSWORD="x", NVIDIA_VISIBLE_DEVICES="none"),
    "ordinary capabilities": pod(capability("NET_BIND_SERVICE")),
    "a hostPath elsewhere": pod(**host_path("/var/lib/devices")),
    "a hostPath to logs of one's own": pod(**host_path("/srv/logs")),
    "a hostPath to a home": pod(**host_path("/home/somebody/data")),
    "a hostPath beside a guarded one": pod(**host_path("/var/lib/kubeletX")),
    "the host's time zone": read_only("/etc/localtime"),
    "a node by its name, without a GPU": pod(nodeName="one"),
    "a node by its name, with a GPU and without the runtime class": pod(GPU, nodeName="one"),
    "a node by its name, with void": pod(env("void"), runtimeClassName="nvidia", nodeName="one"),
    # As the controller of DaemonSets makes them.
    "a node by an affinity": gpu_pod(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["one"]}]}
                    ]
                }
            }
        }
    ),
    "InfiniBand devices": pod(**host_path("/dev/infiniband")),
    "shared memory of the host": pod(**host_path("//dev/shm/")),
    "shared memory of its own": pod(volumes=[{"name": "x", "emptyDir": {"medium": "Memory"}}]),
    "ordinary annotations": pod(annotations={"example.com/cdi.k8s.io": "x", "nvidia.com/use-gpuuuid": "GPU-1"}),
    "another runtime class": runtime_class("gvisor", "runsc"),
    "the GPU Operator's runtime class": runtime_class("nvidia-cdi", "nvidia-cdi"),
}

_ENV = "env sets one of NVIDIA_VISIBLE_DEVICES"
_MOUNT = "a mountPath in volumeMounts is the device list"
_PRIVILEGED = "container main: securityContext.privileged"
_CAPABILITY = "container main: securityContext.capabilities.add"
_LIMITS = "asks for no GPU in resources.limits"
_PINNED = "spec.nodeName: the pod starts in the NVIDIA runtime on node one"

#: Object and words of the message. Every one of these gives a container GPUs that it did not get from the scheduler.
REFUSED: dict[str, tuple[Item, str]] = {
    **{
        f"devices by hand: {value!r}": (pod(env(value)), f"container main: {_ENV}")
        for value in (
            "all",
            "0",
            "0,1",
            "GPU-8d1f4b4c",
            "MIG-b3a4",
            "nvidia.com/gpu=all",
            "void,all",
            " void",
            "VOID",
            "",
            "$(X)",
        )
    },
    "devices by hand beside a GPU": (gpu_pod(env("all")), _ENV),
    "devices by hand from a field": (
        pod({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        _ENV,
    ),
    "devices by hand in an init container": (
        pod(initContainers=[container("init", env("0"))]),
        f"container init: {_ENV}",
    ),
    "devices by hand in a second container": (
        pod(containers=[container("main"), container("second", env("all"))]),
        f"container second: {_ENV}",
    ),
    "devices by hand after void": (
        pod({"env": [*env("void")["env"], *env("all")["env"]]}, runtimeClassName="nvidia"),
        _ENV,
    ),
    "IMEX channels by hand": (gpu_pod(env("0", "NVIDIA_IMEX_CHANNELS")), _ENV),
    "MIG configuration by hand": (gpu_pod(env("all", "NVIDIA_MIG_CONFIG_DEVICES")), _ENV),
    "envFrom with half of the name": (
        pod({"envFrom": [{"prefix": "NVIDIA_", "configMapRef": {"name": "x"}}]}),
        "container main: a prefix in envFrom",
    ),
    "envFrom with a letter of the name": (
        pod(initContainers=[container("init", {"envFrom": [{"prefix": "N", "secretRef": {"name": "x"}}]})]),
        "container init: a prefix in envFrom",
    ),
    "a ConfigMap for envFrom": (data("ConfigMap", NVIDIA_VISIBLE_DEVICES="all"), "data: NVIDIA_VISIBLE_DEVICES"),
    "a Secret for envFrom": (data("Secret", "stringData", NVIDIA_VISIBLE_DEVICES="0"), "data: NVIDIA_VISIBLE_DEVICES"),
    "a Secret for envFrom, encoded": (data("Secret", NVIDIA_VISIBLE_DEVICES="YWxs"), "data: NVIDIA_VISIBLE_DEVICES"),
    # Two policies refuse this one, and the API server names either. Those that follow go by the mount alone.
    "the device list by /dev/null": (magic_mount({"hostPath": {"path": "/dev/null"}}), "which bypasses GPU accounting"),
    "the device list in another spelling": (
        magic_mount({"hostPath": {"path": "/tmp/link"}}, "/var/run/../run//nvidia-container-devicesall"),
        _MOUNT,
    ),
    "the device list by CDI name": (
        magic_mount({"hostPath": {"path": "/tmp/link"}}, f"{MAGIC}/cdi/nvidia.com/gpu/all"),
        _MOUNT,
    ),
    # A hostPath may be a link to /dev/null, and so may a file of any volume that reaches the host.
    "the device list by a link": (magic_mount({"hostPath": {"path": "/tmp/link"}}), _MOUNT),
    "the device list by another volume": (magic_mount({"persistentVolumeClaim": {"claimName": "x"}}), _MOUNT),
    "the device list in an init container": (
        pod(
            initContainers=[container("init", {"volumeMounts": [{"name": "x", "mountPath": f"{MAGIC}/0"}]})],
            volumes=[{"name": "x", "emptyDir": {}}],
        ),
        f"container init: {_MOUNT}",
    ),
    **{
        f"annotation {key}": (pod(annotations={key: "nvidia.com/gpu=all"}), f"metadata.annotations: {key}")
        for key in (
            "cdi.k8s.io/gpu",
            "nvidia.cdi.k8s.io",
            "nvidia.cdi.k8s.io/pod",
            "nvidia.cdi.k8s.io/container.main",
            "devices.noderesource.dev/pod",
            "cdi-devices.noderesource.dev/container.main",
            "mounts.noderesource.dev",
            "devices.nri.io/pod",
            "cdi-devices.nri.io/pod",
            "mounts.nri.io/pod",
            "devices.crio.io",
            "io.kubernetes.cri-o.Devices",
        )
    },
    "privileged without a GPU": (pod(PRIVILEGED), _PRIVILEGED),
    "privileged with a GPU": (pod(GPU, PRIVILEGED), _PRIVILEGED),
    "privileged with the runtime class": (gpu_pod(PRIVILEGED), _PRIVILEGED),
    "privileged with a claim": (claiming(PRIVILEGED), _PRIVILEGED),
    "privileged init container": (
        pod(initContainers=[container("init", PRIVILEGED)]),
        "container init: securityContext.privileged",
    ),
    **{
        f"capability {name}": (pod(capability(name)), _CAPABILITY)
        for name in (
            "SYS_ADMIN",
            "CAP_SYS_ADMIN",
            "sys_admin",
            "ALL",
            "SYS_MODULE",
            "SYS_RAWIO",
            "DAC_READ_SEARCH",
            "CAP_DAC_READ_SEARCH",
        )
    },
    **{
        f"hostPath {path}": (pod(**host_path(path)), "spec.volumes: hostPath /")
        for path in (
            "/",
            "//",
            "/.",
            "/dev",
            "/dev/",
            "/dev/null",
            "/dev/nvidia0",
            "//dev/./nvidia-uvm",
            "/dev/nvidia-caps",
            "/dev/char",
            "/dev/dri/renderD128",
            "/dev/mem",
            "/dev/vfio",
            "/dev/shm/below",
            "/proc",
            "/proc/1/root/dev",
            "/proc/driver/nvidia",
            "/sys",
            "/sys/bus/pci/devices",
            "/sys/fs/cgroup",
            "/run",
            "/var/run",
            "/var",
            "/var/lib",
            "/etc",
            "/etc/cdi",
            "/var/run/cdi",
            "/run/nvidia",
            "/run/nvidia/driver",
            "/var/run/nvidia/driver",
            "/run/nvidia/mps",
            "/run/containerd/containerd.sock",
            "/run/k3s/containerd/containerd.sock",
            "/var/run/crio",
            "/var/run/docker.sock",
            "/run/nri/nri.sock",
            "/var/lib/kubelet",
            "/var/lib/kubelet/device-plugins",
            "/var/lib/kubelet/plugins_registry",
            "/var/lib/kubelet/pods",
            "/etc/nvidia-container-runtime",
            "/etc/nvidia-container-runtime/config.toml",
            "/etc/gpufleet",
            "/etc/containerd",
            "/etc/crio/crio.conf.d",
            "/etc/docker/daemon.json",
            "/etc/kubernetes/manifests",
            "/etc/systemd/system",
            "/etc/cron.d",
            "/etc/ld.so.preload",
            "/etc/shadow",
            "/usr/local/lib/gpufleet",
            "/usr/bin",
            "/usr/libexec/kubernetes",
            "/usr/src",
            "/lib/modules",
            "/var/lib/gpufleet",
            "/var/lib/containerd",
            "/var/lib/dkms",
            "/var/lib/dpkg/info",
            "/var/lib/rancher/k3s/agent",
            "/run/gpufleet",
            "/run/nvidia-mps",
            "/run/nvidia-persistenced/socket",
            "/tmp/nvidia-mps",
            "/tmp",
            "/run/docker",
            "/run/cri-dockerd.sock",
            "/run/systemd/private",
            "/run/dbus/system_bus_socket",
            "/opt/nri/plugins",
            "/opt/cni/bin",
            "/root/.ssh",
            "/boot",
            "/var/log",
            "/var/log/pods",
            "/var/spool/cron",
            "/etc/localtime/below",
        )
    },
    **{
        f"hostPath {path}, read-only": (read_only(path), f"spec.volumes: hostPath {path}")
        for path in ("/run/containerd", "/var/lib/kubelet/pki", "/etc/kubernetes", "/")
    },
    "a node by its name, past the scheduler": (
        pod(limit("nvidia.com/mig-1g.10gb"), runtimeClassName="nvidia", nodeName="one"),
        _PINNED,
    ),
    "a node by its name, with a GPU": (gpu_pod(nodeName="one"), _PINNED),
    "a node by its name, and nothing else": (pod(runtimeClassName="nvidia", nodeName="one"), _PINNED),
    "a node by its name, for an init container": (
        pod(env("void"), initContainers=[container("init", GPU)], runtimeClassName="nvidia", nodeName="one"),
        _PINNED,
    ),
    **{
        f"a resource that no pool offers: {name}": (pod(limit(name), runtimeClassName="nvidia"), _LIMITS)
        for name in ("nvidia.com/mig-nosuch", "nvidia.com/mig-7g.80gb", "nvidia.com/gpu.other", "nvidia.com/gpuX")
    },
    "hostPID": (pod(hostPID=True), "spec.hostPID"),
    "hostIPC": (gpu_pod(hostIPC=True), "spec.hostIPC"),
    "the runtime class without a GPU": (
        pod(runtimeClassName="nvidia"),
        "container main: starts in the NVIDIA runtime",
    ),
    "the runtime class with no GPUs": (pod(NO_GPU, runtimeClassName="nvidia"), _LIMITS),
    "the runtime class with memory of HAMi alone": (
        pod({"resources": {"limits": {"nvidia.com/gpumem": "1"}}}, runtimeClassName="nvidia"),
        _LIMITS,
    ),
    "the runtime class with another device": (
        pod({"resources": {"limits": {"nvidia.com/hostdev": "1"}}}, runtimeClassName="nvidia"),
        _LIMITS,
    ),
    "the runtime class with a claim": (claiming(runtimeClassName="nvidia"), _LIMITS),
    "a second container without a GPU": (
        gpu_pod(containers=[container("main", GPU), container("second")]),
        "container second: starts in the NVIDIA runtime",
    ),
    "a second container with no GPUs": (
        gpu_pod(containers=[container("main", GPU), container("second", NO_GPU)]),
        "container second: starts in the NVIDIA runtime",
    ),
    "an init container without a GPU": (
        gpu_pod(initContainers=[container("init")]),
        "container init: starts in the NVIDIA runtime",
    ),
    "a runtime class of its own": (
        runtime_class("mine", "nvidia"),
        "RuntimeClass mine: handler nvidia starts the NVIDIA runtime",
    ),
    "a runtime class of its own for CDI": (runtime_class("mine", "nvidia-cdi"), "RuntimeClass mine"),
}

#: Debug containers that may be added to a running GPU pod that mounts a volume, and those that may not.
DEBUG_ADMITTED: dict[str, Item] = {"void": debug(env("void"))}
DEBUG_REFUSED: dict[str, tuple[Item, str]] = {
    "nothing": (debug(), "container debugger: starts in the NVIDIA runtime"),
    "devices by hand": (
        debug({"env": [*env("void")["env"], *env("all")["env"]]}),
        f"container debugger: {_ENV}",
    ),
    "privileged": (debug(env("void"), PRIVILEGED), "container debugger: securityContext.privileged"),
    "SYS_ADMIN": (debug(env("void"), capability("SYS_ADMIN")), "container debugger: securityContext.capabilities"),
    "the device list": (
        debug(env("void"), {"volumeMounts": [{"name": "x", "mountPath": f"{MAGIC}/all"}]}),
        f"container debugger: {_MOUNT}",
    ),
    "envFrom with half of the name": (
        debug(env("void"), {"envFrom": [{"prefix": "NVIDIA_", "configMapRef": {"name": "x"}}]}),
        "container debugger: a prefix in envFrom",
    ),
}

#: How somebody tries: a new object; a debug container of a running pod; annotations of it by a change of the pod, of its status, or by a binding.
CREATE, DEBUG = "create", "debug"
ANNOTATING = ("pod", "pod/status", "pod/binding", "binding")
#: Every way past the count of GPUs that is closed: how, with what, and words of the refusal.
BYPASSES: dict[str, tuple[str, Item, str]] = {
    **{name: (CREATE, item, words) for name, (item, words) in REFUSED.items()},
    **{f"debug container: {name}": (DEBUG, item, words) for name, (item, words) in DEBUG_REFUSED.items()},
    **{
        f"annotation {key} by {way}": (way, {key: "nvidia.com/gpu=all"}, f"metadata.annotations: {key}")
        for way in ANNOTATING
        for key in ("cdi.k8s.io/gpu", "nvidia.cdi.k8s.io/container.main", "io.kubernetes.cri-o.Devices")
    },
}

#: What the pods of the charts need, in the namespace of the releases: device plugin and its MPS daemon (their chart, version 0.19), NFD's
#: worker, the metrics exporter with its pod resources.
SYSTEM_PODS: dict[str, Item] = {
    "device plugin": pod(
        PRIVILEGED,
        env("all"),
        runtimeClassName="nvidia",
        volumes=[
            {"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}},
            {"name": "driver-root", "hostPath": {"path": "/", "type": "Directory"}},
            {"name": "cdi-root", "hostPath": {"path": "/var/run/cdi", "type": "DirectoryOrCreate"}},
        ],
    ),
    "MPS daemon": pod(
        PRIVILEGED,
        hostPID=True,
        runtimeClassName="nvidia",
        volumes=[{"name": "mps-root", "hostPath": {"path": "/run/nvidia/mps", "type": "DirectoryOrCreate"}}],
    ),
    "Node Feature Discovery": pod(**host_path("/sys")),
    "metrics exporter": pod(
        env("all"), capability("SYS_ADMIN"), runtimeClassName="nvidia", **host_path("/var/lib/kubelet")
    ),
}
