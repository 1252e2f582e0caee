#!/usr/bin/env bash
# The main job on the embedded default: tools/demo.sh up boots a lab of three virtual GPU hosts, brings them into the state that
# examples/fleet describes, renders the cluster's GitOps tree and shows that a second run changes nothing. tools/demo.sh down removes it all.
set -euo pipefail
cd "$(dirname "$0")/.."

export ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections"
export ANSIBLE_CONFIG="$PWD/examples/ansible.cfg"
output=build/demo
gitops=$output/gitops

say() { printf '\n[%3d s] %s\n' "$SECONDS" "$*"; }

play() {
    .venv/bin/ansible-playbook "${inventory[@]}" -e gpu_kubernetes_output_directory="$PWD/$gitops" "$@"
}

changed_hosts() {
    # The recap's lines look like: host : ok=9 changed=0 unreachable=0 failed=0 ...
    sed -n '/^PLAY RECAP/,$p' "$1" | grep -E 'changed=' | grep -vE 'changed=0 ' || true
}

with_lab() {
    say "Booting the lab: three virtual GPU hosts (8 x H100 80GB, 8 x A100 40GB, 4 x L40S)"
    tests/lab/lab up --name demo
    inventory=(-i examples/fleet -i "$(tests/lab/lab inventory --name demo)")

    say "ansible-playbook gpufleet.nvidia.site: from bare hosts to a cluster configuration"
    play gpufleet.nvidia.site | tee "$output/first-run.log"

    say "What is there now"
    play gpufleet.nvidia.inspect -e "{gpu_inspect_note: 'Rendered for the cluster: $gitops'}" | tee "$output/inspect.log"

    say "The same once more: nothing is to do"
    play gpufleet.nvidia.site | tee "$output/second-run.log"
    if [ -n "$(changed_hosts "$output/second-run.log")" ]; then
        echo "The second run changed something: see $output/second-run.log" >&2
        exit 1
    fi
    say "changed=0 on every host. Look around: ssh lines are in tests/lab/README.md; the rendered files are in $gitops"
    echo "Remove every trace of the lab with: make demo-down"
    echo "Next, the same hosts as nodes of a real Kubernetes cluster, up to pods with their slices: make demo-cluster"
}

without_root() {
    say "Not root: no lab host can boot. Shown here: facts, MIG, plan and rendering, on this machine with a virtual NVML."
    cat > "$output/localhost.yml" <<EOF
---
gpu_hosts:
  children:
    training:
      hosts:
        gpu-training-1:
          ansible_connection: local
          ansible_become: false
          ansible_remote_tmp: $PWD/$output/tmp
          ansible_python_interpreter: $PWD/.venv/bin/python
          # The virtual driver came without packages, and this machine's container runtime is none of the demo's business.
          nvidia_driver_state: unmanaged
          nvidia_toolkit_runtime: none
EOF
    inventory=(-i examples/fleet -i "$output/localhost.yml")
    here=(tools/localhost.sh "$output/machine" h100-80gb-sxm 8)

    say "What site.yml would do on a host of the pool training"
    "${here[@]}" .venv/bin/ansible-playbook "${inventory[@]}" gpufleet.nvidia.plan --limit gpu-training-1,localhost \
        -e gpu_plan_fail=false -e gpu_kubernetes_output_directory="$PWD/$gitops" | tee "$output/plan.log"

    say "The MIG stage, on 8 x H100 80GB, and what is there afterwards"
    "${here[@]}" bash -c '
        .venv/bin/ansible-playbook "$@" gpufleet.nvidia.site --tags mig --limit gpu-training-1 &&
        .venv/bin/ansible-playbook "$@" gpufleet.nvidia.inspect --limit gpu-training-1' -- "${inventory[@]}" | tee "$output/mig.log"

    say "The GitOps tree of the cluster, from the inventory alone"
    play gpufleet.nvidia.render | tee "$output/render.log"
    say "Left out for want of root: driver, container toolkit, container runtime, MPS, health check, reboot. As root: make demo"
}

case ${1:-} in
    up)
        tools/setup.sh
        mkdir -p "$output"
        if [ "$(id -u)" = 0 ]; then with_lab; else without_root; fi
        ;;
    down)
        if [ -x tests/lab/lab ] && [ "$(id -u)" = 0 ]; then tests/lab/lab down --name demo; fi
        rm -rf "$output"
        ;;
    *)
        echo "usage: tools/demo.sh up|down" >&2
        exit 2
        ;;
esac
