"""Bits per key in codes that fastsgd could use for keys: the reason for keys=auto.

    python -m lab.papers.fastsgd.key_codes clicks laplace:0.01 rcv1.libsvm.xz --features 47236

Each input gives lists of keys. `clicks` is that of bench/coding: one element in a hundred, with
every hundredth gap 20 times as long. `laplace:SHARE` takes the largest of 2,000,000 values. A file
in LIBSVM's format gives the keys that `fastsgd:tau=TAU` sends for the gradients of key_bits.

The bits are those of gaps, without headers, in chunks of 16,384 keys, each with its best
parameters. The codes are: the paper's flags with l = 2 and with the best l of 1 ... 5; Rice codes;
Rice codes of blocks of 64 gaps, with 5 bits for a block's parameter; Rice codes whose parameter
adapts to previous gaps; Elias-Fano codes; interpolative codes; the shorter of these and the Rice
codes of equation 5 of SBC's paper, which is `keys=auto`; and the entropy of geometric gaps with the
chunk's density.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import deltawire
import numpy as np

from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.data.sparse_rows import load_sparse_rows
from lab.papers.fastsgd.key_bits import gradients

CHUNK = 16384
FLAG_BITS = (1, 2, 3, 4, 5)
MOST_RICE = 24
BLOCK = 64
BLOCK_BITS = 5  # for a block's parameter
GOLDEN = (math.sqrt(5) - 1) / 2


def widths(numbers: np.ndarray) -> np.ndarray:
    """The bit widths of whole numbers below 2^53; 0 for 0."""
    return np.frexp(numbers.astype(np.float64))[1]


def flags(gaps: np.ndarray, l: int) -> int:  # noqa: E741 (the paper's letter)
    """Bits of the paper's code: flags of l bits, and gaps of the lengths that they give (section
    3.3)."""
    bits = widths(gaps)
    longest = int(bits.max(initial=0))
    if longest == 0:
        return 0
    lengths = np.array([-(-(flag + 1) * longest // 2**l) for flag in range(2**l)])
    return gaps.size * l + int(lengths[np.searchsorted(lengths, bits)].sum())


def best_flags(gaps: np.ndarray) -> int:
    """Bits with the best l, which takes 3 bits."""
    return min(flags(gaps, l) for l in FLAG_BITS) + 3  # noqa: E741


def rice_of(gaps: np.ndarray, parameter: int) -> int:
    """Bits of Rice codes: ones, a zero, the low bits."""
    return gaps.size * (parameter + 1) + int((gaps >> parameter).sum())


def rice(gaps: np.ndarray) -> int:
    """Bits of Rice codes with the best parameter."""
    return min(rice_of(gaps, parameter) for parameter in range(MOST_RICE + 1))


def golomb(gaps: np.ndarray) -> int:
    """Bits of Rice codes with the mean gap's parameter (equation 5 of SBC's paper)."""
    density = gaps.size / (int(gaps.sum()) + gaps.size) if gaps.size else 1
    if density == 1:
        return gaps.size
    best = 1 + math.floor(math.log2(math.log(GOLDEN) / math.log1p(-density)))
    return rice_of(gaps, min(max(best, 0), MOST_RICE))


def rice_in_blocks(gaps: np.ndarray) -> int:
    """Bits of Rice codes with a parameter for each block."""
    blocks = [gaps[i : i + BLOCK] for i in range(0, gaps.size, BLOCK)]
    return sum(rice(block) + BLOCK_BITS for block in blocks)


def rice_adapted(gaps: np.ndarray) -> int:
    """Bits of Rice codes whose parameter follows a running mean over about 16 gaps."""
    total, bits = 16 * int(gaps.mean()) if gaps.size else 0, 0
    for gap in gaps.tolist():
        mean = total // 16
        parameter = (mean * 45 // 64 + 1).bit_length() - 1
        bits += 1 + parameter + min(gap >> parameter, 24 + 32)
        total += gap - mean
    return bits


def elias_fano(gaps: np.ndarray) -> int:
    """Bits of Elias-Fano codes: low bits unchanged, high bits as zeros between ones."""
    span = int(gaps.sum())
    return min(gaps.size * (low + 1) + (span >> low) for low in range(32))


def interpolative(gaps: np.ndarray) -> int:
    """Bits of interpolative codes: each key between its neighbours (sbc's spec, section 2.1), and
    32 bits for the last."""
    keys = np.concatenate([[0], np.cumsum(gaps + 1)])
    inner, bits = keys[1:-1], 32
    begin, end = np.array([0]), np.array([inner.size])
    low, high = keys[:1] + 1, keys[-1:] - 1
    while (some := begin < end).any():
        begin, end, low, high = begin[some], end[some], low[some], high[some]
        half = begin + (end - begin) // 2
        middle = inner[half]
        places = high - low + 1 - (end - begin - 1)
        short = widths(places) - 1
        shorter = (2 << short) - places
        turned = (middle - low - (half - begin) - (places - shorter) // 2) % places
        bits += int((short + (turned >= shorter)).sum())
        begin, end = np.concatenate([begin, half + 1]), np.concatenate([half, end])
        low, high = np.concatenate([low, middle + 1]), np.concatenate([middle - 1, high])
    return bits


def entropy(gaps: np.ndarray) -> float:
    """The least that any code can take on average, if gaps are geometric."""
    p = gaps.size / (int(gaps.sum()) + gaps.size) if gaps.size else 1
    return 0 if p == 1 else -gaps.size * (p * math.log2(p) + (1 - p) * math.log2(1 - p)) / p


CODES: dict[str, Callable[[np.ndarray], float]] = {
    "l = 2": lambda gaps: flags(gaps, 2),
    "best l": best_flags,
    "Rice": rice,
    "Rice, blocks": rice_in_blocks,
    "Rice, adapted": rice_adapted,
    "Elias-Fano": elias_fano,
    "interpolative": interpolative,
    "auto": lambda gaps: min(golomb(gaps), interpolative(gaps)),
    "entropy": entropy,
}


def bits_a_key(lists: list[np.ndarray]) -> tuple[int, dict[str, float]]:
    """The number of keys, and the bits that each of them takes in every code."""
    total, found = 0, dict.fromkeys(CODES, 0.0)
    for keys in lists:
        for begin in range(0, keys.size, CHUNK):
            chunk = keys[begin : begin + CHUNK].astype(np.int64)
            total += chunk.size
            if chunk.size > 1:
                gaps = np.diff(chunk) - 1
                found = {name: found[name] + code(gaps) for name, code in CODES.items()}
    return total, {name: bits / max(total, 1) for name, bits in found.items()}


def clicks(random: np.random.Generator) -> list[np.ndarray]:
    """Keys as bench/coding draws them."""
    gaps = np.floor(np.log1p(-random.random(65536)) / math.log1p(-0.01))
    gaps = np.where(random.random(65536) < 0.01, 20 * gaps, gaps)
    return [np.cumsum(gaps.astype(np.int64) + 1) - 1]


def largest(share: float, random: np.random.Generator) -> list[np.ndarray]:
    """The positions of the largest magnitudes of a Laplace tensor."""
    values = np.abs(random.laplace(size=2_000_000))
    return [np.flatnonzero(values >= np.quantile(values, 1 - share))]


def sent_keys(name: str, given: argparse.Namespace) -> Iterator[np.ndarray]:
    """The keys that fastsgd sends for the gradients of a file's rows."""
    rows = load_sparse_rows(Path(name), given.features)
    for gradient in itertools.islice(gradients(rows, given), given.gradients):
        coded = deltawire.encode(gradient, f"fastsgd:tau={given.tau}", min_elements=0)
        yield np.flatnonzero(deltawire.decode(coded))


def lists_of(name: str, given: argparse.Namespace) -> list[np.ndarray]:
    """An input's lists of keys."""
    random = np.random.default_rng(given.seed)
    if name == "clicks":
        return clicks(random)
    if name.startswith("laplace:"):
        return largest(float(name.removeprefix("laplace:")), random)
    return list(sent_keys(name, given))


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.fastsgd.key_codes", __doc__)
    parser.add_argument("inputs", nargs="+", help="clicks, laplace:SHARE, or files of rows")
    parser.add_argument("--features", type=int, default=0, help="at least, of files")
    parser.add_argument("--tau", default="128", help="fastsgd's threshold")
    parser.add_argument("--gradients", type=int, default=10, help="of a file, at most")
    parser.add_argument("--batch", type=float, default=0.1, help="share of the examples")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(ranks=1, epochs=5)
    return parser.parse_args(arguments)


def run(given: argparse.Namespace) -> None:
    """Prints a row for each input."""
    print(f"| bits a key | keys | {' | '.join(CODES)} |")
    print("|---" * (len(CODES) + 2) + "|")
    for name in given.inputs:
        keys, found = bits_a_key(lists_of(name, given))
        figures = " | ".join(f"{bits:.2f}" for bits in found.values())
        print(f"| {Path(name).name} | {keys:,} | {figures} |", flush=True)


main = main_of("lab.papers.fastsgd.key_codes", parse, run, DataError, ValueError)


if __name__ == "__main__":
    sys.exit(main())
