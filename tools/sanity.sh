#!/usr/bin/env bash
# Run ansible-test sanity on a copy of the tree: it works only in .../ansible_collections/<namespace>/<name>.
# Arguments go to ansible-test (for example: tools/sanity.sh --test validate-modules).
set -eu
cd "$(dirname "$0")/.."
repository=$(pwd)
copy=build/sanity/ansible_collections/gpufleet/nvidia
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -co --exclude-standard -z | while IFS= read -r -d '' name; do
    [ -e "$name" ] && printf '%s\0' "$name"
done | tar --null -T - -cf - | tar -xf - -C "$copy"

# ansible-test downloads get-pip from the internet; the pip that Python carries does as well.
cache=${HOME}/.ansible/test/cache
if [ ! -e "$cache/get_pip_24_2.py" ]; then
    mkdir -p "$cache"
    cp tools/get_pip.py "$cache/get_pip_24_2.py"
fi

cd "$copy"
# The virtual environment leads: ansible-test looks for its own Python in PATH.
PATH="$repository/.venv/bin:$PATH" exec ansible-test sanity --venv --color no "$@"
