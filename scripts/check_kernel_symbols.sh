#!/usr/bin/env bash
# Looks for inline functions and templates that leaked out of object files compiled for another instruction set. Of
# equal ones the linker keeps any, for the whole program: on a CPU without these instructions it could be this one.
#
#   scripts/check_kernel_symbols.sh TARGET OBJECT...     exit status 1 if there is one
set -euo pipefail

target="$1"
shift
for object; do
  symbols="$(nm --demangle --defined-only "$object")"
  if ! grep -q "::${target}::" <<<"$symbols"; then
    echo "$object has nothing in the namespace $target: is it compiled with DELTAWIRE_TARGET=$target?"
    exit 1
  fi
  # W: a function that other files may have, too; in the target's own namespace nobody else has it.
  if grep " W " <<<"$symbols" | grep -v "::${target}::"; then
    echo "$object leaks these. Kernels call no std:: function, and what their headers define is always_inline:"
    echo "see base/bit_functions.h and the rules in docs/architecture.md."
    exit 1
  fi
done
echo "$# files of kernels for $target: nothing leaks"
