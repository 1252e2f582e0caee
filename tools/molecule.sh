#!/usr/bin/env bash
# Run Molecule scenarios on lab hosts, or on the hosts of an inventory of yours:
#   tools/molecule.sh [--inventory FILE] [--syntax] SCENARIO...    SCENARIO may be read-only, changing or all; --list lists them
# With an inventory, scenarios that change hosts show the plan and ask first; GPUFLEET_CHANGE=yes answers for scripts.
# --syntax checks the syntax of all scenarios before. What is tested and how: docs/testing-your-pools.md.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)

inventory='' syntax='' scenarios=()
while [ $# -gt 0 ]; do
    case $1 in
        --inventory)
            [ -e "${2:-}" ] || { echo "There is no inventory '${2:-}'. Name a file or a directory: INVENTORY=my-hosts.yml" >&2; exit 2; }
            inventory=$(realpath "$2")
            shift 2
            ;;
        --syntax) syntax=yes && shift ;;
        *) scenarios+=("$1") && shift ;;
    esac
done

cd "$repository"
tools/setup.sh
export PATH="$repository/.venv/bin:$PATH" ANSIBLE_COLLECTIONS_PATH="$repository/build/collections"
# Molecule looks for the collection in the current folder: below its import path it finds galaxy.yml and the scenarios.
cd build/collections/ansible_collections/gpufleet/nvidia
export GPUFLEET_LAB_PROGRAM=$PWD/tests/lab/lab

# Rows of NAME, set and summary, or what one scenario changes.
table() {
    python - "$@" <<'EOF'
import sys, yaml
table = yaml.safe_load(open("extensions/molecule/scenarios.yml"))["scenarios"]
if sys.argv[1:]:
    print(table[sys.argv[1]].get("changes", ""))
else:
    for name, row in table.items():
        print(f"{name:18}{'changing' if 'changes' in row else 'read-only':11}{row['summary']}")
EOF
}
names() { table | awk -v set="$1" 'set == "all" || $2 == set { print $1 }'; }

chosen=()
for word in "${scenarios[@]}"; do
    case $word in
        --list)
            table
            exit 0
            ;;
        read-only | changing | all) mapfile -t -O "${#chosen[@]}" chosen < <(names "$word") ;;
        *)
            names all | grep -qx "$word" || { echo "There is no scenario '$word'. They are:" >&2; table >&2; exit 2; }
            chosen+=("$word")
            ;;
    esac
done
[ ${#chosen[@]} -gt 0 ] || { echo "usage: tools/molecule.sh [--inventory FILE] [--syntax] SCENARIO... | --list" >&2; exit 2; }

# Where the hosts of a scenario come from: GPUFLEET_POOLS describes them, GPUFLEET_INVENTORY says how to reach them.
prepare() {
    export GPUFLEET_LAB='' GPUFLEET_POOLS=$inventory GPUFLEET_INVENTORY=$inventory
    [ -z "$inventory" ] || return 0
    GPUFLEET_LAB=molecule-${1//_/-}
    GPUFLEET_INVENTORY=$(tests/lab/lab inventory --name "$GPUFLEET_LAB")
    GPUFLEET_POOLS=$PWD/extensions/molecule/$1/inventory.yml
    [ -e "$GPUFLEET_POOLS" ] || GPUFLEET_POOLS=$PWD/examples/fleet
}

agree() {
    local changes answer
    changes=$(table "$1")
    if [ -z "$inventory" ] || [ -z "$changes" ] || [ "${GPUFLEET_CHANGE:-}" = yes ]; then return 0; fi
    ansible-playbook --inventory "$inventory" gpufleet.nvidia.plan --extra-vars gpu_plan_fail=false
    printf '\nThe scenario %s changes the hosts of %s: %s.\nType yes to go on: ' "$1" "$inventory" "$changes"
    read -r answer || answer=''
    [ "$answer" = yes ] || { echo "Nothing was changed." >&2; return 1; }
    export GPUFLEET_CHANGE=yes
}

if [ -n "$syntax" ]; then
    # Ansible parses the same playbooks for every scenario: what differs is the inventory.
    echo "-- molecule: the syntax of all scenarios"
    inventories=()
    for scenario in $(names all); do
        prepare "$scenario"
        inventories+=(--inventory "$GPUFLEET_POOLS")
    done
    ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED=true \
        MOLECULE_SCENARIO_NAME=inspect MOLECULE_EPHEMERAL_DIRECTORY=/nowhere ANSIBLE_LOCALHOST_WARNING=0 \
        ansible-playbook --syntax-check "${inventories[@]}" extensions/molecule/shared/*.yml >/dev/null
fi
for scenario in "${chosen[@]}"; do
    echo "-- molecule: $scenario"
    prepare "$scenario"
    agree "$scenario"
    if [ "${RECORD_TRANSCRIPTS:-}" = 1 ] && [ "$scenario" = nvidia_mig ]; then
        # What docs/testing-your-pools.md shows: what verify prints.
        molecule test --no-command-borders --scenario-name "$scenario" | sed 's/\x1b\[[0-9;]*m//g' | tee "$repository/build/molecule.log"
        sed -n -e "s#$repository/##; s#/[^ ]*/molecule[.][^/]*/#/scratch/#" -e '/^PLAY \[The hosts are as/,/^PLAY RECAP/p' "$repository/build/molecule.log" >"$repository/docs/transcripts/molecule.txt"
    else
        molecule test --no-command-borders --scenario-name "$scenario"
    fi
    unset GPUFLEET_CHANGE
done
