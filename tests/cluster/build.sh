#!/usr/bin/env bash
# Build a real Kubernetes: kube-apiserver, its controllers and scheduler, kubelet, kubectl and etcd, at pinned versions, through Go's
# module proxy. They go into a cache outside of the repository and are test tools only. Prints the folder that holds them.
# build.sh VERSION: of Kubernetes, such as v1.34.4; tests/lab/nodes/programs.py has those of the tests.
set -euo pipefail

KUBERNETES=$1
ETCD=v3.6.7
# Without optimisation and debug data they are built in a third of the time, and run long enough for tests.
export GOFLAGS=-mod=mod CGO_ENABLED=0 GOGC=off
QUICKLY=(-trimpath '-gcflags=all=-N -l -dwarf=false')
PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet/tools/kubernetes-$KUBERNETES-etcd-$ETCD
mkdir -p "$cache"
# Several tests may want it at a time; one of them builds.
exec 9>"$cache/lock"
flock 9
complete=yes
for program in "${PROGRAMS[@]}" etcd; do
    [ -x "$cache/$program" ] || complete=no
done
if [ $complete = yes ]; then
    echo "$cache"
    exit 0
fi
if ! command -v go >/dev/null; then
    echo "Go is needed to build kube-apiserver $KUBERNETES. Install Go 1.26 or newer." >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# k8s.io/kubernetes names its staging modules by folders of its own tree: give each the version that was published with it.
kubernetes_module() {
    local staging=${KUBERNETES/v1./v0.}
    cd "$work"
    go mod init controlplane.example >/dev/null 2>&1
    go mod edit -require "k8s.io/kubernetes@$KUBERNETES"
    local source
    source=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
    sed -n 's#^\t\?\(k8s.io/[a-z0-9-]*\) => \./staging/.*#\1#p' "$source" | sort -u | while read -r module; do
        go mod edit -replace "$module=$module@$staging"
    done
    {
        printf '//go:build tools\n\npackage tools\n\nimport (\n'
        printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' "${PROGRAMS[@]}"
        printf ')\n'
    } > tools.go
    go mod tidy >/dev/null 2>&1 || true
}

echo "Building Kubernetes $KUBERNETES and etcd $ETCD (once; 7 minutes on 2 cores) ..." >&2
kubernetes_module
nice go build "${QUICKLY[@]}" -ldflags "-s -w \
    -X k8s.io/component-base/version.gitVersion=$KUBERNETES -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=$(echo "$KUBERNETES" | cut -d. -f2)" \
    -o "$cache/" "${PROGRAMS[@]/#/k8s.io/kubernetes/cmd/}"
cd /
mkdir "$work/etcd" && cd "$work/etcd"
go mod init etcd.example >/dev/null 2>&1
go get "go.etcd.io/etcd/server/v3@$ETCD" >/dev/null 2>&1
cat > main.go <<'EOF'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
EOF
go mod tidy >/dev/null 2>&1
nice go build "${QUICKLY[@]}" -ldflags "-s -w" -o "$cache/etcd" .
echo "$cache"
