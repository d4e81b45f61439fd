#!/usr/bin/env bash
# Runs tests/torch against another PyTorch, with the extension built for its Python.
#
#   scripts/check_torch.sh VERSION        makes an environment with torch==VERSION in build/torch-VERSION
#   scripts/check_torch.sh /path/python   an interpreter that has torch, NumPy, nanobind, pytest, pytest-timeout and
#                                         pytest-xdist; as an absolute path
#
# CMAKE_ARGS has more arguments for CMake, ARGS for pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wanted="${1:-}"
if [[ -z "$wanted" ]]; then
  echo "which PyTorch? make check-torch VERSION=2.6.0, or PYTHON=/path/to/an/interpreter/that/has/it" >&2
  exit 2
fi
if [[ "$wanted" == /* ]]; then
  python="$wanted"
else
  python="$PWD/build/torch-$wanted/venv/bin/python"
  if ! "$python" -c 'import torch' 2>/dev/null; then
    rm -rf "build/torch-$wanted/venv"
    "${BASE_PYTHON:-python3}" -m venv "build/torch-$wanted/venv"
    sed "s/^torch==.*/torch==$wanted/" requirements-dev.txt >"build/torch-$wanted/requirements.txt"
    "$python" -m pip install --quiet --disable-pip-version-check -r "build/torch-$wanted/requirements.txt"
  fi
fi

version="$("$python" -c 'import torch; print(torch.__version__)')"
build="build/torch-$version"
read -ra more <<<"${CMAKE_ARGS:-}"
read -ra tests <<<"${ARGS:-tests/torch}"
cmake --preset release -B "$build" -DDELTAWIRE_TESTS=OFF -DPython_EXECUTABLE="$python" "${more[@]}"
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target deltawire_python
echo "=== tests/torch with PyTorch $version"
PYTHONPATH="$PWD/$build/python:$PWD" "$python" -m pytest -q -n "$(nproc)" --dist loadfile --no-loadscope-reorder -p no:cacheprovider "${tests[@]}"
