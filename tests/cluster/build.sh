#!/usr/bin/env bash
# Build a real Kubernetes: kube-apiserver, its controllers and scheduler, kubelet, kubectl and the etcd that it is released with, through Go's
# module proxy. They go into a cache outside of the repository and are test tools only. Prints the folder that holds them.
# build.sh VERSION: of Kubernetes, such as v1.37.2; tests/lab/nodes/programs.py has those of the tests.
# There is nothing to leave out by a build tag: since the cloud providers left its tree, Kubernetes has none.
set -euo pipefail

KUBERNETES=$1
# Without optimisation and debug data they are built in a third of the time, and run long enough for tests. How many compilers run at once is
# what GOMAXPROCS says.
export GOFLAGS=-mod=mod CGO_ENABLED=0 GOGC=off GOWORK=off
QUICKLY=(-trimpath '-gcflags=all=-N -l -dwarf=false')
PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet/tools/kubernetes-$KUBERNETES
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
mkdir "$work/etcd" "$work/built"
cd "$work"

echo "Building Kubernetes $KUBERNETES and its etcd (once; 7 minutes on 2 cores) ..." >&2
go mod init controlplane.example >/dev/null 2>&1
go mod edit -require "k8s.io/kubernetes@$KUBERNETES"
source=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
# k8s.io/kubernetes names its staging modules by folders of its own tree: give each the version that was published with it.
sed -n 's#^\t\?\(k8s.io/[a-z0-9-]*\) => \./staging/.*#\1#p' "$source" | sort -u | while read -r module; do
    go mod edit -replace "$module=$module@${KUBERNETES/v1./v0.}"
done
# Of the version that Kubernetes itself is tested with, and in one module with it: what both need is compiled once.
etcd=$(sed -n 's#^\tgo.etcd.io/etcd/server/v3 \(v[^ ]*\).*#\1#p' "$source")
go mod edit -require "go.etcd.io/etcd/server/v3@$etcd"
cat > etcd/main.go <<'EOF'
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
EOF
# go finds the other versions while it builds: `go mod tidy` would fetch those of all tests, too.
nice go build "${QUICKLY[@]}" -ldflags "-s -w \
    -X k8s.io/component-base/version.gitVersion=$KUBERNETES -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=$(echo "$KUBERNETES" | cut -d. -f2)" \
    -o built/ "${PROGRAMS[@]/#/k8s.io/kubernetes/cmd/}" ./etcd
# Whole programs or none, whenever somebody ends this.
mv built/* "$cache/"
echo "$cache"
