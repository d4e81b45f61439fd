"""Trainings by name and size: network, data, batches and optimizers."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lab.data import texts
from lab.data.batches import Batches
from lab.data.cifar import FOLDER, read_batch
from lab.data.idx import DEBIAN_FASHION_MNIST, load_image_set
from lab.data.images import data_folder
from lab.data.sparse_rows import load_sparse_rows
from lab.models.lenet import LeNet5
from lab.models.networks import CharacterTransformer, SparseLogisticRegression, WordLSTM
from lab.models.resnet import ResNet20

SIZES = ("full", "small", "large")  # large: with layers of common sizes, for measuring steps
_COLUMNS = 130_107  # of 20news


# Loaded once per process: some tables make a training for every row. Nothing writes to the images.
_image_set = functools.lru_cache(maxsize=1)(load_image_set)

Batch = tuple[tuple[torch.Tensor, ...], torch.Tensor]  # the network's arguments, and targets


@dataclasses.dataclass(frozen=True)
class Training:
    """A network and its batches.

    Attributes:
        words: a description, for the trace.
        network: newly initialized.
        batch_at: the network's arguments and the targets of a step, counted from 0.
        learning_rates: by optimizer, "sgd" and "adam".
        criterion: the loss of outputs, one or more for each target, and targets.
    """

    words: str
    network: nn.Module
    batch_at: Callable[[int], Batch]
    learning_rates: dict[str, float]
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy

    def loss_at(self, step: int, model: Callable[..., Any] | None = None) -> torch.Tensor:
        """The loss of a step's batch, by the network or a `model` that wraps it."""
        arguments, targets = self.batch_at(step)
        outputs = (model or self.network)(*arguments)
        return self.criterion(outputs.flatten(0, targets.dim() - 1), targets.flatten())


def make_training(name: str, size: str, seed: int) -> Training:
    """The training with that name, the same for the same size and seed. Raises DataError if its
    data is missing, KeyError for an unknown name."""
    torch.manual_seed(seed)
    return TRAININGS[name](size, seed)


def make_optimizer(training: Training, name: str) -> torch.optim.Optimizer:
    """SGD with momentum 0.9 by the name "sgd", Adam by "adam"; for sparse gradients SGD without
    momentum, which would be dense, and SparseAdam."""
    sparse = isinstance(training.network, SparseLogisticRegression)
    rate, parameters = training.learning_rates[name], training.network.parameters()
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=0.0 if sparse else 0.9)
    kind = torch.optim.SparseAdam if sparse else torch.optim.Adam
    return kind(list(parameters), lr=rate)


def _lenet5(size: str, seed: int) -> Training:
    hidden, batch = {"full": 500, "small": 32, "large": 500}[size], 64
    images = _image_set(DEBIAN_FASHION_MNIST)
    batches = Batches(images, seed=seed, batch=batch, place=(0, 1))
    network = LeNet5(hidden)

    def batch_at(step: int) -> Batch:
        pixels, labels = batches.at(step)
        return (pixels,), labels

    words = f"LeNet5 (Caffe's, {hidden} hidden units) on Fashion-MNIST, batches of {batch}"
    return Training(words, network, batch_at, {"sgd": 0.02, "adam": 0.001})


def _resnet20(size: str, seed: int) -> Training:
    width, batch = {"full": 16, "small": 8, "large": 16}[size], 32
    images, labels = read_batch(data_folder() / FOLDER / "data_batch_1.bin")
    labels = labels.astype(np.int64)
    deviations = np.array([0.247, 0.2435, 0.2616], np.float32).reshape(3, 1, 1)
    means = np.array([0.4914, 0.4822, 0.4465], np.float32).reshape(3, 1, 1)
    network, chance = ResNet20(width), np.random.default_rng(seed)

    def batch_at(step: int) -> Batch:
        chosen = chance.integers(0, len(labels), batch)
        pixels = (images[chosen].astype(np.float32) / 255 - means) / deviations
        mirrored = chance.random(batch) < 0.5
        pixels[mirrored] = pixels[mirrored, :, :, ::-1]
        return (torch.from_numpy(pixels),), torch.from_numpy(labels[chosen])

    words = f"ResNet-20 of width {width} on 10,000 images of CIFAR-10, batches of {batch}"
    return Training(words, network, batch_at, {"sgd": 0.05, "adam": 0.002})


def pieces_of(
    text: torch.Tensor, length: int, batch: int, seed: int, *, dim: int
) -> Callable[[int], Batch]:
    """`batch_at` of random pieces of a text: `length` tokens along `dim`, and what follows each."""
    chance = np.random.default_rng(seed)

    def batch_at(step: int) -> Batch:
        starts = chance.integers(0, len(text) - length - 1, batch)
        chosen = torch.stack([text[start : start + length + 1] for start in starts], dim=1 - dim)
        return (chosen.narrow(dim, 0, length),), chosen.narrow(dim, 1, length)

    return batch_at


def _lstm(size: str, seed: int) -> Training:
    sizes = {"full": (5000, 128, 128, 1), "small": (600, 24, 48, 1), "large": (10000, 200, 200, 2)}
    vocabulary, embedding, hidden, layers = sizes[size]
    batch, length = 16, 32
    words = torch.from_numpy(texts.read_words(data_folder(), vocabulary))
    network = WordLSTM(vocabulary, embedding, hidden, layers)
    depth = f", {layers} layers deep," if layers > 1 else ""
    text = (
        f"LSTM of {hidden} units{depth} on WikiText-2's validation text, {vocabulary} words, "
        f"batches of {batch} x {length}"
    )
    batch_at = pieces_of(words, length, batch, seed, dim=0)
    return Training(text, network, batch_at, {"sgd": 1.0, "adam": 0.004})


def _transformer(size: str, seed: int) -> Training:
    width, layers, batch = {"full": (128, 4, 16), "small": (40, 2, 16), "large": (384, 6, 4)}[size]
    length = 64
    characters, kinds = texts.read_characters(data_folder())
    network = CharacterTransformer(kinds, width, layers)
    words = (
        f"transformer of {layers} layers of width {width} on Shakespeare, character by character, "
        f"batches of {batch} x {length}"
    )
    batch_at = pieces_of(torch.from_numpy(characters), length, batch, seed, dim=1)
    rates = {"sgd": 0.1, "adam": 0.001 if size == "large" else 0.002}
    return Training(words, network, batch_at, rates)


def _logistic(size: str, seed: int) -> Training:
    batch = {"full": 256, "small": 32, "large": 256}[size]
    rows = load_sparse_rows(data_folder() / "libsvm" / "20news-bydate.train.libsvm")
    labels = torch.from_numpy((rows.labels > 0).astype(np.float32))  # the last ten groups are 1
    values = rows.values.astype(np.float32)
    network, chance = SparseLogisticRegression(_COLUMNS), np.random.default_rng(seed)

    def batch_at(step: int) -> Batch:
        chosen = chance.integers(0, len(labels), batch)
        ranges = [np.arange(rows.begin[row], rows.begin[row + 1]) for row in chosen]
        places = np.concatenate(ranges)
        starts = np.cumsum([0, *map(len, ranges[:-1])])
        row_arguments = (rows.columns[places], starts, values[places])
        return tuple(map(torch.from_numpy, row_arguments)), labels[chosen]

    words = (
        f"logistic regression on 20news, {_COLUMNS:,} words, the last ten groups against the "
        f"others, batches of {batch}"
    )
    criterion = functional.binary_cross_entropy_with_logits
    return Training(words, network, batch_at, {"sgd": 2.0, "adam": 0.05}, criterion)


TRAININGS: dict[str, Callable[[str, int], Training]] = {
    "lenet5": _lenet5,
    "resnet20": _resnet20,
    "lstm": _lstm,
    "transformer": _transformer,
    "logistic": _logistic,
}
OPTIMIZERS = ("sgd", "adam")
