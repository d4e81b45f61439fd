"""The golden files: which inputs, encoded how. Inputs are made by integer arithmetic alone, so that
they are the same on every machine and under every version of NumPy."""

import functools
import json
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

GOLDEN_SEED = 12345


@functools.cache  # a hundred thousand steps of Python, for inputs that many cases have
def whole_numbers(count: int, seed: int = GOLDEN_SEED) -> np.ndarray:
    """`count` 31-bit numbers of a linear congruential generator, as int64; not to be written to."""
    values = np.empty(count, np.int64)
    state = seed
    for i in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        values[i] = state
    values.flags.writeable = False
    return values


def bell(count: int) -> np.ndarray:
    """Roughly normal float32 values: sums of four uniform numbers, cubed spread in the tails."""
    sums = whole_numbers(4 * count).reshape(count, 4).sum(axis=1)
    return ((sums - 2**32) / 2**30).astype(np.float32)


def sparse(count: int, every: int) -> np.ndarray:
    """Mostly zeros; about one value in `every` is +1 or -1."""
    numbers = whole_numbers(count) >> 8
    values = np.where(numbers % 2 == 0, 1.0, -1.0)
    return np.where((numbers // 2) % every == 0, values, 0.0).astype(np.float32)


def edge_values() -> np.ndarray:
    """Zeros of both signs, subnormals, the smallest and largest magnitudes that 3LC takes."""
    bits = [
        0,
        1 << 31,
        1,
        (1 << 31) | 1,
        0x007FFFFF,
        0x00800000,
        0x3F800000,
        0xBF800000,
        0x7E000000,
        0xFE000000,
    ]
    return np.array([struct.unpack("<f", struct.pack("<I", b))[0] for b in bits], np.float32)


def not_finite() -> np.ndarray:
    """What only the codecs that carry NaN and Inf may see."""
    return np.array([1.0, np.nan, np.inf, -np.inf, -0.0, 3.0e38, 1e-45], np.float32)


def blocks() -> np.ndarray:
    """Three blocks of gcomp: values, zeros, and bits without a pattern, NaN among them."""
    noise = (whole_numbers(1000) << 1).astype(np.uint32).view(np.float32)
    return np.concatenate([bell(32768), np.zeros(32768, np.float32), noise])


def tiny_among_normal() -> np.ndarray:
    """Normal numbers with subnormals, zeros of both signs, NaN and Inf among them."""
    bits = bell(3000).view(np.uint32)
    numbers = whole_numbers(3000) >> 8
    bits[::7] = numbers[::7] & 0x007FFFFF
    bits[1::7] = 0x80000000
    bits[2::49] = 0x7F800001 | (numbers[2::49] & 0x80000000)
    return bits.view(np.float32)


def halves() -> np.ndarray:
    """Float16: values, zeros of both signs, subnormals, large ones that none rounds to infinity."""
    edges = np.array([0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x7400, 0xF400], np.uint16)
    return np.concatenate([bell(300).astype(np.float16), edges.view(np.float16)])


def brains() -> np.ndarray:
    """Bfloat16, which NumPy knows as two bytes alone: values cut off, zeros of both signs."""
    cut = (bell(300).view(np.uint32) >> 16).astype("<u2")
    return np.concatenate([cut, np.array([0, 0x8000], "<u2")]).view("V2")


INPUTS = {
    "paper": lambda: np.array([0.3, 0.1, -0.4, 0, 0.2, -0.1, -0.1, -0.1, 0, 0.3], np.float32),
    "bell": lambda: bell(1000).reshape(10, 100),
    "zeros": lambda: np.zeros(50000, np.float32),
    "sparse": lambda: sparse(50000, 200),
    "edge": edge_values,
    "tiny": lambda: np.full(7, 1e-45, np.float32),
    "scalar": lambda: np.array(-2.5, np.float32),
    "empty": lambda: np.zeros((0, 3), np.float32),
    "not_finite": not_finite,
    "blocks": blocks,
    "tiny_among_normal": tiny_among_normal,
    "halves": halves,
    "brains": brains,
}

NOT_FINITE = ("not_finite", "blocks", "tiny_among_normal")
OF_16_BITS = ("halves", "brains")
WIDE = (
    "fp32",
    "gcomp",
)  # codecs that took more than 16 bits of such a value, in frames of version 1
OF_EXAMPLES = ("paper", "bell", "sparse", "edge", "not_finite", "tiny_among_normal")


@dataclass(frozen=True)
class Case:
    """A golden file: INPUTS[input], by a spec; arrays of fewer than min_elements are raw."""

    spec: str
    input: str
    min_elements: int = 0
    follows_library: bool = False  # the bytes are those of a library's version: only values count
    part_elements: int = 0  # cut into parts of so many
    frames: int = 1  # their version
    superseded: bool = False  # read as ever, but encoders write frames of a later version now

    @property
    def stem(self) -> str:
        """The name of its files."""
        spec = self.spec.replace(":", "_").replace(",", "_").replace("=", "-")
        cut = f".parts{self.part_elements}" if self.part_elements else ""
        frames = f".frames{self.frames}" if self.frames > 1 else ""
        return f"{spec}.{self.input}.min{self.min_elements}{cut}{frames}"


def cases(binary: str) -> Iterator[Case]:
    """Of every codec all inputs that it takes and a raw array; of its examples, some inputs."""
    listed = subprocess.run([binary, "codecs", "--json"], check=True, capture_output=True).stdout
    for codec in json.loads(listed)["codecs"]:
        follows = codec["bytes_follow_library"]
        taken = [name for name in INPUTS if name not in NOT_FINITE or not codec["finite_only"]]
        for name in taken:
            wide = name in OF_16_BITS and codec["name"] in WIDE
            yield Case(codec["name"], name, 0, follows, superseded=wide)
            if not wide:
                continue
            has_form = codec["name"] == "gcomp"  # of its own for 16 bits, since version 3
            yield Case(codec["name"], name, 0, follows, frames=2, superseded=has_form)
            if has_form:
                yield Case(codec["name"], name, 0, follows, frames=3)
                yield Case(f"{codec['name']}:lossless=on", name, 0, follows, frames=4)
        yield Case(codec["name"], "paper", 256, follows)
        yield Case(codec["name"], "bell", 256, follows, part_elements=300)  # the last part is raw
        for spec in codec["examples"]:
            of_examples = [name for name in taken if name in OF_EXAMPLES]
            yield from (Case(spec, name, 0, follows) for name in of_examples)
