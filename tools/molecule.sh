#!/usr/bin/env bash
# Run Molecule scenarios (all of them without an argument) on lab hosts, or, with GPUFLEET_INVENTORY set, on the hosts of that inventory.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh

export PATH="$PWD/.venv/bin:$PATH"
export ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections"
# Molecule looks for the collection in the current folder: below its import path it finds galaxy.yml and the scenarios.
cd build/collections/ansible_collections/gpufleet/nvidia

scenarios=("$@")
if [ ${#scenarios[@]} -eq 0 ]; then
    mapfile -t scenarios < <(find extensions/molecule -mindepth 2 -maxdepth 2 -name molecule.yml -printf '%h\n' | xargs -n 1 basename | sort)
fi
for scenario in "${scenarios[@]}"; do
    echo "-- molecule: $scenario"
    if [ -z "${GPUFLEET_INVENTORY:-}" ]; then
        GPUFLEET_LAB=molecule-$scenario
        GPUFLEET_INVENTORY=$(tests/lab/lab inventory --name "$GPUFLEET_LAB")
        GPUFLEET_LAB=$GPUFLEET_LAB GPUFLEET_INVENTORY=$GPUFLEET_INVENTORY molecule test --scenario-name "$scenario"
        unset GPUFLEET_INVENTORY
    else
        GPUFLEET_LAB='' molecule test --scenario-name "$scenario"
    fi
done
