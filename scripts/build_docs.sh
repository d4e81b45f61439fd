#!/usr/bin/env bash
# Builds the site into build/site, strictly: a link that leads nowhere, a page that is in no table of contents and a
# docstring that can't be read are errors. Needs the release build of the Python package, and Doxygen. Nothing is
# fetched but, the first time, what docs/requirements.txt names.
#
#   scripts/build_docs.sh [tools]      tools: only the environment build/docs/venv, with Sphinx and codespell
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=build/docs/venv

# An environment of its own, which sees .venv's packages and the release build behind its own.
make_tools() {
  local stamp="$venv/installed-requirements.txt"
  if cmp -s docs/requirements.txt "$stamp" && "$venv/bin/python" -c '' 2>/dev/null; then return; fi
  echo "site: installing docs/requirements.txt into $venv"
  rm -rf "$venv"
  .venv/bin/python -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
  local site
  site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  printf '%s\n' "$PWD/build/release/python" "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    >"$site/deltawire-docs.pth"
  cp docs/requirements.txt "$stamp"
}

make_site() {
  if ! command -v doxygen >/dev/null; then
    echo "the site needs Doxygen: apt-get install doxygen" >&2
    exit 1
  fi
  mkdir -p build/docs
  DELTAWIRE_PYTHON=.venv/bin/python doxygen docs/site/Doxyfile
  rm -rf build/site
  "$venv/bin/python" -m sphinx --fail-on-warning --quiet -c docs/site -d build/docs/doctrees . build/site
  echo "site: build/site/index.html"
}

make_tools
[[ "${1:-}" == tools ]] || make_site
