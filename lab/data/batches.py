"""The images of each step. A counter shuffles them, so that any rank can compute any step's batch
without state.
"""

import numpy as np
import torch

from lab.data.images import ImageSet


def epoch_order(seed: int, epoch: int, count: int) -> np.ndarray:
    """A permutation of `count` that depends only on (seed, epoch)."""
    random = np.random.Philox(key=[seed, epoch])
    return np.argsort(random.random_raw(count), kind="stable")


class Batches:
    """A rank's part of every step's batch.

    All ranks together take `world_size * batch` images per step, in the epoch's order; a remainder
    at the end of an epoch that is too small for a step is skipped. The ranks' parts don't overlap.

    Thread rule: one thread.
    """

    def __init__(self, images: ImageSet, *, seed: int, batch: int, place: tuple[int, int]) -> None:
        self._images = torch.from_numpy(images.train_images.copy())
        self._labels = torch.from_numpy(images.train_labels.astype(np.int64))
        self._seed = seed
        self._batch = batch
        self._rank, self._world_size = place
        per_step = batch * self._world_size
        self.steps_per_epoch = len(self._labels) // per_step
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"a step takes {per_step} images ({self._world_size} ranks x batch {batch}), and "
                f"the training set has {len(self._labels)}; take a smaller batch or more images"
            )
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def at(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(float32 images of shape (batch, channels, height, width), int64 labels) of this rank for
        a step.
        """
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = epoch_order(self._seed, epoch, len(self._labels))
            self._epoch = epoch
        start = (step_in_epoch * self._world_size + self._rank) * self._batch
        chosen = torch.from_numpy(self._order[start : start + self._batch])
        return scale(self._images[chosen]), self._labels[chosen]


def scale(pixels: torch.Tensor) -> torch.Tensor:
    """uint8 pixels as float32 in 0 ... 1, as Caffe's LeNet takes them.

    (Centred to mean 0 they train faster at first, but some seeds diverge at useful learning rates.)
    """
    return pixels.float().div_(255.0)
