"""What a codec does to training, without a network: all ranks take turns in one process.

Each rank's gradient of each tensor goes through the codec alone (the pattern `gather`): with
--residual what was lost is added to the rank's next gradient. The mean of what was decoded is the
gradient of one SGD with momentum. Two figures for each codec: test accuracy after the last step,
and bits an element (file headers included).

usage: python -m lab.one_process fp32 fastsgd fastsgd:keep=10% --residual --lr 0.06
"""

import argparse
import sys
from pathlib import Path

import deltawire
import numpy as np
import torch

from lab.batches import Batches, scale
from lab.idx import DEBIAN_FASHION_MNIST, DataError, ImageSet, load_image_set
from lab.lenet import make_lenet

MIN_ELEMENTS = 256
TEST_CHUNK = 500


class Coder:
    """One rank's way through the codec, with its residuals."""

    def __init__(self, spec: str, with_residual: bool) -> None:
        self._spec = spec
        self._with_residual = with_residual
        self._residuals: dict[int, np.ndarray] = {}
        self.bits = 0
        self.elements = 0

    def through(self, index: int, gradient: np.ndarray) -> np.ndarray:
        """What the other ranks see of tensor number `index`."""
        sent = gradient + self._residuals.get(index, np.float32(0))
        data = deltawire.encode(sent, self._spec, min_elements=MIN_ELEMENTS)
        seen = deltawire.decode(data)
        if self._with_residual:
            self._residuals[index] = sent - seen
        self.bits += 8 * len(data)
        self.elements += gradient.size
        return seen


def accuracy(network: torch.nn.Module, images: ImageSet) -> float:
    """The share of the test images that is right."""
    pixels = torch.from_numpy(images.test_images.copy()).unsqueeze(1)
    labels = torch.from_numpy(images.test_labels.astype(np.int64))
    correct = 0
    with torch.inference_mode():
        for part, wanted in zip(pixels.split(TEST_CHUNK), labels.split(TEST_CHUNK), strict=True):
            correct += int((network(scale(part)).argmax(dim=1) == wanted).sum())
    return correct / len(labels)


def train(spec: str, images: ImageSet, given: argparse.Namespace) -> tuple[float, float]:
    """Test accuracy and bits an element; the accuracy is NaN where training diverged."""
    network = make_lenet(given.seed)
    optimizer = torch.optim.SGD(network.parameters(), lr=given.lr, momentum=given.momentum)
    ranks = range(given.ranks)
    coders = [Coder(spec, given.residual) for _ in ranks]
    batches = [
        Batches(images, seed=given.seed, batch=given.batch, place=(rank, given.ranks))
        for rank in ranks
    ]
    for step in range(given.steps):
        means = [np.zeros(p.shape, np.float32) for p in network.parameters()]
        for coder, own in zip(coders, batches, strict=True):
            network.zero_grad()
            pixels, labels = own.at(step)
            torch.nn.functional.cross_entropy(network(pixels), labels).backward()
            for index, parameter in enumerate(network.parameters()):
                gradient = parameter.grad.numpy()
                if not np.isfinite(gradient).all():
                    return float("nan"), coder.bits / coder.elements
                means[index] += coder.through(index, gradient) / given.ranks
        for parameter, mean in zip(network.parameters(), means, strict=True):
            parameter.grad = torch.from_numpy(mean)
        optimizer.step()
    bits = sum(coder.bits for coder in coders) / sum(coder.elements for coder in coders)
    return accuracy(network, images), bits


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="lab.one_process", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("specs", nargs="+", metavar="CODEC", help='e.g. "fastsgd:keep=10%%"')
    parser.add_argument("--residual", action="store_true", help="error feedback for all codecs")
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="images a step and rank")
    parser.add_argument("--lr", type=float, default=0.06)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=DEBIAN_FASHION_MNIST)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Trains once for each codec and prints a line for each."""
    given = parse(argv)
    try:
        images = load_image_set(given.data)
        if len(images.train_labels) < given.ranks * given.batch:
            raise DataError(
                f"{given.data}: {len(images.train_labels)} images are less than one step of "
                f"{given.ranks} ranks with {given.batch}; lower --ranks or --batch"
            )
        for spec in given.specs:
            right, bits = train(spec, images, given)
            print(f"{spec:32} {100 * right:6.1f} %  {bits:7.3f} bits", flush=True)
    except (DataError, deltawire.DeltawireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
