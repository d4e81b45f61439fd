#!/usr/bin/env bash
# Looks for inline functions and templates that leaked out of object files compiled for another instruction set. Of
# equal ones the linker keeps any, for the whole program: on a CPU without these instructions it could be this one.
#
#   scripts/check_kernel_symbols.sh TARGET OBJECT...     exit status 1 if there is one
set -euo pipefail

target="$1"
shift
# One call for all: each line begins with its file.
symbols="$(nm --print-file-name --demangle --defined-only "$@")"
own="$(grep "::${target}::" <<<"$symbols" || true)"
for object; do
  if [[ $'\n'"$own" != *$'\n'"$object:"* ]]; then
    echo "$object has nothing in the namespace $target: is it compiled with DELTAWIRE_TARGET=$target?"
    exit 1
  fi
done
# W: a function that other files may have, too; in the target's own namespace nobody else has it. clang's
# __clang_call_terminate is two calls, without an instruction of the target.
if grep " W " <<<"$symbols" | grep -vE "::${target}::| __clang_call_terminate$"; then
  echo "These leak. Kernels call no std:: function, and what their headers define is always_inline: see"
  echo "base/bit_functions.h and the rules in docs/design/kernels.md."
  exit 1
fi
echo "$# files of kernels for $target: nothing leaks"
