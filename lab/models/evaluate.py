"""Accuracy on held-out images, in one process or divided among ranks with equal replicas."""

import torch
import torch.distributed as dist

from lab.data.batches import scale
from lab.data.images import ImageSet

_CHUNK = 500


class Evaluator:
    """A rank's part of the test set."""

    def __init__(self, images: ImageSet, rank: int = 0, world_size: int = 1) -> None:
        self._images = torch.from_numpy(images.test_images.copy())
        self._labels = torch.from_numpy(images.test_labels.astype("int64"))
        self._rank = rank
        self._world_size = world_size

    def accuracy(self, network: torch.nn.Module, image_count: int | None = None) -> float:
        """The fraction of the first `image_count` test images (default: all) that are classified
        correctly, 0 ... 1. A collective if there are several ranks.
        """
        count = min(image_count or len(self._labels), len(self._labels))
        start, end = (rank * count // self._world_size for rank in (self._rank, self._rank + 1))
        own = slice(start, end)
        correct = torch.zeros(1, dtype=torch.int64)
        network.eval()
        with torch.inference_mode():
            for pixels, labels in zip(
                self._images[own].split(_CHUNK), self._labels[own].split(_CHUNK), strict=True
            ):
                logits = network(scale(pixels))
                correct += (logits.argmax(dim=1) == labels).sum()
        network.train()
        if self._world_size > 1:
            dist.all_reduce(correct)
        return correct.item() / count
