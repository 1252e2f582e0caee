#!/usr/bin/env bash
# Run ansible-test sanity on what the collection's tarball holds: it works only in .../ansible_collections/<namespace>/<name>.
#   tools/sanity.sh --oldest-and-newest   by the oldest and the newest Python of what is supported, not by those between them
# Other arguments go to ansible-test (for example: tools/sanity.sh --test validate-modules).
set -eu
cd "$(dirname "$0")/.."
repository=$(pwd)
# Outside of the repository: below it git would hide the copy, which is in an ignored folder, from ansible-test.
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
copy=$temporary/ansible_collections/gpufleet/nvidia
mkdir -p "$copy"
# What Galaxy would get: the tarball's content.
.venv/bin/ansible-galaxy collection build --force --output-path "$temporary" . >/dev/null
tar -xzf "$temporary"/gpufleet-nvidia-*.tar.gz -C "$copy"
# Templates of Helm are no YAML for ansible-test; helm checks them (the tier charts).
rm -r "$copy/charts"

# ansible-test downloads get-pip from the internet; the pip that Python carries does as well.
cache=${HOME}/.ansible/test/cache
if [ ! -e "$cache/get_pip_24_2.py" ]; then
    mkdir -p "$cache"
    cp tools/get_pip.py "$cache/get_pip_24_2.py"
fi

# pyenv's shims answer for versions that are not switched on, by failing: use the versions themselves.
path=$PATH
if command -v pyenv >/dev/null 2>&1; then
    shims=$(pyenv root)/shims
    path=$(printf '%s' "$PATH" | tr ':' '\n' | grep -vxF "$shims" | paste -sd: -)
    for folder in "$(pyenv root)"/versions/3.*/bin; do path=$path:$folder; done
fi

cd "$copy"
# The virtual environment leads: ansible-test looks for its own Python in PATH.
PATH=$repository/.venv/bin:$path
if [ "${1:-}" = --oldest-and-newest ]; then
    shift
    # What compiles the files is asked of both, what imports them of the oldest: tests/unit/test_imports.py asks the newest, in a process for all files.
    if command -v python3.9 >/dev/null; then
        ansible-test sanity --venv --color no --python 3.9 --test compile --test import "$@"
    else
        echo "There is no Python 3.9, the oldest that hosts may have, on this machine: not asked (pyenv install 3.9)."
    fi
    for newest in 3.13 3.12 3.11; do ! command -v "python$newest" >/dev/null || break; done
    set -- --python "$newest" --skip-test import "$@"
fi
ansible-test sanity --venv --color no "$@"
