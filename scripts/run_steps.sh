#!/usr/bin/env bash
# The steps behind `make test`, `make check`, `make lint` and `make bench`: each with its time, and a
# clear end. Stops at the first step that fails and says which.
#
#   scripts/run_steps.sh test|check|lint|bench
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs="${JOBS:-$(nproc)}"
fuzz_seconds="${FUZZ_SECONDS:-20}"
# Many tests wait for deadlines more than they compute, and those that compute take several slots (cmake/layers.cmake);
# those of Python compute more.
test_jobs=$((8 * jobs))
python_jobs=$((2 * jobs))
summary=()

# step TITLE COMMAND...: runs one step.
step() {
  local title="$1" start=$SECONDS
  shift
  printf '\n=== %s\n' "$title"
  if ! "$@"; then
    printf '\nFAILED: %s. The reason is above; every later step was left out.\n' "$title" >&2
    exit 1
  fi
  summary+=("$(printf '%5d s  %s' $((SECONDS - start)) "$title")")
}

# build PRESET [TARGET...]
build() {
  local preset="$1"
  shift
  local targets=()
  [[ $# -gt 0 ]] && targets=(--target "$@")
  cmake --preset "$preset" && cmake --build --preset "$preset" -j "$jobs" "${targets[@]}"
}

# run_tests cpp|python|thorough JOBS: those that have not passed with the same inputs; AGAIN=1: all.
run_tests() {
  .venv/bin/python scripts/run_tests.py "$1" --jobs "$2" ${AGAIN:+--again}
}

python_style() { .venv/bin/ruff check . && .venv/bin/ruff format --check .; }

cpp_files() {
  find src apps include tests bench examples python -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cc' | sort
}

cpp_style() { cpp_files | xargs clang-format-19 --dry-run --Werror; }

# Tests are left out: the macros of the test libraries trip checks that are meant for our code. And so is what isn't
# compiled for this processor.
clang_tidy() {
  find src apps -name '*.cc' -not -name '*_test.cc' -not -name '*_testing.cc' -not -name '*_neon.cc' | sort |
    xargs -P "$jobs" -n 4 clang-tidy-19 --quiet -p build/clang19
}

# The program for aarch64 makes the golden bytes, and their values.
aarch64_bytes() {
  DELTAWIRE_BIN="$PWD/scripts/aarch64_deltawire.sh" .venv/bin/python -m pytest -q -n "$python_jobs" tests/golden
}

whole_package() {
  DELTAWIRE_WHOLE_PACKAGE=1 .venv/bin/python -m pytest -q --timeout 3600 tests/package/test_part_of_another_project.py
}

# Checks the package's types as users' type checkers see them.
types() { .venv/bin/mypy && .venv/bin/pyright; }

fuzz_targets() {
  local source
  for source in tests/fuzz/fuzz_*.cc $(find src apps -name 'fuzz_*.cc' | sort); do basename "$source" .cc; done
}

fuzz_one() {
  local program="$1" corpus name
  name="$(basename "$program")"
  corpus="build/fuzz/corpus/$name"
  mkdir -p "$corpus"
  local seeds=() folder
  for folder in {build/fuzz/,}"tests/fuzz/corpus/$name"; do
    [[ -d "$folder" ]] && seeds+=("$folder")
  done
  "$program" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -verbosity=0 -artifact_prefix="build/fuzz/$name-" "$corpus" "${seeds[@]}"
}

# The site's tools have it; what counts as a word is in pyproject.toml.
spelling() {
  scripts/build_docs.sh tools && build/docs/venv/bin/codespell
}

# A mutant that lives (status 1) is a question to the author of the lines, not a failure: some change nothing.
mutants_of_changes() {
  .venv/bin/python scripts/mutants.py --changed "${MUTANTS_SINCE:-main}" --sample 20 || [[ $? -eq 1 ]]
}

test_steps() {
  # PyTorch is downloaded and unpacked while the compiler works.
  scripts/make_venv.sh begin
  scripts/make_venv.sh &
  local environment=$!
  trap wait EXIT
  step "layers, file and function lengths" .venv/bin/python scripts/check_layers.py
  step "Python style (ruff)" python_style
  step "release build (g++), and the libraries under ASan + UBSan" build release
  step "the rest of the Python environment" wait "$environment"
  step "C++ tests, with the sanitized libraries or the released ones" run_tests cpp "$test_jobs"
  step "Python tests" run_tests python "$python_jobs"
}

check_steps() {
  step "C++ style (clang-format)" cpp_style
  step "spelling (codespell)" spelling
  test_steps
  step "C++ tests, all with the released libraries" ctest --preset release-twice -j "$test_jobs"
  step "Python tests that make test leaves out" run_tests thorough "$python_jobs"
  step "figures that deltawire compare finds" .venv/bin/python scripts/codec_tables.py --check --compared
  step "programs that measure speed" build release benchmarks
  step "the site, strictly" scripts/build_docs.sh
  step "the C interface is as it was released (abidiff)" .venv/bin/python scripts/check_abi.py
  step "the trainers' recipes, under their packages" scripts/check_trainers.sh
  step "the codecs' twins for GPUs, interpreted and compiled" scripts/check_twins.sh
  step "mutants of the lines changed since ${MUTANTS_SINCE:-main}" mutants_of_changes
  step "as a part of another project, compiled whole" whole_package
  step "Flower's environment" scripts/make_flower_venv.sh
  step "tests with Flower" build/flower-venv/bin/python -m pytest -q -n "$jobs" tests/flower
  step "programs that use the package, typed (mypy, pyright)" types
  step "wheels, in clean environments" .venv/bin/python scripts/wheels.py --out build/wheels
  step "ASan + UBSan build, tests and all" build asan-ubsan
  step "C++ tests, sanitized themselves" ctest --preset asan-ubsan -j "$test_jobs"
  step "clang 19 build" build clang19
  step "C++ tests, clang 19" ctest --preset clang19 -j "$test_jobs"
  step "clang-tidy" clang_tidy
  step "libraries for aarch64" scripts/make_aarch64_sysroot.sh
  step "aarch64 build" build aarch64 deltawire deltawire_{base,wire,codecs,optim,patch}_test
  step "base, wire, codecs, optim and patch, aarch64 under qemu-user" ctest --preset aarch64 -j "$test_jobs"
  step "golden files, aarch64 under qemu-user" aarch64_bytes
  # Only the layers that have threads.
  step "thread sanitizer build" build tsan deltawire_base_test deltawire_transport_test deltawire_reduce_test
  step "base, transport and reduce under the thread sanitizer" ctest --preset tsan -j "$jobs"
  local program
  # shellcheck disable=SC2046  # target names have no spaces
  step "fuzz build" build fuzz $(fuzz_targets) fuzz_corpus
  for program in build/fuzz/bin/fuzz_*; do
    step "fuzz $(basename "$program"), $fuzz_seconds s" fuzz_one "$program"
  done
}

lint_steps() {
  step "layers, file and function lengths" .venv/bin/python scripts/check_layers.py
  step "spelling (codespell)" spelling
  step "Python style (ruff)" python_style
  step "C++ style (clang-format)" cpp_style
  step "compile commands for clang-tidy" cmake --preset clang19
  step "clang-tidy" clang_tidy
}

# Those that need neither an input, a GPU, nor another processor's libraries.
bench_steps() {
  local name
  step "build" build release benchmarks
  for name in coding ddp_overhead exchanges; do
    step "bench/$name.py" .venv/bin/python "bench/$name.py"
  done
}

main() {
  case "${1:-}" in
    test | check | lint | bench) "$1_steps" ;;
    *)
      echo "usage: scripts/run_steps.sh test|check|lint|bench" >&2
      exit 2
      ;;
  esac
  printf '\n'
  [[ ${#summary[@]} -gt 0 ]] && printf '%s\n' "${summary[@]}"
  printf 'make %s: all %d steps passed in %d min %d s\n' "$1" "${#summary[@]}" \
    $((SECONDS / 60)) $((SECONDS % 60))
}

main "$@"
