"""Simulated ranks: all ranks train one after another in a single process, without a network."""

import argparse
from collections.abc import Iterator
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


class SimulatedRanks:
    """Ranks that share one network in one process; each has its own batches.

    Raises:
        DataError: there are too few images for one step.
    """

    def __init__(
        self, network: torch.nn.Module, images: ImageSet, given: argparse.Namespace
    ) -> None:
        self._network = network
        try:
            self._batches = [
                Batches(images, seed=given.seed, batch=given.batch, place=(rank, given.ranks))
                for rank in range(given.ranks)
            ]
        except ValueError as cause:
            raise DataError(f"{given.data}: {cause}") from cause

    def gradients(self, step: int) -> Iterator[list[torch.Tensor]]:
        """The gradients of all parameters, for one rank after the other."""
        for batches in self._batches:
            self._network.zero_grad()
            pixels, labels = batches.at(step)
            cross_entropy(self._network(pixels), labels).backward()
            yield [parameter.grad for parameter in self._network.parameters()]
