#!/usr/bin/env bash
# Print the folder with TypeScript and the types that Grafana publishes of its dashboards, one folder for each release, fetched from npm into a
# cache outside of the repository. Nothing of them is run but TypeScript's compiler; a test tool only.
# Grafana itself comes with no package registry: neither npm nor PyPI has its server or the application that loads a dashboard.
set -euo pipefail

# Folder below node_modules of which a module is found, package, and the digest that npm publishes for it.
packages=(
    "compiler typescript@5.9.3 sha512-jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw=="
    "10.4.19 @grafana/schema@10.4.19 sha512-4kH+Ryiy529fBDZe97qnGrtpmESYaNX8/ef8WsvsUbP1ZheopUkd18r/+VTc18tX7ujOpuThXCdOBDsptj3qJw=="
    "13.2.3 @grafana/schema@13.2.3 sha512-rk8FEO7yuFfRTK/JD39747SZFQ+iCTQbpm6Mh2OjnqGx/g/uQQFx56t64eCLXWEyoR68ru4cigcGKrXk+ozrLg=="
    "13.2.3 @grafana/prometheus@13.2.3 sha512-T/zVYpVKXhMbqCyCaJa/afqkmZ8459i5Jvo5GMsjldLO5zKZTvNZft2b1GLEDxXPt6Lq1FTV/JVA5QT/dzmrlw=="
)

# Another list of packages is another folder.
list=$(printf '%s\n' "${packages[@]}" | sha256sum | cut -c -12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet/tools/grafana-schema-$list
if [ ! -d "$cache" ]; then
    if ! command -v npm >/dev/null; then
        echo "npm is needed to fetch Grafana's schema and TypeScript. Install Node.js 20 or newer." >&2
        exit 1
    fi
    echo "Fetching Grafana's schema and TypeScript (once) ..." >&2
    mkdir -p "${cache%/*}"
    new=$(mktemp -d "$cache.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    for package in "${packages[@]}"; do
        read -r folder name digest <<<"$package"
        # Without what the package depends on: types alone need none of it.
        archive=$new/$(npm pack --silent --cache "$new/npm" --pack-destination "$new" "$name")
        if [ "sha512-$(openssl dgst -sha512 -binary "$archive" | base64 -w 0)" != "$digest" ]; then
            echo "npm's $name is not the one that this test was written with: its digest is not $digest." >&2
            exit 1
        fi
        target=$new/$folder/node_modules/${name%@*}
        mkdir -p "$target"
        tar -xzf "$archive" -C "$target" --strip-components 1
        rm "$archive"
    done
    rm -r "$new/npm"
    mv -T "$new" "$cache"
fi
echo "$cache"
