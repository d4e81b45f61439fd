#!/usr/bin/env bash
# Tests the codecs' twins for GPUs: on the GPU that is here, else in Triton's interpreter; and compiles their
# kernels for GPUs that need not be here. Triton comes with PyTorch's builds for GPUs, but not with .venv's:
# where no PyTorch with a GPU is given, it is installed into an environment of its own that sees .venv.
#
#   scripts/check_twins.sh [pytest's arguments]       PYTHON: an interpreter that has torch and triton
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv-twins
stamp="$venv/installed-requirements.txt"
wanted="$(cat requirements-dev.txt requirements-twins.txt)"
if [[ -z "${PYTHON:-}" && "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]]; then
  echo "installing requirements-twins.txt into $venv (about 300 MB)"
  rm -f "$stamp"
  .venv/bin/python -m venv --clear "$venv"
  site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  shared="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  printf '%s\n' "$shared" "$PWD/build/release/python" >"$site/deltawire.pth"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-twins.txt
  echo "$wanted" >"$stamp"
fi
python="${PYTHON:-$venv/bin/python}"
export PYTHONPATH="$PWD/build/release/python${PYTHONPATH:+:$PYTHONPATH}"
"$python" -m pytest -q --timeout 600 tests/torch/gpu "$@"
exec "$python" scripts/compile_twins.py
