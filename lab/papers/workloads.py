"""The networks that one process trains for all workers of a paper: their data, a batch of each
worker, and a measure of quality."""

import dataclasses
import functools
from collections.abc import Callable

import deltawire
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lab.data import texts
from lab.data.cifar import FOLDER, load_cifar10
from lab.data.idx import DEBIAN_FASHION_MNIST, load_image_set
from lab.data.images import ImageSet, data_folder
from lab.models.lenet import LeNet5
from lab.models.networks import SentenceEncoder, WordLSTM
from lab.models.resnet import ResNet20

_MEANS = torch.tensor([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)
_DEVIATIONS = torch.tensor([0.247, 0.2435, 0.2616]).reshape(3, 1, 1)
_CHUNK = 500
_TOKENS = 10  # of a text are held out where one image is
_HIDDEN = {"charlstm": 200, "wordlstm": 200, "wordlstm100": 100}  # units of each of two layers
_VOCABULARY, _SENTENCE = 5000, 32  # words, and how many of a sentence
_LENGTH = 35  # of a line of text: the "medium" model of Zaremba et al.

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Workload:
    """A network and the examples of every worker.

    Attributes:
        network: newly made from the seed.
        draw: (worker, generator) to a batch of that worker's examples.
        loss: of outputs and targets.
        quality: of the network on held-out examples: accuracy in %, or perplexity.
        samples: how many examples each worker has.
    """

    network: nn.Module
    draw: Callable[[int, np.random.Generator], Batch]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    quality: Callable[[nn.Module], float]
    samples: int


def pushes_of(
    workload: Workload, spec: str, workers: int, seed: int
) -> Callable[[int], tuple[dict[str, np.ndarray], float, float]]:
    """What all workers send to a server in a step, each the sum of its gradients of so many
    batches: the means that it decodes, by name, the bytes of a push and the loss, both as means."""
    network, ranks = workload.network, range(workers)
    named = dict(network.named_parameters())
    channels = [deltawire.Channel(spec, rank=r, world_size=workers, seed=seed) for r in ranks]
    chance = [np.random.default_rng([seed, rank]) for rank in ranks]

    def push(batches: int) -> tuple[dict[str, np.ndarray], float, float]:
        means = {name: np.zeros_like(p.detach().numpy()) for name, p in named.items()}
        pushed = loss = 0.0
        for rank, channel in enumerate(channels):
            network.zero_grad()
            for _ in range(batches):
                inputs, targets = workload.draw(rank, chance[rank])
                error = workload.loss(network(inputs), targets)
                error.backward()
                loss += error.item() / workers / batches
            message = channel.encode({name: p.grad.numpy() for name, p in named.items()})
            channel.decode(message, means, scale=1 / workers)
            pushed += len(message) / workers
        return means, pushed, loss

    return push


def make_workload(
    name: str, *, workers: int, batch: int, seed: int, test: int, split: str = "iid"
) -> Workload:
    """A workload by name: "lenet5/fashion", "lenet5/mnist", "mlp/mnist", "resnet20/cifar10",
    "encoder/sst2", "charlstm/shakespeare", "wordlstm/ptb" or "wordlstm100/ptb".

    Args:
        test: how many test images quality is of; of a text, ten times as many characters or
            words; a tenth of the sentences at most.
        split: "iid", or "two": each worker has images of two classes only.

    Raises:
        DataError: its data is missing.
    """
    torch.manual_seed(seed)
    network_name, _, data = name.partition("/")
    if data == "sst2":
        return _sentences(workers, batch, test)
    if data in _IMAGES:
        image_set = _IMAGES[data]()
        network = _NETWORKS[network_name]()
        return _images(network, image_set, workers, batch, seed, test, split, data == "cifar10")
    train, held_out, kinds = _text(data)
    hidden = _HIDDEN[network_name]
    return _text_workload(WordLSTM(kinds, hidden, hidden, 2), train, held_out, workers, batch, test)


_IMAGES: dict[str, Callable[[], ImageSet]] = {
    "mnist": functools.cache(lambda: load_image_set(data_folder() / "mnist")),
    "fashion": functools.cache(lambda: load_image_set(DEBIAN_FASHION_MNIST)),
    "cifar10": functools.cache(lambda: load_cifar10(data_folder() / FOLDER)),
}


def _mlp() -> nn.Module:
    """FastSGD's section 4.4: 7 x 7 inputs and two layers of 100; MNIST's 10 classes behind."""
    return nn.Sequential(
        nn.AvgPool2d(4),
        nn.Flatten(),
        *(nn.Linear(49, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)),
    )


_NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "lenet5": LeNet5,
    "mlp": _mlp,
    "resnet20": ResNet20,
}


def shares(labels: np.ndarray, workers: int, split: str, seed: int) -> list[np.ndarray]:
    """Each worker's examples: equal random shares ("iid"), or two shards of the examples sorted by
    class ("two")."""
    draw = np.random.default_rng(seed)
    if split == "iid":
        return np.array_split(draw.permutation(len(labels)), workers)
    shards = np.array_split(np.argsort(labels, kind="stable"), 2 * workers)
    order = draw.permutation(len(shards))
    return [np.concatenate([shards[a], shards[b]]) for a, b in order.reshape(-1, 2)]


def _images(
    network: nn.Module,
    image_set: ImageSet,
    workers: int,
    batch: int,
    seed: int,
    test: int,
    split: str,
    colours: bool,
) -> Workload:
    images = torch.from_numpy(image_set.train_images.copy())
    labels = torch.from_numpy(image_set.train_labels.astype(np.int64))
    targets = torch.from_numpy(image_set.test_labels[:test].astype(np.int64))
    own = shares(image_set.train_labels, workers, split, seed)

    def scaled(pixels: torch.Tensor) -> torch.Tensor:
        values = pixels.float().div_(255)
        return (values - _MEANS) / _DEVIATIONS if colours else values

    def draw(worker: int, chance: np.random.Generator) -> Batch:
        chosen = chance.choice(own[worker], batch)
        pixels = scaled(images[chosen])
        if colours:
            pixels = _augmented(pixels, chance)
        return pixels, labels[chosen]

    unseen = scaled(torch.from_numpy(image_set.test_images[:test].copy()))
    quality = functools.partial(_accuracy, inputs=unseen, targets=targets)
    return Workload(network, draw, functional.cross_entropy, quality, len(own[0]))


def _accuracy(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """In %. The model is then in training."""
    model.eval()
    with torch.inference_mode():
        pieces = zip(inputs.split(_CHUNK), targets.split(_CHUNK), strict=True)
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in pieces)
    model.train()
    return 100 * correct / len(targets)


def _augmented(pixels: torch.Tensor, chance: np.random.Generator) -> torch.Tensor:
    """He et al.'s: padded by 4 and cropped, mirrored half the time (one crop for a batch)."""
    down, right = chance.integers(0, 9, 2)
    padded = functional.pad(pixels, (4, 4, 4, 4))[:, :, down : down + 32, right : right + 32]
    mirrored = torch.from_numpy(chance.random(len(pixels)) < 0.5)
    return torch.where(mirrored[:, None, None, None], padded.flip(3), padded)


@functools.lru_cache(maxsize=2)
def _text(data: str) -> tuple[torch.Tensor, torch.Tensor, int]:
    if data == "ptb":
        train, held_out, kinds = texts.read_ptb(data_folder())
        return torch.from_numpy(train), torch.from_numpy(held_out), kinds
    characters, kinds = texts.read_characters(data_folder())
    text = torch.from_numpy(characters)
    cut = len(text) - len(text) // 10
    return text[:cut], text[cut:], kinds


def _sentences(workers: int, batch: int, test: int) -> Workload:
    """Sentences of SST-2, each of one of two sentiments; all workers draw from all of them."""
    words, labels, kinds = texts.read_sentences(data_folder(), _VOCABULARY, _SENTENCE)
    held_out = min(test, len(words) // 10)
    inputs, targets = torch.from_numpy(words), torch.from_numpy(labels)
    network = SentenceEncoder(kinds, 128, 2, _SENTENCE)

    def draw(worker: int, chance: np.random.Generator) -> Batch:
        chosen = torch.from_numpy(chance.integers(held_out, len(words), batch))
        return inputs[chosen], targets[chosen]

    quality = functools.partial(_accuracy, inputs=inputs[:held_out], targets=targets[:held_out])
    samples = (len(words) - held_out) // workers
    return Workload(network, draw, functional.cross_entropy, quality, samples)


def _text_workload(
    network: nn.Module,
    train: torch.Tensor,
    held_out: torch.Tensor,
    workers: int,
    batch: int,
    test: int,
) -> Workload:
    """Each worker has one of `workers` equal pieces of the text."""
    length = len(train) // workers
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -0.05, 0.05)  # of the "medium" model

    def draw(worker: int, chance: np.random.Generator) -> Batch:
        starts = worker * length + chance.integers(0, length - _LENGTH - 1, batch)
        lines = torch.stack([train[start : start + _LENGTH + 1] for start in starts], dim=1)
        return lines[:-1], lines[1:]

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    count = min(_TOKENS * test, len(held_out) - 1) // _LENGTH
    inputs = held_out[: count * _LENGTH].view(count, _LENGTH).T
    targets = held_out[1 : count * _LENGTH + 1].view(count, _LENGTH).T

    def perplexity(model: nn.Module) -> float:
        with torch.inference_mode():
            pieces = zip(inputs.split(20, 1), targets.split(20, 1), strict=True)
            total = sum(loss(model(x), y).item() * y.numel() for x, y in pieces)
        return float(np.exp(min(total / targets.numel(), 50)))

    return Workload(network, draw, loss, perplexity, length)
