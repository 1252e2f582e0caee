#!/usr/bin/env bash
# Build helm at a pinned version, through Go's module proxy, into a cache outside of the repository; a test tool only.
# Prints the path of the binary.
set -euo pipefail

HELM=v3.18.6

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet/tools/helm-$HELM
if [ ! -x "$cache/helm" ]; then
    if ! command -v go >/dev/null; then
        echo "Go is needed to build helm $HELM. Install Go 1.24 or newer." >&2
        exit 1
    fi
    echo "Building helm $HELM (once; 2 minutes on 2 cores) ..." >&2
    mkdir -p "$cache"
    GOBIN="$cache" CGO_ENABLED=0 GOGC=off nice go install -trimpath '-gcflags=all=-N -l -dwarf=false' \
        "helm.sh/helm/v3/cmd/helm@$HELM" >&2
fi
echo "$cache/helm"
