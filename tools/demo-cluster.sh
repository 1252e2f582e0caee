#!/usr/bin/env bash
# The whole of it, up to pods: tools/demo-cluster.sh up boots the demo's three hosts as nodes of a real Kubernetes cluster, brings them
# into the state that examples/fleet describes, pushes the rendered tree to a git repository that Argo CD syncs, and runs the rendered
# example pods. tools/demo-cluster.sh down removes it all.
set -euo pipefail
cd "$(dirname "$0")/.."

export ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections"
export ANSIBLE_CONFIG="$PWD/examples/ansible.cfg"
lab=demo-cluster
output=build/demo-cluster

say() { printf '\n[%3d s] %s\n' "$SECONDS" "$*"; }

up() {
    if [ "$(id -u)" != 0 ]; then
        echo "The nodes boot as containers and need root. As root: make demo-cluster" >&2
        exit 1
    fi
    # What is in the way is said before the first of those minutes.
    PYTHONPATH=tests/lab PYTHONDONTWRITEBYTECODE=1 python3 -m nodes.needs
    tools/setup.sh
    mkdir -p "$output"
    # On two cores, and once: what is built is kept in the cache.
    say "Programs that are not in the cache are built first: Kubernetes 7 minutes, Argo CD 5, device plugin, discovery and helm 2 each"
    say "Booting three virtual GPU hosts (8 x H100 80GB, 8 x A100 40GB, 4 x L40S) as nodes of a real Kubernetes cluster"
    tests/lab/lab up --name "$lab" --nodes
    say "Starting Argo CD, and the git repository that it syncs"
    tests/lab/lab argocd --name "$lab" | tee "$output/argocd.log"
    repository=$(tail -n 1 "$output/argocd.log")

    say "ansible-playbook gpufleet.nvidia.site: from bare hosts to a cluster configuration"
    # Without the exporter of metrics: its image is not available without a registry.
    .venv/bin/ansible-playbook -i examples/fleet -i "$(tests/lab/lab inventory --name "$lab")" \
        -e gpu_kubernetes_output_directory="$PWD/$output/gitops" -e gpu_kubernetes_gitops_repository="$repository" \
        -e gpu_kubernetes_dcgm_exporter=false gpufleet.nvidia.site | tee "$output/site.log"

    say "From the rendered tree in $output/gitops to pods"
    .venv/bin/python tests/cluster/demo_cluster.py "$lab" "$output"
    say "Look around: tests/lab/lab kubectl --name $lab -- get applications -n argocd; git clone $repository"
    echo "Remove every trace with: make demo-cluster-down"
}

case ${1:-} in
    up) up ;;
    down)
        tests/lab/lab down --name "$lab"
        rm -rf "$output"
        ;;
    *)
        echo "usage: tools/demo-cluster.sh up|down" >&2
        exit 2
        ;;
esac
