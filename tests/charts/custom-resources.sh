#!/usr/bin/env bash
# Print the paths of the real custom resource definitions of Argo CD, Flux, Node Feature Discovery, the Prometheus operator, Kueue and NVIDIA's DRA driver, one a line. They come with the
# projects' Go modules, through Go's module proxy, into Go's own cache; a test tool only.
set -euo pipefail

definitions=(
    "sigs.k8s.io/node-feature-discovery@v0.19.0 deployment/base/nfd-crds/nfd-api-crds.yaml"
    "github.com/argoproj/argo-cd/v3@v3.1.0 manifests/crds/application-crd.yaml"
    "github.com/fluxcd/helm-controller@v1.4.0 config/crd/bases/helm.toolkit.fluxcd.io_helmreleases.yaml"
    "github.com/fluxcd/kustomize-controller@v1.6.0 config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"
    "github.com/fluxcd/source-controller@v1.7.0 config/crd/bases/source.toolkit.fluxcd.io_helmrepositories.yaml"
    "github.com/prometheus-operator/prometheus-operator@v0.92.0 example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"
    "sigs.k8s.io/kueue@v0.19.0 config/components/crd/bases/kueue.x-k8s.io_clusterqueues.yaml"
    "sigs.k8s.io/kueue@v0.19.0 config/components/crd/bases/kueue.x-k8s.io_localqueues.yaml"
    "sigs.k8s.io/kueue@v0.19.0 config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml"
    "sigs.k8s.io/dra-driver-nvidia-gpu@v0.5.0 deployments/helm/dra-driver-nvidia-gpu/crds/resource.nvidia.com_computedomains.yaml"
    "sigs.k8s.io/dra-driver-nvidia-gpu@v0.5.0 deployments/helm/dra-driver-nvidia-gpu/crds/resource.nvidia.com_computedomaincliques.yaml"
)

if ! command -v go >/dev/null; then
    echo "Go is needed to fetch custom resource definitions. Install Go 1.24 or newer." >&2
    exit 1
fi
cd /
for definition in "${definitions[@]}"; do
    read -r module path <<<"$definition"
    # A proxy that has to fetch a module first may answer one request late; what was fetched is kept.
    for attempt in 1 2 3; do
        folder=$(GOFLAGS=-mod=mod GOWORK=off go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') && break
        [ "$attempt" -lt 3 ] || { echo "Failed to fetch $module" >&2; exit 1; }
    done
    ls "$folder/$path"
done
