"""Simulated ranks: all ranks train one after another in a single process, without a network."""

import argparse
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from lab.data.batches import Batches
from lab.data.idx import DEBIAN_FASHION_MNIST
from lab.data.images import DataError, ImageSet


def add_options(parser: argparse.ArgumentParser, batch: int) -> None:
    """Adds the options of the training, with their defaults."""
    parser.add_argument("--steps", type=int, default=220, help="default 220")
    parser.add_argument("--ranks", type=int, default=4, help="default 4")
    parser.add_argument("--batch", type=int, default=batch, help="images a step and rank")
    parser.add_argument("--lr", type=float, default=0.06)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=DEBIAN_FASHION_MNIST, help="four idx files")


LossAt = Callable[[int], torch.Tensor]  # a rank's loss of a step, counted from 0


def image_losses(
    network: torch.nn.Module, images: ImageSet, given: argparse.Namespace
) -> list[LossAt]:
    """The losses of ranks which classify images; each rank has its own batches.

    Raises:
        DataError: there are too few images for one step.
    """

    def loss_of(batches: Batches, step: int) -> torch.Tensor:
        pixels, labels = batches.at(step)
        return cross_entropy(network(pixels), labels)

    try:
        return [
            functools.partial(
                loss_of,
                Batches(images, seed=given.seed, batch=given.batch, place=(rank, given.ranks)),
            )
            for rank in range(given.ranks)
        ]
    except ValueError as cause:
        raise DataError(f"{given.data}: {cause}") from cause


class SimulatedRanks:
    """Ranks that share one network in one process; each has its own losses. With `half`, losses are
    computed in bfloat16 where PyTorch's autocast does so; parameters and gradients are float32."""

    def __init__(
        self, network: torch.nn.Module, losses: Sequence[LossAt], *, half: bool = False
    ) -> None:
        self._network = network
        self._losses = losses
        self._half = half

    def gradients(self, step: int) -> Iterator[list[torch.Tensor]]:
        """The gradients of all parameters, for one rank after the other."""
        for loss_at in self._losses:
            self._network.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
                loss = loss_at(step)
            loss.backward()
            yield [parameter.grad for parameter in self._network.parameters()]
