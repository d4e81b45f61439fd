"""The demo's networks and their images, by name. PyTorch is only imported when a network is made,
so that parsing a command line is fast."""

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lab.data import cifar, idx
from lab.data.images import ImageSet, data_folder

if TYPE_CHECKING:
    from torch import nn


@dataclasses.dataclass(frozen=True)
class Workload:
    """A network and its images.

    Attributes:
        label: in tables.
        words: in reports.
        parameters: of the network.
        learning_rates: by optimizer, tuned for fp32, with the demo's other settings.
        make_network: makes it with initial parameters that depend only on the seed.
        load_images: of a folder; raises DataError.
        default_data: the folder if none is given; raises DataError if there is none.
    """

    label: str
    words: str
    parameters: int
    learning_rates: dict[str, float]
    make_network: "Callable[[int], nn.Module]"
    load_images: Callable[[Path], ImageSet]
    default_data: Callable[[], Path]


def _maker(module: str, network: str) -> "Callable[[int], nn.Module]":
    def make(seed: int) -> "nn.Module":
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return getattr(importlib.import_module(module), network)()

    return make


WORKLOADS = {
    "lenet5": Workload(
        label="LeNet5",
        words="LeNet5 (Caffe's)",
        parameters=431_080,
        learning_rates={"sgd": 0.06, "adamw": 0.004},
        make_network=_maker("lab.models.lenet", "LeNet5"),
        load_images=idx.load_image_set,
        default_data=lambda: idx.DEBIAN_FASHION_MNIST,
    ),
    "resnet20": Workload(
        label="ResNet-20",
        words="ResNet-20 (of the paper's width, 16)",
        parameters=269_722,
        learning_rates={"sgd": 0.1, "adamw": 0.003},
        make_network=_maker("lab.models.resnet", "ResNet20"),
        load_images=cifar.load_cifar10,
        default_data=lambda: data_folder() / cifar.FOLDER,
    ),
}
