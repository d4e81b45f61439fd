"""CIFAR-10 in its binary version: records of a label's byte and 3 x 32 x 32 bytes of pixels."""

from pathlib import Path

import numpy as np

from lab.data.images import CLASS_COUNT, DataError, ImageSet, read_packed

FOLDER = "cifar-10-batches-bin"

_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32


def load_cifar10(folder: Path) -> ImageSet:
    """All data_batch_N.bin in the folder, in order, and test_batch.bin (each may end in .xz).

    Raises:
        DataError: a file is missing or damaged.
    """
    found = {path.name.removesuffix(".xz") for path in folder.glob("data_batch_[1-5].bin*")}
    if not found:
        raise DataError(
            f"{folder} has no data_batch_1.bin[.xz]; pass --data DIR with CIFAR-10's binary version"
        )
    batches = [read_batch(folder / name) for name in sorted(found)]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return ImageSet(images, labels, *read_batch(folder / "test_batch.bin"))


def read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(uint8 images of shape (count, 3, 32, 32), uint8 labels below 10) of one file. Raises
    DataError."""
    content = np.frombuffer(read_packed(path), np.uint8)
    if content.size == 0 or content.size % _RECORD:
        raise DataError(f"{path}: {content.size:,} bytes are not CIFAR-10 records; get it again")
    records = content.reshape(-1, _RECORD)
    if records[:, 0].max() >= CLASS_COUNT:
        raise DataError(
            f"{path}: label {records[:, 0].max()} where 0 ... 9 are valid; get it again"
        )
    return records[:, 1:].reshape(-1, *_SHAPE), records[:, 0]
