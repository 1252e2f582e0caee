#!/usr/bin/env bash
# Pack the lab (virtual GPUs and the hosts that have them) by itself, without the tests of this repository:
#   tools/lab-package.sh REPOSITORY VERSION FOLDER    writes FOLDER/gpufleet-lab-VERSION.tar.gz
# The folders keep their places: the lab finds the table of boards, and the programs of a cluster, beside itself.
set -euo pipefail
repository=$(realpath "$1") version=$2 folder=$(realpath "$3")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/gpufleet-lab-$version
mkdir -p "$root"
cd "$repository"
find LICENSE plugins/module_utils/_boards plugins/module_utils/_printable.py tests/lab/lab tests/lab/README.md tests/lab/hosts tests/lab/nodes \
    tests/lab/nvidia_smi tests/lab/packages tests/lab/virtual_nvml tests/lab/*.c tests/lab/*.go tests/lab/debian_kernel.mk tests/lab/real_tools/install.py tests/lab/real_tools/modules \
    tests/cluster/build.sh tests/charts/build-helm.sh docs/lab.md extensions/molecule/shared/create.yml extensions/molecule/shared/destroy.yml \
    -type f ! -name '*.pyc' -print0 | xargs -0 cp --parents --target-directory "$root"
cat >"$root/gpufleet-lab" <<'EOF'
#!/bin/sh
# A lab of virtual GPU hosts; docs/lab.md says how to use it, tests/lab/README.md what it can do.
exec python3 "$(dirname "$(readlink -f "$0")")/tests/lab/lab" "$@"
EOF
chmod +x "$root/gpufleet-lab"
echo "$version" >"$root/VERSION"
tar --sort=name --owner=0 --group=0 --numeric-owner -czf "$folder/gpufleet-lab-$version.tar.gz" -C "$work" "gpufleet-lab-$version"
