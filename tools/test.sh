#!/usr/bin/env bash
# Run the tiers of the tests, each with its own set-up: tools/test.sh [TIER...]. Without an argument all but the long ones.
set -euo pipefail
cd "$(dirname "$0")/.."

ALL=(unit lint sanity importer slow resolver charts lab molecule)
# Long ones, by name only: tools/test.sh bench cluster dkms faults.
LONG=(bench cluster dkms faults)
NEED_ROOT=" resolver lab cluster molecule bench dkms faults "
tiers=("$@")
[ "${1:-}" = --one ] || [ ${#tiers[@]} -gt 0 ] || tiers=("${ALL[@]}")

pytest=(.venv/bin/python -m pytest)
export ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections"

tier_unit() {
    "${pytest[@]}" tests/unit --cov --cov-report=term --cov-fail-under=90
}
tier_lint() {
    tools/system-packages.sh shellcheck=shellcheck
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy --package ansible_collections.gpufleet.nvidia.plugins
    .venv/bin/yamllint --strict .
    shellcheck tools/*.sh .ci/run
    .venv/bin/ansible-lint --offline --profile production
    .venv/bin/antsibull-changelog lint
}
tier_sanity() {
    tools/system-packages.sh shellcheck=shellcheck
    tools/sanity.sh
}
tier_importer() { tools/importer.sh; }
# Journals are synced to disk at every step: in memory that costs nothing.
tier_slow() {
    memory=$(mktemp -d -p /dev/shm)
    trap 'rm -rf "$memory"' EXIT
    "${pytest[@]}" tests/unit -m slow -n auto --basetemp="$memory/tests"
}
tier_resolver() { "${pytest[@]}" tests/resolver -m resolver -n auto; }
tier_charts() { "${pytest[@]}" tests/charts -m charts; }
tier_lab() { "${pytest[@]}" tests/lab -m "lab and not faults"; }
tier_cluster() { "${pytest[@]}" tests/cluster -m cluster; }
tier_molecule() { tools/molecule.sh; }
tier_bench() { .venv/bin/python tests/bench/run.py; }
tier_dkms() { "${pytest[@]}" tests/lab -m dkms; }
tier_faults() { "${pytest[@]}" tests/lab -m faults; }

# A tier runs in a shell of its own: `set -e` has no effect below `if`.
if [ "${1:-}" = --one ]; then
    "tier_$2"
    exit 0
fi

tools/setup.sh
failed=() skipped=() passed=()
for tier in "${tiers[@]}"; do
    if ! declare -F "tier_$tier" >/dev/null; then
        echo "There is no tier '$tier'. The tiers are: ${ALL[*]} ${LONG[*]}" >&2
        exit 2
    fi
    if [[ $NEED_ROOT == *" $tier "* && $(id -u) != 0 ]]; then
        echo "== $tier: SKIPPED, it boots lab hosts and needs root: sudo make test TIERS=$tier"
        skipped+=("$tier")
        continue
    fi
    echo "== $tier"
    started=$SECONDS
    if "$BASH" tools/test.sh --one "$tier"; then
        passed+=("$tier")
        echo "== $tier: passed in $((SECONDS - started)) s"
    else
        failed+=("$tier")
        echo "== $tier: FAILED after $((SECONDS - started)) s"
    fi
done

echo
echo "Tiers passed: ${passed[*]:-none}"
[ ${#skipped[@]} -eq 0 ] || echo "Tiers skipped, for want of root: ${skipped[*]}"
[ ${#failed[@]} -eq 0 ] || echo "Tiers FAILED: ${failed[*]}"
echo "${#passed[@]} passed, ${#failed[@]} failed, ${#skipped[@]} skipped"
[ ${#failed[@]} -eq 0 ]
