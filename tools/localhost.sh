#!/usr/bin/env bash
# Run a command on a machine that looks as if it had virtual GPUs and a loaded driver, without root:
#   tools/localhost.sh FOLDER BOARD COUNT COMMAND...
# It becomes root of a user namespace of its own, in which /etc and /usr/local/lib are copies on write and /var/lib and /run are empty; what it
# changes of the system is gone when it ends. FOLDER keeps the virtual NVML and the state of its GPUs.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
    folder=$(mkdir -p "$1" && cd "$1" && pwd)
    repository=$(cd "$(dirname "$0")/.." && pwd)
    version=580.178.04
    make --silent -C "$repository/tests/lab/virtual_nvml" BUILD="$folder/nvml" VERSION=$version
    if ! unshare --user --map-root-user --mount true 2>/dev/null; then
        echo "This system lets no user make a user namespace (kernel.unprivileged_userns_clone, AppArmor). As root: make demo" >&2
        exit 1
    fi
    exec unshare --user --map-root-user --mount --propagation private -- "$0" --inside "$folder" "$version" "${@:2}"
fi

shift
folder=$1 version=$2 board=$3 count=$4
shift 4
export LD_LIBRARY_PATH="$folder/nvml" PATH="$folder/nvml:$PATH" VIRTUAL_GPU_ROOT="$folder/machine"
if [ ! -d "$VIRTUAL_GPU_ROOT" ]; then
    mkdir -p "$VIRTUAL_GPU_ROOT"
    virtual-gpu create --board "$board" --count "$count"
fi
virtual-gpu boot
virtual-gpu load "$version" open

tree=$(find "$VIRTUAL_GPU_ROOT" -type d -path '*/sys/bus/pci/devices' | head -n 1)
tree=${tree%/sys/bus/pci/devices}
for place in /etc /usr/local/lib; do
    copy=$folder/copies$place
    mkdir -p "$copy/upper" "$copy/work"
    mount -t overlay overlay -o "userxattr,lowerdir=$place,upperdir=$copy/upper,workdir=$copy/work" "$place"
done
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /run
mkdir -p /run/lock
mount --bind "$tree/sys/module" /sys/module
mount --bind "$tree/sys/bus/pci/devices" /sys/bus/pci/devices
mount --bind "$tree/proc/driver" /proc/driver
exec "$@"
