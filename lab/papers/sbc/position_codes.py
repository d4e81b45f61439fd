"""Bits per position of the largest elements of real gradients, in both codes.

    python -m lab.papers.sbc.position_codes [--share 0.01] [--ranks 4] [--no-feedback]

One process trains LeNet5 on Fashion-MNIST with topk and error feedback, with a residual for every
rank (--no-feedback: with whole gradients). At some of the steps the positions of the largest
tensor's elements are encoded with positions=golomb and positions=auto. Bits per position are those
of the chunk, headers included, without values and the file's header. They are compared with the
expectation of equation 5 of SBC's paper for random positions. Runs are deterministic.
"""

import argparse
import math
import sys

import deltawire
import numpy as np
import torch

from lab.command.program import main_of, make_parser
from lab.data.idx import load_image_set
from lab.data.images import DataError, ImageSet
from lab.models.lenet import make_lenet
from lab.ranks.simulated import SimulatedRanks, add_options, image_losses

MARKS = (50, 100, 150, 200)
LEAST_ELEMENTS = 256  # smaller tensors are not compressed
CODES = ("golomb", "auto")


def expected_bits(share: float) -> float:
    """The bits of one random position in the paper's code."""
    golden = math.log((math.sqrt(5) - 1) / 2)
    b = 1 + math.floor(math.log2(golden / math.log(1 - share)))
    return b + 1 / (1 - (1 - share) ** 2**b)


def position_bits(values: np.ndarray, share: float, code: str) -> float:
    """The bits per position, as topk sends them."""
    spec = f"topk:k={share},values=int8,positions={code}"
    file = deltawire.encode(values, spec)
    header = len(deltawire.encode(np.zeros_like(values), spec)) - 3  # of an empty chunk
    sent = max(1, math.floor(share * values.size + 0.5))
    return 8 * (len(file) - header - sent) / sent


def sent_of(values: torch.Tensor, share: float) -> torch.Tensor:
    """The values that topk sends."""
    file = deltawire.encode(values.numpy(), f"topk:k={share}")
    return torch.from_numpy(deltawire.decode(file))


def measure(images: ImageSet, given: argparse.Namespace) -> list[tuple[int, list[float]]]:
    """Trains; returns the marked steps' bits per position, by code, as the mean over ranks."""
    network = make_lenet(given.seed)
    parameters = list(network.parameters())
    optimizer = torch.optim.SGD(parameters, lr=given.lr, momentum=given.momentum)
    simulated = SimulatedRanks(network, image_losses(network, images, given))
    residuals = [[torch.zeros_like(p) for p in parameters] for _ in range(given.ranks)]
    largest = max(range(len(parameters)), key=lambda i: parameters[i].numel())
    rows = []
    for step in range(given.steps):
        sums = [torch.zeros_like(p) for p in parameters]
        bits = []
        for residual, gradients in zip(residuals, simulated.gradients(step), strict=True):
            for i, gradient in enumerate(gradients):
                x = gradient + residual[i] if given.feedback else gradient
                if i == largest and step in MARKS:
                    bits.append([position_bits(x.numpy(), given.share, code) for code in CODES])
                if given.feedback and x.numel() >= LEAST_ELEMENTS:
                    sent = sent_of(x, given.share)
                    residual[i] = x - sent
                    x = sent
                sums[i] += x
        for parameter, total in zip(parameters, sums, strict=True):
            parameter.grad = total / given.ranks
        optimizer.step()
        if bits:
            rows.append((step, np.mean(bits, axis=0).tolist()))
    return rows


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.sbc.position_codes", __doc__.split("\n\n")[0])
    add_options(parser, batch=64)
    parser.add_argument("--share", type=float, default=0.01, help="of the elements that is sent")
    parser.add_argument("--no-feedback", dest="feedback", action="store_false")
    parser.set_defaults(lr=0.02)
    return parser.parse_args(arguments)


def run(given: argparse.Namespace) -> None:
    """Prints a line for each marked step."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rows = measure(load_image_set(given.data), given)
    expected = expected_bits(given.share)
    print(f"expected of random positions: {expected:.2f} bits")
    for step, (golomb, auto) in rows:
        gain = 100 * (auto / expected - 1)
        print(f"step {step}: golomb {golomb:.2f}, auto {auto:.2f} bits, {gain:+.1f} %")


main = main_of("lab.papers.sbc.position_codes", parse, run, DataError)


if __name__ == "__main__":
    sys.exit(main())
