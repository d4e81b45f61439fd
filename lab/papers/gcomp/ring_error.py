"""The error of gcomp for real gradients that are summed around a ring, and its bits per element.

    python -m lab.papers.gcomp.ring_error [--lr 0.06] [--ranks 4] [--levels 8]

One process trains LeNet5 on Fashion-MNIST without compression. At some of the steps the ranks'
gradients are also summed around a ring: each partial sum of a tensor, divided by the number of
ranks, is encoded with its significance, decoded, and added to the next rank's gradient. Errors are
in units in the last place of the significance (codecs/gcomp/spec.md, section 6): of one encoding,
and of the final mean, which may be off by as many units as there are ranks. Only elements whose
significance allows every encoding to cut are counted. Bias is the mean error of magnitudes:
negative means towards zero. Bits are those of the .dw files, headers included, of all elements. The
last line says what would do if decoders knew the significance, so that no level need be sent.
Runs are deterministic: the same command gives the same numbers.
"""

import argparse
import dataclasses
import sys

import deltawire
import numpy as np
import torch
from deltawire.torch import significance_of

from lab.command.program import main_of, make_parser
from lab.data.idx import load_image_set
from lab.data.images import DataError, ImageSet
from lab.models.lenet import make_lenet
from lab.ranks.simulated import SimulatedRanks, add_options, image_losses

MARKS = (5, 20, 100, 200, 219)  # steps whose gradients are measured
SMALLEST = np.float32(2**-126)  # smaller values are flushed to zero
# Where the first level begins, relative to the power of two below a value, by the number of levels.
CUTS = {8: np.float32(2**2), 4: np.float32(2**5)}


@dataclasses.dataclass
class Errors:
    """The errors of some elements, in units in the last place of their significance."""

    count: int = 0
    largest: float = 0.0
    squares: float = 0.0
    drift: float = 0.0
    above_one: int = 0

    def add(self, moved: np.ndarray, exact: np.ndarray, significance: np.ndarray) -> None:
        """Counts the errors of `moved` against `exact`; no significance may be 0."""
        _, exponents = np.frexp(significance.astype(np.float64))
        units = np.ldexp(1.0, exponents - 24)
        errors = (np.abs(moved.astype(np.float64)) - np.abs(exact)) / units
        self.count += errors.size
        self.largest = max(self.largest, np.abs(errors).max(initial=0.0))
        self.squares += float(np.square(errors).sum())
        self.drift += float(errors.sum())
        self.above_one += int((np.abs(errors) > 1).sum())

    def line(self) -> str:
        """The figures in words."""
        count = max(self.count, 1)
        return (
            f"largest {self.largest:.3f}, root mean square {(self.squares / count) ** 0.5:.3f}, "
            f"bias {self.drift / count:+.4f}, above 1: {100 * self.above_one / count:.2f} %"
        )


def bits_without_levels(values: np.ndarray, significance: np.ndarray) -> float:
    """What decoders need that know the significance: the entropy of the exponents and, of signs and
    mantissas, exactly the bits that the bound of one encoding asks for. Tables are not counted."""
    bits = values.reshape(-1).view(np.uint32).astype(np.int64)
    exponents = bits >> 23 & 255
    seen = significance.reshape(-1).view(np.uint32).astype(np.int64) >> 23 & 255
    cut = np.where(exponents < 254, np.clip(seen - exponents + 1, 0, 23), 0)
    low = (1 << cut) - 1
    kept = (bits + (low >> 1) + (bits >> cut & low & 1)) & ~low
    kept[exponents == 0] = 0
    _, counts = np.unique(kept >> 23 & 255, return_counts=True)
    codes = -np.sum(counts * np.log2(counts / values.size))
    return float(codes + np.sum(np.where(kept != 0, 24 - cut, 0)))


@dataclasses.dataclass
class Ring:
    """The totals over all measured tensors."""

    encodings: Errors = dataclasses.field(default_factory=Errors)
    means: Errors = dataclasses.field(default_factory=Errors)
    bits: int = 0
    bits_without_levels: float = 0.0
    values: int = 0
    levels: int = 8

    def reduce(self, gradients: list[np.ndarray], significance: np.ndarray) -> np.ndarray:
        """The mean of one tensor, as the ring's last rank has it."""
        share = np.float32(1 / len(gradients))
        exact = sum(share * gradient.astype(np.float64) for gradient in gradients)
        summed = np.zeros_like(gradients[0])
        spec, first = f"gcomp:levels={self.levels}", CUTS[self.levels]
        steps, cut = [], np.abs(exact) >= SMALLEST
        for gradient in gradients:
            partial = summed + share * gradient
            file = deltawire.encode(partial, spec, significance=significance)
            summed = deltawire.decode(file)
            steps.append((summed, partial))
            _, exponents = np.frexp(partial)
            cut &= np.abs(partial) >= SMALLEST
            cut &= np.abs(significance) >= np.ldexp(first, exponents - 1)
            self.bits += 8 * len(file)
            self.bits_without_levels += bits_without_levels(partial, significance)
            self.values += partial.size
        for moved, partial in steps:
            self.encodings.add(moved[cut], partial[cut], significance[cut])
        self.means.add(summed[cut], exact[cut], significance[cut])
        return summed


def measure(images: ImageSet, given: argparse.Namespace) -> Ring:
    """Trains, and sums the gradients of the marked steps around the ring."""
    network = make_lenet(given.seed)
    parameters = list(network.parameters())
    optimizer = torch.optim.SGD(parameters, lr=given.lr, momentum=given.momentum)
    simulated = SimulatedRanks(network, image_losses(network, images, given))
    ring = Ring(levels=given.levels)
    for step in range(given.steps):
        for parameter, *shares in zip(parameters, *simulated.gradients(step), strict=True):
            if step in MARKS:
                seen = significance_of(optimizer, parameter).numpy()
                ring.reduce([share.numpy() for share in shares], seen)
            parameter.grad = sum(shares) / given.ranks
        optimizer.step()
    return ring


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.gcomp.ring_error", __doc__.split("\n\n")[0])
    add_options(parser, batch=64)
    parser.add_argument("--levels", type=int, default=8, choices=CUTS, help="of gcomp: 8 or 4")
    given = parser.parse_args(arguments)
    if given.steps <= MARKS[0] or given.ranks < 1 or given.batch < 1:
        parser.error(f"--steps must be above {MARKS[0]}, --ranks and --batch at least 1")
    return given


def run(given: argparse.Namespace) -> None:
    """Prints four lines."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ring = measure(load_image_set(given.data), given)
    print(f"one encoding:  {ring.encodings.line()}")
    print(f"mean of {given.ranks}:     {ring.means.line()}")
    for total, name in ((ring.bits, ""), (ring.bits_without_levels, " without levels")):
        bits = total / ring.values
        print(f"{bits:.3f} bits a value{name}, {32 / bits:.3f} times smaller")


main = main_of("lab.papers.gcomp.ring_error", parse, run, DataError)


if __name__ == "__main__":
    sys.exit(main())
