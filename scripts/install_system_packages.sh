#!/usr/bin/env bash
# Installs the system packages that building and testing need, or says how to.
#
#   scripts/install_system_packages.sh [base] [check] [cross] [bench] [docs] [wheel]     default: base
#
# base: for `make demo` and `make test`. check: the clang 19 tools of `make check` and `make lint`. cross: the
# compiler and emulator with which `make check` builds and runs for aarch64. bench: the libraries that
# `make bench` compares with, and programs that patches are compared with. docs: the tool with which `make docs`
# reads the headers. wheel: the libraries that `make wheels` links statically.
# Packages already installed are left alone. Without root nothing is installed: the command is printed and
# the exit status is 1.
set -euo pipefail

missing=()

# want PACKAGE REASON: notes a Debian package that is not installed.
want() {
  local state
  state="$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)"
  [[ "$state" == installed ]] && return
  missing+=("$1")
  printf '  %-24s %s\n' "$1" "$2"
}

# want_unless CONDITION-COMMAND PACKAGE REASON: a tool counts wherever it comes from.
want_unless() {
  bash -c "$1" >/dev/null 2>&1 && return
  missing+=("$2")
  printf '  %-24s %s\n' "$2" "$3"
}

base_group() {
  want_unless 'command -v g++' g++ 'the C++ compiler'
  want_unless 'command -v cmake' cmake 'configures the build'
  want_unless 'command -v ninja' ninja-build 'runs the build'
  want_unless 'command -v python3' python3 'tests, demo and package; 3.11 or newer'
  want_unless 'python3 -c "import venv, ensurepip"' python3-venv 'makes the environment .venv'
  want_unless 'test -f "$(python3 -c "import sysconfig as s; print(s.get_path(\"include\"))")/Python.h"' \
    python3-dev 'headers for the Python extension'
  want_unless 'command -v pkg-config' pkg-config 'tests of the installed library'
  want libexpected-dev 'tl::expected: results and errors'
  want libxxhash-dev 'xxHash: hashes of settings, digests of replicas'
  want libssl-dev 'OpenSSL: the handshake between ranks, and TLS'
  want libzstd-dev 'the codec zstd'
  want zlib1g-dev 'the codec zlib'
  want libcli11-dev 'the command line of deltawire'
  want libarchive-dev '.npz archives in the command line'
  want nlohmann-json3-dev 'headers of safetensors files, and --json of deltawire'
  want libgtest-dev 'unit tests'
  want librapidcheck-dev 'property tests'
  want libopenmpi-dev 'the optional transport over Open MPI'
  want openmpi-bin 'mpirun: runs the tests of that transport'
  want dataset-fashion-mnist 'the images that demo and tests train on (30 MB)'
}

check_group() {
  want clang-19 'second compiler, thread sanitizer, fuzzing'
  want clang-tidy-19 'static analysis'
  want clang-format-19 'formatting'
  want abigail-tools 'abidiff: compares the C interface with the last release'
  want libclang-rt-19-dev 'run-time parts of the sanitizers and libFuzzer'
}

cross_group() {
  want g++-aarch64-linux-gnu 'compiles for aarch64'
  want qemu-user 'runs programs for aarch64'
}

bench_group() {
  want libbenchmark-dev 'Google Benchmark: runs the rows of bench/coding'
}

docs_group() {
  want_unless 'command -v doxygen' doxygen 'reads the headers for the reference of C++ and C'
}

wheel_group() {
  want nettle-dev 'what a static libarchive needs'
  want libbz2-dev 'what a static libarchive needs'
  want liblzma-dev 'what a static libarchive needs'
}

# at_least HAVE WANTED: compares dotted versions.
at_least() { [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]; }

# check_version NAME HAVE WANTED
check_version() {
  if ! at_least "$2" "$3"; then
    echo "$1 is version $2, but $3 or newer is needed: install a newer one and put it first in PATH" >&2
    exit 1
  fi
}

check_versions() {
  check_version g++ "$(g++ -dumpfullversion)" 12
  check_version cmake "$(cmake --version | awk 'NR == 1 { print $3 }')" 3.25
  check_version python3 "$(python3 -c 'import platform; print(platform.python_version())')" 3.11
}

install_missing() {
  if [[ "$(id -u)" != 0 ]]; then
    echo "not running as root. Install them with this command, then call make again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

main() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "this script knows Debian and Ubuntu only. Elsewhere install the packages that it lists" >&2
    echo "(the groups in $0), then build with cmake --preset release" >&2
    exit 1
  fi
  local heading="system packages that are missing, and what they are for:"
  local list group
  for group in "${@:-base}"; do
    case "$group" in
      base | check | cross | bench | docs | wheel) ;;
      *)
        echo "unknown group '$group': use base, check, cross, bench, docs, wheel or several" >&2
        exit 2
        ;;
    esac
  done
  list="$(mktemp)"
  for group in "${@:-base}"; do "${group}_group" >>"$list"; done
  if [[ ${#missing[@]} -gt 0 ]]; then
    echo "$heading"
    cat "$list"
    rm -f "$list"
    install_missing
    echo "system packages: installed ${#missing[@]}"
  else
    rm -f "$list"
    echo "system packages: all there (${*:-base})"
  fi
  check_versions
}

main "$@"
