#!/usr/bin/env python3
"""Compiles every kernel of the codecs' twins for GPUs that need not be here, and searches the code
for what would change bits: contracted products, approximate functions, subnormals taken as zeros.

usage: scripts/compile_twins.py [TARGET ...]     targets: sm_80 sm_90 sm_100 gfx942
exit status 1 if a kernel does not compile or has such an instruction.
"""

import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
os.environ["TRITON_INTERPRET"] = "0"
ROOT = Path(__file__).resolve().parents[1]
GPU = ROOT / "python/deltawire/torch/gpu"

import triton  # noqa: E402
from deltawire.torch.gpu.kernels import (  # noqa: E402
    blocks,
    candidates,
    chunks,
    int8,
    narrow_floats,
    part_tables,
    positions,
    sent_values,
    threelc_parts,
)
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
# Types of arguments: float32, int32, int64, float64, bytes; f and i are numbers.
TYPES = {"F": "*fp32", "I": "*i32", "L": "*i64", "D": "*fp64", "B": "*u8", "C": "*i8", "S": "*i16"}
TYPES |= {"f": "fp32", "i": "i32"}
TWO = {"SIDES": 2, "BLOCK": 512}
ADD = {"ADD": True, "BLOCK": 2048}
EIGHT_BITS = {"CODE": "int8", "HEAD": 4, "BITS": 8, "BLOCK": 256, "ROWS": 8}
FOUR_BITS = {"CODE": "int4", "HEAD": 4, "BITS": 4, "BLOCK": 64, "ROWS": 32}
FLOATS = {"CODE": "e4m3", "HEAD": 1, "BITS": 8, "BLOCK": 32, "ROWS": 64}
HALF_BYTES = {"CODE": "e3m0", "HEAD": 1, "BITS": 4, "BLOCK": 32, "ROWS": 64}
PARTS = {"SCALED": True, "BLOCK": 2048}
OF_PARTS = {"KIND": "float32", "SCALED": True}
LISTING_PARTS = OF_PARTS | {"SIDES": 2, "TILES": 8, "BLOCK": 2048}
VALUES = {"VALUE_BITS": 8, "BLOCK": 1024}
MANY_ROWS = OF_PARTS | {"ROWS": 8}
KERNELS = [
    (chunks.copy_chunk, "BILBi", {"BYTES": 2048}, 8),
    (chunks.crc32c, "BLIIII", {"LANES": 512}, 8),
    (part_tables.look, "LII", PARTS | {"KIND": "float32", "TILES": 8}, 8),
    (part_tables.look, "LII", PARTS | {"KIND": "bfloat16", "SCALED": False, "TILES": 8}, 8),
    (part_tables.look, "LII", PARTS | {"KIND": "float16", "TILES": 8}, 8),
    (threelc_parts.quantize_parts, "LIIBIf", MANY_ROWS | {"COUNTS": True}, 4),
    (threelc_parts.quantize_parts, "LIIBIf", MANY_ROWS | {"COUNTS": False}, 4),
    (threelc_parts.write_parts_runs, "LIBBLI", {"RUNS": True, "BLOCK": 1024}, 8),
    (threelc_parts.list_parts_positions, "LIBLILI", {"ROWS": 8}, 8),
    (threelc_parts.write_parts_positions, "LIILLIBLI", {"BLOCK": 512}, 8),
    (threelc_parts.copy_parts_positions, "IBLI", {"BLOCK": 1024}, 8),
    (threelc_parts.expand_parts_runs, "LILBBI", {"BLOCK": 1024}, 8),
    (threelc_parts.expand_parts_positions, "LILBII", {}, 1),
    (threelc_parts.write_parts_values, "LIBIf", {"ADD": True, "ROWS": 8}, 4),
    (int8.encode_parts, "LIIC", PARTS | {"KIND": "float32"}, 8),
    (int8.encode_parts, "LIIC", PARTS | {"KIND": "bfloat16", "SCALED": False}, 8),
    (int8.decode_parts, "LICIf", ADD, 8),
    (narrow_floats.encode_parts, "LIII", PARTS | {"KIND": "float32", "CODE": "fp32"}, 8),
    (narrow_floats.encode_parts, "LIIS", PARTS | {"KIND": "float32", "CODE": "bf16"}, 8),
    (narrow_floats.encode_parts, "LIIS", PARTS | {"KIND": "float16", "CODE": "fp16"}, 8),
    (narrow_floats.decode_parts, "LIIIf", ADD | {"SCALED": True, "CODE": "fp32"}, 8),
    (narrow_floats.decode_parts, "LISIf", ADD | {"SCALED": True, "CODE": "bf16"}, 8),
    (narrow_floats.decode_parts, "LISIf", ADD | {"SCALED": False, "CODE": "fp16"}, 8),
    (blocks.encode_parts, "LIIB", EIGHT_BITS | OF_PARTS, 8),
    (blocks.encode_parts, "LIIB", FOUR_BITS | OF_PARTS, 8),
    (blocks.encode_parts, "LIIB", FLOATS | OF_PARTS, 8),
    (blocks.encode_parts, "LIIB", HALF_BYTES | OF_PARTS | {"KIND": "float16"}, 8),
    (blocks.decode_parts, "LIBIf", EIGHT_BITS | {"ADD": True}, 8),
    (blocks.decode_parts, "LIBIf", FOUR_BITS | {"ADD": True}, 8),
    (blocks.decode_parts, "LIBIf", FLOATS | {"ADD": True}, 8),
    (blocks.decode_parts, "LIBIf", HALF_BYTES | {"ADD": True}, 8),
    (candidates.guess_parts_least, "LILI", OF_PARTS | {"SIDES": 2, "LOG_SAMPLE": 14}, 16),
    (candidates.list_parts_candidates, "LILIIII", LISTING_PARTS | {"AGAIN": False}, 8),
    (candidates.list_parts_candidates, "LILIIII", LISTING_PARTS | {"AGAIN": True}, 8),
    (candidates.count_parts_digits, "IIIIIi", TWO | {"SHIFT": 24}, 4),
    (candidates.count_parts_digits, "IIIIIi", TWO | {"SHIFT": 8}, 4),
    (candidates.choose_parts_bin, "ILII", {"FIRST": True, "SIDES": 2}, 4),
    (candidates.count_parts_chosen, "IIIIIi", TWO, 4),
    (candidates.list_parts_chosen, "ILIIIILIIi", TWO, 4),
    (positions.encode_parts_positions, "ILIILILIi", {"ROWS": 128, "LANES": 8}, 8),
    (sent_values.append_parts_values, "LILIIIIBLI", VALUES, 8),
    (sent_values.sum_parts_sides, "ILIID", {}, 2),
    (sent_values.choose_parts_side, "ILIDIIi", {}, 1),
    (sent_values.take_parts_mean, "LILIIII", {"BLOCK": 4096}, 8),
    (positions.decode_parts_gaps, "LILBLII", {"VALUE_BITS": 8}, 1),
    (positions.sum_parts_gaps, "LILILI", {"BLOCK": 1024}, 8),
    (positions.check_parts_order, "LILILI", {"SCALAR": 2}, 1),
    (sent_values.check_parts_values, "LILBII", VALUES, 8),
    (sent_values.clear_parts, "LI", {"BLOCK": 2048}, 8),
    (sent_values.scatter_parts, "LILBLIIf", VALUES | {"ADD": True}, 8),
]
# Kernels that divide. Approximate quotients of float32 are corrected by exact comparisons; those of
# float64 and of whole numbers are exact, as square roots of float64 are, though GPUs of AMD compute
# them by fused steps.
DIVIDES = {
    int8.encode_parts,
    blocks.encode_parts,
    sent_values.append_parts_values,
    sent_values.choose_parts_side,
    threelc_parts.expand_parts_positions,
}
# Kernels that add a residual to float16 values. GPUs of AMD widen these within a fused step, as
# fma(x, 1, r), which is rounded once, as the sum is.
WIDENS = {part_tables.look, int8.encode_parts, narrow_floats.encode_parts, blocks.encode_parts}
OF_WIDENING = r"v_fma_mix_f32"
CHANGES_BITS = {
    "cuda": r"\bfma\.\w+\.f\d+|\bmad\.\w*\.?f\d+|[\w.]+\.approx[\w.]*|div\.full\.f32"
    r"|[\w.]+\.ftz[\w.]*",
    "hip": r"v_(?:pk_)?(?:fma|fmac|mac|mad)\w*_f(?:32|64)|v_rcp\w*_f\d+|v_rsq\w*|v_exp_f32"
    r"|v_log_f32|denorm_mode_32 [012]",
}
OF_DIVISION = {"cuda": r"div\.full\.f32", "hip": r"v_fma\w*_f\d+|v_rcp\w*_f\d+|v_rsq_f64\w*"}


def found_in(kernel, types, constants, warps, target):
    """What an optimized kernel's code has that may change bits."""
    names = kernel.arg_names
    signature = dict(zip(names, (TYPES[each] for each in types), strict=False))
    signature |= dict.fromkeys(constants, "constexpr")
    positions = {(names.index(name),): value for name, value in constants.items()}
    aligned = {(i,): [["tt.divisibility", 16]] for i, each in enumerate(types) if each.isupper()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=positions, attrs=aligned)
    options = {"enable_fp_fusion": False, "num_warps": warps}
    built = triton.compile(source, target=target, options=options)
    text = built.asm["ptx" if target.backend == "cuda" else "amdgcn"]
    found = set(re.findall(CHANGES_BITS[target.backend], text))
    if kernel in DIVIDES:
        allowed = re.compile(OF_DIVISION[target.backend])
        found = {each for each in found if not allowed.fullmatch(each)}
    if kernel in WIDENS and constants.get("KIND") == "float16":
        found = {each for each in found if not re.fullmatch(OF_WIDENING, each)}
    return found


def main(names):
    """Prints a line for each kernel that is wrong, and one for each target."""
    sources = "".join(path.read_text() for path in GPU.rglob("*.py"))
    launched = set(re.findall(r"\blaunch\(\s*(?:\w+\.)*(\w+),", sources)) - {"kernel"}
    not_listed = sorted(launched - {kernel.__name__ for kernel, *_ in KERNELS})
    wrong = [f"{name}: no row in KERNELS" for name in not_listed]
    for name in names or TARGETS:
        for kernel, types, constants, warps in KERNELS:
            try:
                found = found_in(kernel, types, constants, warps, TARGETS[name])
            except Exception as error:  # any failure of the compiler is a finding
                wrong.append(f"{name} {kernel.__name__}: {type(error).__name__}: {error}")
                continue
            if found:
                wrong.append(f"{name} {kernel.__name__}: {', '.join(sorted(found))}")
        print(f"{name}: {len(KERNELS)} kernels", flush=True)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
