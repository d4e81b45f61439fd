#!/usr/bin/env bash
# Runs the recipes of examples/trainers under the packages of requirements-trainers.txt, in an environment of
# their own that sees .venv and the release build. Makes it where it isn't there or is another.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv-trainers
stamp="$venv/installed-requirements.txt"
wanted="$(cat requirements-dev.txt requirements-trainers.txt)"
if [[ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]]; then
  echo "installing requirements-trainers.txt into $venv (a minute or two)"
  rm -f "$stamp"
  .venv/bin/python -m venv --clear "$venv"
  site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  shared="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  printf '%s\n' "$shared" "$PWD/build/release/python" >"$site/deltawire.pth"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-trainers.txt
  echo "$wanted" >"$stamp"
fi
exec "$venv/bin/python" -m pytest -q --timeout 900 tests/trainers "$@"
