#!/usr/bin/env bash
# Makes the development environment .venv from requirements-dev.txt. Does nothing when it is up to date.
#
#   scripts/make_venv.sh [begin]     begin: with what the build and the style need alone; the next call installs the rest
#
# The environment sees the Python package of the release build (build/release/python), so that
# `.venv/bin/python -c "import deltawire"` runs the code that was just built; by a path from the environment, so that a
# clone that was moved or copied runs its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

see_release_build() {
  local site
  site="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  echo "../../../../build/release/python" >"$site/deltawire-release-build.pth"
}

install() { .venv/bin/python -m pip install --no-compile --quiet --disable-pip-version-check "$@"; }

# Whether the environment runs, and the file says that it is made from these requirements.
made() { cmp -s requirements-dev.txt "$1" && .venv/bin/python -c '' 2>/dev/null; }

stamp=.venv/installed-requirements.txt
begun=.venv/begun-requirements.txt
if made "$stamp"; then
  see_release_build
  exit 0
fi

python="${PYTHON:-python3}"
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "the development environment needs Python 3.11 or newer; '$python' is $("$python" --version)." >&2
  echo "Name another one: make PYTHON=/path/to/python3.11 ..." >&2
  exit 1
fi

# Making it anew empties it, and through a link that would be somebody else's.
if [[ -L .venv ]]; then
  echo ".venv is a link to $(readlink .venv), which does not have what requirements-dev.txt asks for: remake it" >&2
  echo "where it belongs (make venv there), or remove the link" >&2
  exit 1
fi

if ! made "$begun"; then
  echo "Python environment: installing requirements-dev.txt into .venv (PyTorch is big: minutes)"
  rm -f "$stamp"
  "$python" -m venv --clear .venv
  mapfile -t first < <(grep -E '^(nanobind|numpy|ruff)==' requirements-dev.txt)
  install "${first[@]}"
  cp requirements-dev.txt "$begun"
fi
if [[ "${1:-}" == begin ]]; then
  see_release_build
  exit 0
fi
# pip would compile all of PyTorch in one process, which takes longer than installing it: the tests import a tenth.
install -r requirements-dev.txt
env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c 'import hypothesis, matplotlib.pyplot, pytest, rich.console, xdist
import torch._dynamo, torch._functorch.aot_autograd, torch.distributed.fsdp'
see_release_build
cp requirements-dev.txt "$stamp"
echo "Python environment: ready"
