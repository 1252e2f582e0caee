#!/usr/bin/env bash
# Run the unit tests of what goes to hosts with the oldest Python that they may have. Exits with 77 where this machine has none.
set -euo pipefail
cd "$(dirname "$0")/.."

oldest=3.9
python=
for candidate in "python$oldest" "$HOME"/.pyenv/versions/"$oldest".*/bin/python; do
    # A version manager may have put a name there that leads nowhere.
    if "$candidate" -c "" 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "there is no Python $oldest on this machine; install one (pyenv install $oldest) to prove what goes to hosts with it"
    exit 77
fi

environment=build/test/python-$oldest
[ -x "$environment/bin/python" ] || "$python" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/oldest-python.txt
exec "$environment/bin/python" -m pytest tests/unit/plugins/module_utils tests/unit/plugins/plugin_utils/lint "$@"
