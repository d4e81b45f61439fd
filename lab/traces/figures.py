"""The bits of 3lc, sbc and gcomp for recorded gradients, compared with their papers.

    python -m lab.traces lenet5 --record 1-200 --out out/traces
    python -m lab.traces.figures out/traces/lenet5-sgd [MORE TRACES]

Each trace has one rank's gradients of consecutive steps. Each tensor of 256 values or more is
encoded in every step, with the residual of the step before (error feedback), like a rank's push.
The gradients are always the recorded ones, from a training without compression. Bits are those of
the payload, without headers and tables of the .dw files, which a frame shares among its tensors;
`deltawire inspect` shows how large they are.
- 3lc: bits per value, by s, the mean of all steps; then the same with mode=paper, which only has
the
  paper's two codings, for all steps and for their last quarter.
- sbc: bits per position of tensors with 100 positions per step or more, without headers. Then the
  expectation of eq. 5 of the paper; log2 C(n, k) / k, the entropy if all choices of k of n
  positions are equally likely; and the entropy of the actual gaps, each tensor's counted over all
  steps (with the Miller-Madow correction).
- gcomp: size relative to float32, cut by the recorded significance, and by 10 and 100 times as
much,
  as with a tenth and a hundredth of the learning rate; with levels=4, as recorded; and lossless.
- exponents: bits per value of the exponents: their entropy in each tensor, which is the least that
a
  code of single symbols can take (rANS is close to it), and the best Huffman code.
"""

import argparse
import collections
import functools
import heapq
import itertools
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import deltawire
import numpy as np
from deltawire import DeltawireError

from lab.command.paths import DELTAWIRE
from lab.command.program import main_of, make_parser

MULTIPLIERS = ("1.00", "1.50", "1.75", "1.90")
SHARES = (0.001, 0.01)
_MIN_ELEMENTS = 256
_HEADS = ("file header", "frame headers", "segment table")


@functools.cache
def head_bits(shape: tuple[int, ...], spec: str) -> int:
    """The bits of a .dw file of that shape besides the payload; they don't depend on the values."""
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    with tempfile.NamedTemporaryFile(suffix=".dw") as file:
        Path(file.name).write_bytes(deltawire.encode(values, spec))
        shown = subprocess.run(
            [DELTAWIRE, "inspect", "--json", file.name], check=True, capture_output=True, text=True
        ).stdout
    sections = {section["name"]: section["bits"] for section in json.loads(shown)["sections"]}
    return sum(sections[name] for name in _HEADS)


def gradients(trace: deltawire.Trace) -> Iterator[tuple[int, deltawire.TracedGradient]]:
    """(step, gradient) of all dense tensors of 256 values or more, step by step."""
    for step in trace:
        for gradient in step.gradients:
            if gradient is None or gradient.keys is not None:
                continue
            if gradient.values.size >= _MIN_ELEMENTS:
                yield step.number, gradient


class Push:
    """Sends gradients through a codec with error feedback, tensor by tensor."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._residuals: dict[str, np.ndarray] = {}

    def send(self, gradient: deltawire.TracedGradient) -> tuple[int, np.ndarray]:
        """(bits of the payload, decoded gradient)."""
        name = gradient.tensor.name
        values = gradient.values + self._residuals.get(name, np.float32(0))
        file = deltawire.encode(values, self._spec)
        arrived = deltawire.decode(file)
        self._residuals[name] = values - arrived
        return 8 * len(file) - head_bits(values.shape, self._spec), arrived


def bits_a_value(trace: deltawire.Trace, spec: str) -> tuple[float, float]:
    """Bits per value (over all steps, over their last quarter) of a codec with error feedback."""
    push = Push(spec)
    bits, counts = collections.Counter(), collections.Counter()
    for number, gradient in gradients(trace):
        bits[number] += push.send(gradient)[0]
        counts[number] += gradient.values.size
    late = list(counts)[len(counts) * 3 // 4 :]
    return bits.total() / counts.total(), sum(bits[n] for n in late) / sum(counts[n] for n in late)


def position_bits(trace: deltawire.Trace, share: float) -> tuple[float, ...] | None:
    """(bits per position, those of eq. 5, log2 C(n, k) / k, the entropy of gaps), each over all
    positions; None if no tensor has 100 positions."""
    push = Push(f"sbc:p={share}")
    gaps: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    bits = golomb = choices = 0.0
    positions = 0
    for _, gradient in gradients(trace):
        count = gradient.values.size
        if share * count < 100:
            continue
        sent, arrived = push.send(gradient)
        chosen = np.flatnonzero(arrived)
        k = len(chosen)
        if k == 0:
            continue
        gaps[gradient.tensor.name].update(np.diff(chosen).tolist())
        bits += sent
        golomb += k * golomb_bits(k / count)
        choices += choices_bits(count, k)
        positions += k
    if not positions:
        return None
    gap_count = sum(each.total() for each in gaps.values())
    of_gaps = sum(each.total() * entropy_bits(each) for each in gaps.values()) / gap_count
    return bits / positions, golomb / positions, choices / positions, of_gaps


def entropy_bits(counts: collections.Counter) -> float:
    """The entropy of the counted distribution, in bits, corrected for the bias of small counts."""
    total = counts.total()
    shares = np.array(list(counts.values())) / total
    return float(-(shares * np.log2(shares)).sum()) + (len(counts) - 1) / (2 * total * math.log(2))


def golomb_bits(p: float) -> float:
    """Sattler et al., eq. 5."""
    golden = (math.sqrt(5) + 1) / 2
    b = max(0, 1 + math.floor(math.log2(math.log(golden - 1) / math.log1p(-p))))
    return b + 1 / (1 - (1 - p) ** (2**b))


def choices_bits(n: int, k: int) -> float:
    """log2 of the number of ways to choose k of n."""
    natural = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return natural / math.log(2)


def gcomp_share(trace: deltawire.Trace, spec: str, times: float = 1.0) -> float | None:
    """Size relative to float32, cut by `times` the significance; None if it was not recorded."""
    bits = count = 0
    cuts = deltawire.uses_significance(spec)
    for _, gradient in gradients(trace):
        significance = None
        if cuts:
            if gradient.significance is None:
                return None
            significance = gradient.significance * np.float32(times)
        file = deltawire.encode(gradient.values, spec, significance=significance)
        bits += 8 * len(file) - head_bits(gradient.values.shape, spec)
        count += gradient.values.size
    return bits / (32 * count)


def exponent_bits(trace: deltawire.Trace) -> tuple[float, float] | None:
    """(entropy, best Huffman code) of each tensor's exponents, in bits per value; None without
    dense tensors."""
    least = huffman = 0.0
    values = 0
    for _, gradient in gradients(trace):
        bits = np.ascontiguousarray(gradient.values).view(np.uint32)
        counts = collections.Counter(((bits >> 23) & 0xFF).ravel().tolist())
        total = counts.total()
        least -= sum(count * math.log2(count / total) for count in counts.values())
        huffman += huffman_bits(counts)
        values += total
    return (least / values, huffman / values) if values else None


def huffman_bits(counts: collections.Counter) -> int:
    """The total bits of the counted symbols in the best prefix code: each merge of the two rarest
    trees adds a bit to every symbol in them. A single symbol takes none."""
    trees = list(counts.values())
    heapq.heapify(trees)
    bits = 0
    while len(trees) > 1:
        joined = heapq.heappop(trees) + heapq.heappop(trees)
        bits += joined
        heapq.heappush(trees, joined)
    return bits


def row(trace: deltawire.Trace) -> dict[str, str]:
    """A trace's cells, by column title."""
    cells = {"trace": trace.folder.name}
    for s in MULTIPLIERS:
        auto, _ = bits_a_value(trace, f"3lc:s={s}")
        paper, late = bits_a_value(trace, f"3lc:s={s},mode=paper")
        cells[f"3lc {s}"] = f"{auto:.3f} / {paper:.3f} / {late:.3f}"
    for share in SHARES:
        found = position_bits(trace, share)
        cells[f"sbc {share:.1%}"] = "-" if found is None else " / ".join(f"{x:.2f}" for x in found)
    cut = [gcomp_share(trace, "gcomp", times) for times in (1, 10, 100)]
    others = [gcomp_share(trace, spec) for spec in ("gcomp:levels=4", "gcomp:lossless=on")]
    shown = ["-" if share is None else f"{share:.1%}" for share in (*cut, *others)]
    cells["gcomp"] = " / ".join(shown[:3])
    cells["levels=4"], cells["lossless"] = shown[3:]
    found = exponent_bits(trace)
    cells["exponents"] = "-" if found is None else " / ".join(f"{x:.3f}" for x in found)
    return cells


def run(given: argparse.Namespace) -> None:
    """Prints the table, a line for each trace."""
    for i, folder in enumerate(given.traces):
        trace = deltawire.read_trace(folder)
        if any(b - a != 1 for a, b in itertools.pairwise(trace.step_numbers)):
            print(f"{folder}: its steps are not all in a row: what waits in residuals is less")
        cells = row(trace)
        if i == 0:
            print(f"| {' | '.join(cells)} |\n|{'---|' * len(cells)}")
        print(f"| {' | '.join(cells.values())} |", flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.traces.figures", __doc__.split("\n\n")[0])
    parser.add_argument("traces", nargs="+", type=Path, help="folders of consecutive steps")
    return parser.parse_args(arguments)


main = main_of("lab.traces.figures", parse, run, DeltawireError)


if __name__ == "__main__":
    sys.exit(main())
