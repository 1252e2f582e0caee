#!/bin/sh
# Rendered by gpufleet.nvidia.render for Slurm 22.05.
# In slurm.conf: TaskProlog=/etc/slurm/gpufleet/task-prolog.sh
# Slurm numbers the devices of a node, and CUDA takes such a number for that of a GPU. This names the device by its UUID instead.
set -f
numbers=$(echo "${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}" | tr ',' ' ')
[ -n "$numbers" ] || exit 0
case "$SLURMD_NODENAME" in
gpu01|gpu02) table='
0 1 - - -
1 0 3 0 -
2 0 3 1 -
3 0 9 0 -
4 0 10 0 -
' ;;
*) exit 0 ;;
esac

uuid() { # minor
    set +f
    for file in /proc/driver/nvidia/gpus/*/information; do
        awk -v minor="$1" '/^GPU UUID/ { uuid = $NF } /^Device Minor/ { found = $NF } END { if (found == minor) print uuid }' "$file"
    done
    set -f
}

visible=
for number in $numbers; do
    row=$(echo "$table" | awk -v number="$number" '$1 == number')
    # shellcheck disable=SC2086
    set -- $row
    gpu=
    [ -z "$2" ] || gpu=$(uuid "$2")
    if [ -z "$gpu" ]; then
        echo "print gpufleet: no device has the number $number on $SLURMD_NODENAME; the node and its Slurm files do not agree"
        echo "export CUDA_VISIBLE_DEVICES=none"
        exit 0
    fi
    [ "$3" = - ] || gpu="MIG-$gpu/$3/$4"
    visible="${visible:+$visible,}$gpu"
    [ "$5" = - ] || echo "export CUDA_MPS_PIPE_DIRECTORY=$5"
done
echo "export CUDA_VISIBLE_DEVICES=$visible"
