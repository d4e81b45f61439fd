#!/usr/bin/env bash
# The program deltawire of the preset aarch64, run by qemu-user: for tests that are given a program (DELTAWIRE_BIN).
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
exec qemu-aarch64 -L "$here/build/aarch64-sysroot" "$here/build/aarch64/deltawire" "$@"
