#!/usr/bin/env bash
# Build the documentation site into build/docs/html, without network: a page for each role, module, filter and playbook, and docs/.
# A warning of Sphinx, and a link inside the site that leads to nothing, are errors.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/docs-environment.sh
# Before the pages: a picture of what is printed no more is wrong in all of them.
.venv-docs/bin/python tools/screenshots.py --check

site=build/docs
rm -rf "$site/source" "$site/html" "$site/extra"
mkdir -p "$site/source/collection"
# It asks ansible-doc of the collection, which is in the tools' environment.
ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections" PATH="$PWD/.venv/bin:$PATH" .venv-docs/bin/antsibull-docs collection \
    --use-current --squash-hierarchy --fail-on-error --dest-dir "$site/source/collection" gpufleet.nvidia
.venv-docs/bin/python tools/site/prepare.py . "$site/source"
.venv-docs/bin/sphinx-build -q -W --keep-going -j auto -c tools/site -D "html_extra_path=$PWD/$site/extra" -d "$site/doctrees" -b html \
    "$site/source" "$site/html"
.venv-docs/bin/python tools/site/check_links.py "$site/html"
echo "The site is in $site/html: $(find "$site/html" -name '*.html' | wc -l) pages."
