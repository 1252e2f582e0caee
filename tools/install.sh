#!/usr/bin/env bash
# Follow the README in an empty environment, with the newest releases of everything that it names: build the collection, install it, and plan the
# inventory that the README gives to paste. In place of Galaxy the tarball comes from here, and no other collection is installed.
#   tools/install.sh [TARBALL FOLDER]   with a tarball that was built already; the environment stays in FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# = 2 ]; then
    mkdir -p "$2"
    scratch=$(realpath "$2")
    cp "$1" "$scratch/"
else
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    tools/tarball.sh "$scratch" >/dev/null
fi
.venv/bin/python -m venv "$scratch/venv"
collections=$scratch/collections/ansible_collections

# Without the lock files: who installs today gets what is released today.
"$scratch/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check ansible-core
export ANSIBLE_COLLECTIONS_PATH=$scratch/collections ANSIBLE_HOME=$scratch/home PATH="$scratch/venv/bin:$PATH"
unset ANSIBLE_CONFIG
cd "$scratch"
ansible-galaxy collection install --offline ./gpufleet-nvidia-*.tar.gz >/dev/null
"$scratch/venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$collections/gpufleet/nvidia/meta/ee-requirements.txt"

# The first block of YAML.
awk '/^```$/ { exit } begun { print } /^```yaml$/ { begun = 1 }' "$collections/gpufleet/nvidia/README.md" >inventory.yml
# Nothing is asked of hosts that are not there. What is planned for hosts that were never read is no error; that they differ is, and so is status 2.
status=0
ansible-playbook -i inventory.yml gpufleet.nvidia.plan -e gpu_plan_offline=true >plan.txt 2>&1 || status=$?
if [ "$status" != 2 ] || ! grep -q '^gpu-training-1 ' plan.txt || ! grep -q '^gpu-shared-1 ' plan.txt; then
    cat plan.txt
    echo "The inventory of the README cannot be planned with today's releases (status $status)." >&2
    exit 1
fi
echo "The README's install works with $(ansible --version | sed -n '1s/^ansible *//p') and kubernetes $(pip show kubernetes | sed -n 's/^Version: //p')."
