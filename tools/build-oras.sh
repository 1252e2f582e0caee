#!/usr/bin/env bash
# Build oras at a pinned version, through Go's module proxy, into a cache outside of the repository: it writes the OCI layout of a release's chart.
# Prints the path of the binary.
set -euo pipefail

ORAS=v1.2.3

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet/tools/oras-$ORAS
if [ ! -x "$cache/oras" ]; then
    if ! command -v go >/dev/null; then
        echo "Go is needed to build oras $ORAS. Install Go 1.24 or newer." >&2
        exit 1
    fi
    echo "Building oras $ORAS (once; a minute on 2 cores) ..." >&2
    mkdir -p "$cache"
    GOBIN="$cache" CGO_ENABLED=0 GOGC=off nice go install -trimpath '-gcflags=all=-N -l -dwarf=false' \
        "oras.land/oras/cmd/oras@$ORAS" >&2
fi
echo "$cache/oras"
