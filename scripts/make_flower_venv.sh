#!/usr/bin/env bash
# Makes build/flower-venv: Flower, as requirements-flower.txt names it, over the packages of .venv and the package of the
# release build. Does nothing when it is up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=build/flower-venv
stamp="$folder/installed-requirements.txt"
if cmp -s requirements-flower.txt "$stamp" && [[ -x "$folder/bin/flower-superlink" ]]; then exit 0; fi

echo "Flower's environment: installing requirements-flower.txt into $folder"
rm -f "$stamp"
.venv/bin/python -m venv --clear "$folder"
site="$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
{
  echo "$PWD/build/release/python"
  .venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
} >"$site/deltawire-development.pth"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-flower.txt
if [[ ! -x "$folder/bin/flower-superlink" ]]; then # .venv has Flower, too, with programs of its own
  "$folder/bin/python" -m pip install --quiet --ignore-installed --no-deps -r requirements-flower.txt
fi
cp requirements-flower.txt "$stamp"
