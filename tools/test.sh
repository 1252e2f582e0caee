#!/usr/bin/env bash
# Run the tiers of the tests, each with its own set-up: tools/test.sh [--all] [TIER...]. Without a tier: all but BY_NAME, and of each its sample.
#   --all       all tiers, and everything in them (make test-all). Where the tree is a commit and nothing failed, build/tested names it.
#   WHOLE=yes   everything in the tiers that are named: tests/whole.py says what a sample is
#   JOBS=2      how many tiers run side by side, behind those that have all cores
#   CORES=2     how many cores are used in all: tiers times their workers times what Go takes is never more
#   AGAIN=yes   a tier that failed beside others is tried once more by itself (its failed files alone, where pytest runs it), all of them together
#               for ten minutes at most. What passes only then is a defect: the last lines name each such test. AGAIN=no: it has failed.
# What a tier prints is in build/test/TIER.log; what it printed is shown where it failed. Where the time went is in build/test/times.json.
set -euo pipefail
cd "$(dirname "$0")/.."

#: In the order in which they start: those that never wait have all cores, one after the other. The others follow, the longest first, so that none of
#: them is left alone at the end. `programs` builds what `nodes` and `cluster` wait for.
FIRST=(unit lint slow)
BESIDE=(programs lab nodes resolver importer molecule charts sanity oldest-python cluster eda docs)
BY_NAME=(upgrade debian dkms pods gitops bench)
NEED_ROOT=" lab cluster nodes pods gitops upgrade debian resolver dkms molecule bench "
NEED_GO=" programs cluster nodes pods gitops upgrade debian charts importer "
#: Exit status of a tier that cannot run here; the last line that it printed says why.
CANNOT_RUN=77
logs=build/test

# One place decides who gets how many cores. Tiers wait for one another's hosts, disks and packages more than for a worker of their own.
CORES=${CORES:-$(nproc)}
AGAIN=${AGAIN:-yes}
#: Seconds that all second tries have together, without what they remove at the end, and what has to be left of them for one more to begin.
AGAIN_SECONDS=600
AGAIN_LEAST=60
export ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections"
# Every process would compile what it imports, ten seconds of each worker: it is kept, whatever the environment says, and not beside the sources.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$PWD/build/pycache"
is_whole() { [[ -n "${GPUFLEET_WHOLE:-}" ]]; }
[ "${WHOLE:-}" != yes ] || export GPUFLEET_WHOLE=1
tested=
if [ "${1:-}" = --all ]; then
    shift
    [ $# -gt 0 ] || tested=yes
    export GPUFLEET_WHOLE=1
    [ $# -gt 0 ] || set -- "${FIRST[@]}" "${BESIDE[@]}" "${BY_NAME[@]}"
fi

# Run pytest so that the files with failures are known afterwards, and those alone where they are named in AGAIN_FILES.
run_pytest() {
    local -a files=()
    read -ra files <<<"${AGAIN_FILES:-}"
    if [ ${#files[@]} -gt 0 ]; then
        shift
        set -- "${files[@]}" "$@"
    fi
    # One worker is pytest itself. L(begin) gives WORKERS.
    # shellcheck disable=SC2153
    [ "$WORKERS" = 1 ] || set -- "$@" -n "$WORKERS" --dist "${dist:-worksteal}"
    export GOMAXPROCS=$((CORES / JOBS / WORKERS > 0 ? CORES / JOBS / WORKERS : 1))
    GPUFLEET_TIMES=$logs/times/$tier.json .venv/bin/python -m pytest -o cache_dir="$logs/cache-$tier" "$@"
}
# Run commands side by side, as many as the tier has workers, and fail at the end with what each that failed had printed.
side_by_side() {
    # shellcheck disable=SC2016 # the shell that it is for expands it
    printf '%s\0' "$@" | xargs -0 -P "$WORKERS" -n 1 "$BASH" -c '
        begun=$(date +%s)
        if said=$(eval "$1" 2>&1); then echo "$1: passed in $(($(date +%s) - begun)) s"; else printf "%s: FAILED\n%s\n" "$1" "$said"; exit 1; fi' -
}

tier_unit() { run_pytest tests/unit --cov --cov-report=term --cov-fail-under=90; }
# The longest first. A linter keeps what it knows in a folder that git ignores, and a second run is quicker.
tier_lint() {
    tools/system-packages.sh shellcheck=shellcheck
    side_by_side \
        ".venv/bin/ansible-lint --offline --profile production --exclude roles" \
        ".venv/bin/ansible-lint --offline --profile production roles" \
        ".venv/bin/mypy --package ansible_collections.gpufleet.nvidia.plugins" \
        ".venv/bin/antsibull-changelog lint" \
        "shellcheck tools/*.sh tools/gpu-bundle/run.sh .ci/run" \
        ".venv/bin/yamllint --strict ." \
        ".venv/bin/python tools/generate.py --check" \
        ".venv/bin/ruff check . && .venv/bin/ruff format --check ."
}
tier_programs() { GOMAXPROCS=$((CORES / JOBS > 0 ? CORES / JOBS : 1)) .venv/bin/python tools/needs.py --build; }
tier_sanity() {
    tools/system-packages.sh shellcheck=shellcheck
    if is_whole; then tools/sanity.sh; else tools/sanity.sh --oldest-and-newest; fi
}
tier_importer() {
    if is_whole; then tools/importer.sh; else tools/importer.sh --linted; fi
    tools/system-packages.sh gpg=gnupg
    # A key for this once. Its agent ends with its folder.
    GNUPGHOME=$(mktemp -d)
    export GNUPGHOME
    trap 'rm -rf "$GNUPGHOME"' EXIT
    gpg --batch --quiet --passphrase '' --quick-gen-key release@example.com ed25519 sign 1d
    # It installs what it made, as tools/install.sh does, and verifies what it signed.
    tools/release.sh 99.0.0 --scratch --sign release@example.com
    (cd build/release/99.0.0 && gpg --batch --verify SHA256SUMS.asc SHA256SUMS && sha256sum --quiet --check SHA256SUMS)
}
tier_docs() { tools/docs.sh; }
tier_oldest-python() { tools/oldest-python.sh -n "$([ "$WORKERS" = 1 ] && echo 0 || echo "$WORKERS")"; }
# Journals are synced to disk at every step: in memory that costs nothing.
tier_slow() {
    memory=$(mktemp -d -p /dev/shm)
    trap 'rm -rf "$memory"' EXIT
    run_pytest tests/unit -m slow --basetemp="$memory/tests"
}
tier_resolver() { run_pytest tests/resolver -m resolver; }
tier_eda() {
    tools/eda.sh
    dist=loadfile run_pytest tests/eda -m eda
}
tier_charts() { run_pytest tests/charts -m charts; }
tier_lab() { dist=loadfile run_pytest tests/lab -m "lab and not upgrade"; }
# The cluster's files share hosts: one worker.
tier_cluster() { WORKERS=1 run_pytest tests/cluster -m cluster; }
tier_nodes() { WORKERS=1 run_pytest tests/cluster -m nodes; }
tier_pods() { WORKERS=1 run_pytest tests/cluster -m pods; }
tier_gitops() { WORKERS=1 run_pytest tests/cluster -m gitops; }
tier_dkms() {
    WORKERS=1 run_pytest tests/lab -m dkms
    WORKERS=1 run_pytest tests/cluster -m dkms
}
tier_upgrade() {
    WORKERS=1 run_pytest tests/cluster -m upgrade
    WORKERS=1 run_pytest tests/lab -m upgrade
}
tier_debian() { WORKERS=1 run_pytest tests/cluster -m debian; }
# The whole job, one that changes nothing, and whether the others can be read: by name they run one by one (make molecule).
tier_molecule() {
    if is_whole; then tools/molecule.sh --syntax all; else tools/molecule.sh --syntax default inspect; fi
}
tier_bench() { .venv/bin/python tests/bench/run.py; }

# A tier runs in a shell of its own: `set -e` has no effect below `if`. It gets its share of the cores from L(begin).
if [ "${1:-}" = --one ]; then
    tier=$2
    mkdir -p "$logs"
    "tier_$tier"
    exit 0
fi

tiers=("$@")
[ ${#tiers[@]} -gt 0 ] || tiers=("${FIRST[@]}" "${BESIDE[@]}")
JOBS=${JOBS:-2}
for most in "$CORES" "${#tiers[@]}"; do [ "$JOBS" -le "$most" ] || JOBS=$most; done
for tier in "${tiers[@]}"; do
    if ! declare -F "tier_$tier" >/dev/null; then
        echo "There is no tier '$tier'. The tiers are: ${FIRST[*]} ${BESIDE[*]} ${BY_NAME[*]}" >&2
        exit 2
    fi
done

# It needs no more than the machine's Python, and ends the run where it could only fail late.
"${PYTHON:-python3}" tools/needs.py "${tiers[@]}"
tools/setup.sh
# The environment of the oldest Python stays.
mkdir -p "$logs/running"
rm -rf build/pycache/tmp build/pycache/dev "$logs"/*.log "$logs"/cache-* "$logs"/times "$logs"/running/* "$logs"/times.json build/tested
passed=() failed=() skipped=() again=() seconds=()
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
is_first() { [[ " ${FIRST[*]} " == *" $1 "* ]]; }
begin() {
    begun[$1]=$SECONDS
    touch "$logs/running/$1"
    local beside=$JOBS workers
    ! is_first "$1" || beside=1
    workers=$((CORES / beside > 0 ? CORES / beside : 1))
    # At its limit pytest removes its hosts: on SIGINT, which the shell ignores in what it starts beside itself, and with one worker, as it gives those of
    # its own a few seconds.
    local -a within=()
    if [ -n "${2:-}" ]; then
        workers=1
        within=(env --default-signal=INT timeout --signal=INT --kill-after=60 "$2")
    fi
    CORES=$CORES JOBS=$beside WORKERS=$workers setsid "${within[@]}" "$BASH" tools/test.sh --one "$1" >"$logs/$1.log" 2>&1 &
    tier_of[$!]=$1
}
# The counts of pytest, where the tier has them.
counts() { grep -E '^[0-9]+ (passed|failed|skipped|error).* in [0-9.]+s' "$logs/$1.log" | tail -1 || true; }
left_out() { sed -n 's/^\([0-9]* tests run by name only\): .*/   \1, listed in build\/test\/'"$1"'.log: make test TIERS='"$1"' WHOLE=yes/p' "$logs/$1.log"; }
finish() {
    local tier=$1 status=$2 took=$((SECONDS - begun[$1]))
    rm -f "$logs/running/$tier"
    seconds+=("$tier=$took")
    case $status in
        0)
            passed+=("$tier")
            echo "== $tier: passed in $took s $(counts "$tier")"
            left_out "$tier"
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
    if [[ $NEED_GO == *" $tier "* ]] && ! command -v go >/dev/null; then
        echo "== $tier: SKIPPED, it builds programs of Go's and there is no go: install Go 1.26 or newer and put it into PATH"
        skipped+=("$tier")
        continue
    fi
    limit=$JOBS
    # One of the first tiers has all cores.
    if is_first "$tier" || [[ ${#tier_of[@]} = 1 && " ${FIRST[*]} " == *" ${tier_of[*]} "* ]]; then limit=1; fi
    while [ ${#tier_of[@]} -ge "$limit" ]; do await_one; done
    echo "== $tier: begins ($logs/$tier.log)"
    begin "$tier"
done
while [ ${#tier_of[@]} -gt 0 ]; do await_one; done

first_failed=("${failed[@]}")
failed=()
# The tests that failed in a tier's last run of pytest.
last_failed() {
    .venv/bin/python -c 'import json, pathlib, sys
path = pathlib.Path(sys.argv[1])
print(*sorted(json.loads(path.read_text())) if path.exists() else (), sep="\n")' "$logs/cache-$1/v/cache/lastfailed"
}
again_until=$((SECONDS + AGAIN_SECONDS))
for tier in "${first_failed[@]}"; do
    if [ "$AGAIN" != yes ] || [ "$JOBS" = 1 ] || [ $((again_until - SECONDS)) -lt $AGAIN_LEAST ] || is_first "$tier"; then
        failed+=("$tier")
        continue
    fi
    names=$(last_failed "$tier")
    AGAIN_FILES=$(cut -d: -f1 <<<"$names" | sort -u | tr '\n' ' ')
    export AGAIN_FILES
    mv "$logs/$tier.log" "$logs/$tier-first.log"
    echo "== $tier: once more, by itself: ${AGAIN_FILES:-the whole tier}"
    begin "$tier" $((again_until - SECONDS))
    await_one
    unset AGAIN_FILES
    # What failed again is in the list anew.
    while read -r name; do
        [ -z "$name" ] || grep -qxF -- "$name" <(last_failed "$tier") || again+=("$name")
    done <<<"$names"
    [ -n "$names" ] || [[ " ${failed[*]} " == *" $tier "* ]] || again+=("$tier")
done

echo
.venv/bin/python tests/times.py "$logs" "${seconds[@]}"
echo
echo "Tiers passed: ${passed[*]:-none}"
[ ${#skipped[@]} -eq 0 ] || echo "Tiers NOT RUN: ${skipped[*]}"
if [ ${#again[@]} -gt 0 ]; then
    echo "PASSED ONLY ON A SECOND TRY, by themselves; each is a defect whose cause is to be found (why they failed: $logs/TIER-first.log):"
    printf '   %s\n' "${again[@]}"
fi
[ ${#failed[@]} -eq 0 ] || echo "Tiers FAILED: ${failed[*]}"
echo "${#passed[@]} passed, ${#failed[@]} failed, ${#skipped[@]} not run, ${#again[@]} tests passed only on a second try, in $((SECONDS / 60)) minutes"
[ ${#failed[@]} -eq 0 ]
# What make release asks for.
if [ -n "$tested" ] && [ ${#skipped[@]} -eq 0 ] && [ -z "$(git status --porcelain)" ]; then git rev-parse HEAD >build/tested; fi
