#!/usr/bin/env bash
# A clone that was moved or copied still names its old place in what was built and installed: the old place's code
# would run, or none. Built trees are removed, the environment's scripts corrected, and both said. In a clone that
# stayed where it was this does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for cache in build/*/CMakeCache.txt; do
  [[ -e "$cache" ]] || continue
  old="$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")"
  [[ "$old" -ef . ]] && continue
  echo "this clone was at $old: ${cache%/*} is removed, to be built anew"
  rm -rf "${cache%/*}"
done

if [[ -e .venv/bin/pip ]]; then
  old="$(sed -n '1s|^#!\(.*\)/bin/python.*|\1|p' .venv/bin/pip)"
  if [[ -n "$old" && ! "$old" -ef .venv ]]; then
    echo "the Python environment was at $old: its scripts name its new place from here on"
    grep -rlIF "$old" .venv/bin | xargs sed -i "s|$old|$PWD/.venv|g"
  fi
fi
