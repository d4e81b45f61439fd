"""How kernels are launched, and how large their blocks are."""

import functools

import torch
import triton

# Under Triton's interpreter every operation is a NumPy call, so a few large blocks are fastest.
INTERPRETED = triton.knobs.runtime.interpret
BLOCK = 1 << 16 if INTERPRETED else 2048  # elements of a program
WARPS = 8


def blocks(count: int, size: int) -> int:
    """How many blocks of `size` hold `count`."""
    return -(-count // size)


def launch(kernel, programs: int | tuple[int, ...], *arguments, warps: int = WARPS, **constants):
    """Runs a kernel without contraction of products and sums, which would change bits."""
    grid = programs if isinstance(programs, tuple) else (programs,)
    kernel[grid](*arguments, num_warps=warps, enable_fp_fusion=False, **constants)


@functools.cache
def constant(numbers: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A table on the device, made once."""
    return torch.tensor(numbers, dtype=dtype, device="cpu").to(device)
