#!/usr/bin/env bash
# List every image of a cluster's rendered tree with the digest that its registry has now:
#   tools/image-digests.sh [--charts FOLDER] [--list] gitops/clusters/NAME
# It needs helm, and skopeo unless --list leaves the digests out; it reads charts and registries, and changes nothing.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)

charts='' list='' tree=''
while [ $# -gt 0 ]; do
    case $1 in
        --charts) charts=${2:?Name the folder with NAME-VERSION.tgz} && shift 2 ;;
        --list) list=yes && shift ;;
        *) tree=$1 && shift ;;
    esac
done
[ -d "$tree/values" ] || { echo "There is no $tree/values. Name the directory of a cluster that gpufleet.nvidia.render wrote." >&2; exit 2; }
for program in helm ${list:-skopeo}; do
    [ "$program" = yes ] || command -v "$program" >/dev/null || { echo "$program is not installed." >&2; exit 1; }
done

# NAME VERSION REPOSITORY of every chart, from the one place where they are pinned.
pinned() {
    PYTHONDONTWRITEBYTECODE=1 python3 - "$repository/plugins/plugin_utils/render" <<'EOF'
import sys
sys.path.insert(0, sys.argv[1])
import versions
for chart in versions.CHARTS.values():
    print(chart.name, chart.version, chart.repository)
EOF
}

images_of() { # the release, its values
    local name version source kept
    if [ "$1" = gpufleet-nvidia ]; then
        helm template "$1" "$repository/charts/gpufleet-nvidia" --namespace gpus --kube-version 1.34 --values "$2"
        return
    fi
    while read -r name version source; do
        case $1 in "$name" | "$name"-*) ;; *) continue ;; esac
        # A cluster may keep another version of the GPU Operator, which stands above its values.
        kept=$(sed -n "s/^# Values for the chart $name \([^ ]*\) (.*/\1/p" "$2")
        version=${kept:-$version}
        if [ -n "$charts" ]; then
            helm template "$1" "$charts/$name-$version.tgz" --namespace gpus --kube-version 1.34 --values "$2"
        elif [[ $source == oci://* ]]; then
            helm template "$1" "$source/$name" --version "$version" --namespace gpus --kube-version 1.34 --values "$2"
        else
            helm template "$1" "$name" --repo "$source" --version "$version" --namespace gpus --kube-version 1.34 --values "$2"
        fi
        return
    done < <(pinned)
    echo "No chart is known for the release $1 ($2)." >&2
    return 1
}

for values in "$tree"/values/*.yaml; do
    release=$(basename "$values" .yaml)
    manifests=$(images_of "$release" "$values")
    while read -r image; do
        if [ -n "$list" ]; then
            echo "$release $image"
        else
            digest=$(skopeo inspect --format '{{.Digest}}' "docker://${image%@*}") || { echo "The digest of $image ($release) cannot be read." >&2; exit 1; }
            echo "$release ${image%@*}@$digest"
        fi
    done < <(sed -nE 's/^ *-? *image: *"?([^" ]+)"? *$/\1/p' <<<"$manifests" | sort -u)
done
