#!/usr/bin/env bash
# Run the tiers of the tests, each with its own set-up: tools/test.sh [TIER...]. Without an argument all but BY_NAME.
#   JOBS=2     how many tiers run side by side, beside the quick ones that run first
#   AGAIN=yes  a tier that failed beside others is tried once more by itself (its failed files alone, where pytest runs it), and the
#              summary says so: a fault fails again, a machine that had too much to do at once does not. AGAIN=no: never.
# What a tier prints is in build/test/TIER.log; what it printed is shown where it failed.
set -euo pipefail
cd "$(dirname "$0")/.."

#: In the order in which they start: the quick ones that fail first, then the long ones, so that none of them is left for the end.
FIRST=(unit lint)
BESIDE=(nodes slow lab resolver sanity molecule cluster charts oldest-python importer docs eda)
BY_NAME=(upgrade debian dkms pods gitops bench)
NEED_ROOT=" lab cluster nodes pods gitops upgrade debian resolver dkms molecule bench "
JOBS=${JOBS:-2}
AGAIN=${AGAIN:-yes}
#: Exit status of a tier that cannot run here; the last line that it printed says why.
CANNOT_RUN=77

logs=build/test
export ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections"

# Run pytest so that the files with failures are known afterwards, and those alone where they are named in AGAIN_FILES.
run_pytest() {
    local -a files=()
    read -ra files <<<"${AGAIN_FILES:-}"
    if [ ${#files[@]} -gt 0 ]; then
        shift
        set -- "${files[@]}" "$@"
    fi
    .venv/bin/python -m pytest -o cache_dir="$logs/cache-$tier" --durations=10 --durations-min=10 "$@"
}

tier_unit() {
    run_pytest tests/unit -n "$(nproc)" --cov --cov-report=term --cov-fail-under=90
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
tier_importer() {
    tools/importer.sh
    # It installs what it made, as tools/install.sh does.
    tools/release.sh 99.0.0 --scratch
}
tier_docs() { tools/docs.sh; }
tier_oldest-python() { tools/oldest-python.sh; }
# Journals are synced to disk at every step: in memory that costs nothing.
tier_slow() {
    memory=$(mktemp -d -p /dev/shm)
    trap 'rm -rf "$memory"' EXIT
    run_pytest tests/unit -m slow -n auto --basetemp="$memory/tests"
}
tier_resolver() { run_pytest tests/resolver -m resolver -n auto; }
tier_eda() {
    tools/eda.sh
    run_pytest tests/eda -m eda
}
tier_charts() { run_pytest tests/charts -m charts; }
# Two files at a time: lab hosts boot, and packages are installed, while a processor waits.
tier_lab() { run_pytest tests/lab -m "lab and not upgrade" -n 2 --dist loadfile; }
tier_dkms() {
    run_pytest tests/lab -m dkms
    run_pytest tests/cluster -m dkms
}
tier_cluster() { run_pytest tests/cluster -m cluster; }
tier_nodes() { run_pytest tests/cluster -m nodes; }
tier_pods() { run_pytest tests/cluster -m pods; }
tier_gitops() { run_pytest tests/cluster -m gitops; }
tier_upgrade() {
    run_pytest tests/cluster -m upgrade
    run_pytest tests/lab -m upgrade
}
tier_debian() { run_pytest tests/cluster -m debian; }
# The whole job, one that changes nothing, and whether the others can be read: by name they run one by one (make molecule).
tier_molecule() { tools/molecule.sh --syntax default inspect; }
tier_bench() { .venv/bin/python tests/bench/run.py; }

# A tier runs in a shell of its own: `set -e` has no effect below `if`.
if [ "${1:-}" = --one ]; then
    tier=$2
    mkdir -p "$logs"
    "tier_$tier"
    exit 0
fi

tiers=("$@")
[ ${#tiers[@]} -gt 0 ] || tiers=("${FIRST[@]}" "${BESIDE[@]}")
for tier in "${tiers[@]}"; do
    if ! declare -F "tier_$tier" >/dev/null; then
        echo "There is no tier '$tier'. The tiers are: ${FIRST[*]} ${BESIDE[*]} ${BY_NAME[*]}" >&2
        exit 2
    fi
done

tools/setup.sh
rm -rf "$logs"
mkdir -p "$logs/running"
passed=() failed=() skipped=() again=()
declare -A begun=() tier_of=()

# A line a minute, so that a person sees that it goes on.
heartbeat() {
    local mark tier
    while sleep 60; do
        for mark in "$logs"/running/*; do
            tier=${mark##*/}
            [ ! -e "$mark" ] || echo "   $tier goes on ($(($(date +%s) - $(stat -c %Y "$mark"))) s): $(tail -c 160 "$logs/$tier.log" | tr '\r' '\n' | grep -v '^ *$' | tail -1)"
        done
    done
}
begin() {
    begun[$1]=$SECONDS
    touch "$logs/running/$1"
    setsid "$BASH" tools/test.sh --one "$1" >"$logs/$1.log" 2>&1 &
    tier_of[$!]=$1
}
# The counts of pytest, where the tier has them.
counts() { grep -E '^[0-9]+ (passed|failed|skipped|error).* in [0-9.]+s' "$logs/$1.log" | tail -1 || true; }
finish() {
    local tier=$1 status=$2 took=$((SECONDS - begun[$1]))
    rm -f "$logs/running/$tier"
    case $status in
        0)
            passed+=("$tier")
            echo "== $tier: passed in $took s $(counts "$tier")"
            ;;
        "$CANNOT_RUN")
            skipped+=("$tier")
            echo "== $tier: SKIPPED: $(tail -1 "$logs/$tier.log")"
            ;;
        *)
            failed+=("$tier")
            echo "== $tier: FAILED after $took s $(counts "$tier")"
            tail -n 250 "$logs/$tier.log"
            ;;
    esac
}
await_one() {
    local pid status=0
    wait -n -p pid "${!tier_of[@]}" || status=$?
    finish "${tier_of[$pid]}" "$status"
    unset "tier_of[$pid]"
}
heartbeat &
heart=$!
# Every tier is a session of its own, so that its processes end with it.
trap 'kill "$heart" 2>/dev/null || true; for pid in "${!tier_of[@]}"; do kill -- "-$pid" 2>/dev/null || true; done' EXIT

for tier in "${tiers[@]}"; do
    if [[ $NEED_ROOT == *" $tier "* && $(id -u) != 0 ]]; then
        echo "== $tier: SKIPPED, it boots lab hosts and needs root: sudo make test TIERS=$tier"
        skipped+=("$tier")
        continue
    fi
    limit=$JOBS
    [[ " ${FIRST[*]} " != *" $tier "* ]] || limit=1
    while [ ${#tier_of[@]} -ge "$limit" ]; do await_one; done
    echo "== $tier: begins ($logs/$tier.log)"
    begin "$tier"
done
while [ ${#tier_of[@]} -gt 0 ]; do await_one; done

first_failed=("${failed[@]}")
failed=()
for tier in "${first_failed[@]}"; do
    if [ "$AGAIN" != yes ] || [ "$JOBS" = 1 ] || [[ " ${FIRST[*]} " == *" $tier "* ]]; then
        failed+=("$tier")
        continue
    fi
    AGAIN_FILES=$(.venv/bin/python -c 'import json, pathlib, sys
path = pathlib.Path(sys.argv[1])
print(*sorted({name.split("::")[0] for name in json.loads(path.read_text())}) if path.exists() else ())' \
        "$logs/cache-$tier/v/cache/lastfailed")
    export AGAIN_FILES
    mv "$logs/$tier.log" "$logs/$tier-first.log"
    echo "== $tier: once more, by itself: ${AGAIN_FILES:-the whole tier}"
    begin "$tier"
    await_one
    unset AGAIN_FILES
    [[ " ${failed[*]} " == *" $tier "* ]] || again+=("$tier")
done

echo
echo "Tiers passed: ${passed[*]:-none}"
[ ${#skipped[@]} -eq 0 ] || echo "Tiers skipped: ${skipped[*]}"
[ ${#again[@]} -eq 0 ] || echo "Tiers that FAILED beside others and passed by themselves ($logs/TIER-first.log): ${again[*]}"
[ ${#failed[@]} -eq 0 ] || echo "Tiers FAILED: ${failed[*]}"
echo "${#passed[@]} passed, ${#failed[@]} failed, ${#skipped[@]} skipped"
[ ${#failed[@]} -eq 0 ]
