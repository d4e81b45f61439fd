"""The effect of a codec on training, with all ranks simulated in one process, without a network.

Each rank's gradient of each tensor is encoded and decoded once (the pattern `gather`); with
--residual the loss is added to the rank's next gradient. The mean of the decoded gradients is used
by one optimizer, SGD with momentum or AdamW. It prints two figures for each codec: test accuracy
after the last step, and bits per element (file headers included).

usage: python -m lab.probes.single_process fp32 fastsgd fastsgd:keep=10% --residual --lr 0.06
"""

import argparse
import sys

import deltawire
import numpy as np
import torch

from lab.command.program import main_of, make_parser
from lab.data.idx import load_image_set
from lab.data.images import DataError, ImageSet
from lab.models.evaluate import Evaluator
from lab.models.lenet import make_lenet
from lab.ranks.simulated import SimulatedRanks, add_options

MIN_ELEMENTS = 256


class Coder:
    """One rank's codec, with its residuals."""

    def __init__(self, spec: str, with_residual: bool) -> None:
        self._spec = spec
        self._with_residual = with_residual
        self._residuals: dict[int, np.ndarray] = {}
        self.bits = 0
        self.elements = 0

    def through(self, index: int, gradient: np.ndarray) -> np.ndarray:
        """The gradient of tensor number `index` as the other ranks decode it."""
        sent = gradient + self._residuals.get(index, np.float32(0))
        data = deltawire.encode(sent, self._spec, min_elements=MIN_ELEMENTS)
        seen = deltawire.decode(data)
        if self._with_residual:
            self._residuals[index] = sent - seen
        self.bits += 8 * len(data)
        self.elements += gradient.size
        return seen


def make_optimizer(network: torch.nn.Module, given: argparse.Namespace) -> torch.optim.Optimizer:
    """Of all ranks."""
    if given.optimizer == "adamw":
        return torch.optim.AdamW(network.parameters(), lr=given.lr, betas=tuple(given.betas))
    return torch.optim.SGD(network.parameters(), lr=given.lr, momentum=given.momentum)


def train(spec: str, images: ImageSet, given: argparse.Namespace) -> tuple[float, float]:
    """Test accuracy and bits per element; the accuracy is NaN if training diverged."""
    network = make_lenet(given.seed)
    optimizer = make_optimizer(network, given)
    coders = [Coder(spec, given.residual) for _ in range(given.ranks)]
    simulated = SimulatedRanks(network, images, given)
    for step in range(given.steps):
        means = [np.zeros(p.shape, np.float32) for p in network.parameters()]
        for coder, gradients in zip(coders, simulated.gradients(step), strict=True):
            for index, gradient in enumerate(gradients):
                if not gradient.isfinite().all():
                    return float("nan"), coder.bits / coder.elements
                means[index] += coder.through(index, gradient.numpy()) / given.ranks
        for parameter, mean in zip(network.parameters(), means, strict=True):
            parameter.grad = torch.from_numpy(mean)
        optimizer.step()
    bits = sum(coder.bits for coder in coders) / sum(coder.elements for coder in coders)
    return Evaluator(images).accuracy(network), bits


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.single_process", __doc__)
    parser.add_argument("specs", nargs="+", metavar="CODEC", help='e.g. "fastsgd:keep=10%%"')
    parser.add_argument("--residual", action="store_true", help="error feedback for all codecs")
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    parser.add_argument(
        "--betas", nargs=2, type=float, default=(0.9, 0.999), help="AdamW's; default 0.9 0.999"
    )
    add_options(parser, batch=32)
    return parser.parse_args(argv)


def run(given: argparse.Namespace) -> None:
    """Prints a line for each codec."""
    images = load_image_set(given.data)
    for spec in given.specs:
        right, bits = train(spec, images, given)
        print(f"{spec:32} {100 * right:6.1f} %  {bits:7.3f} bits", flush=True)


main = main_of("lab.probes.single_process", parse, run, DataError, deltawire.DeltawireError)


if __name__ == "__main__":
    sys.exit(main())
