"""Tiny image sets in files, for tests."""

import gzip
import lzma
import struct
from pathlib import Path

import numpy as np


def idx_bytes(array: np.ndarray) -> bytes:
    """An idx file of unsigned bytes."""
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_image_set(folder: Path, train_count: int = 96, test_count: int = 40) -> Path:
    """Random images whose class can be seen: the row that is bright."""
    random = np.random.default_rng(7)
    for prefix, count in (("train", train_count), ("t10k", test_count)):
        labels = random.integers(0, 10, count)
        images = random.integers(0, 60, (count, 28, 28))
        images[np.arange(count), 2 * labels + 4] = 255
        folder.joinpath(f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
        packed = gzip.compress(idx_bytes(images))
        folder.joinpath(f"{prefix}-images-idx3-ubyte.gz").write_bytes(packed)
    return folder


def write_cifar10(folder: Path) -> Path:
    """Random images and labels in CIFAR-10's binary version: two batches of 12, one packed, and 8
    to test with."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(0)
    for name, count in (("data_batch_1", 12), ("data_batch_3", 12), ("test_batch", 8)):
        records = random.integers(0, 256, (count, 3073), dtype=np.uint8)
        records[:, 0] = random.integers(0, 10, count)
        folder.joinpath(f"{name}.bin").write_bytes(records.tobytes())
    first = folder / "data_batch_1.bin"
    folder.joinpath("data_batch_1.bin.xz").write_bytes(lzma.compress(first.read_bytes()))
    first.unlink()
    return folder
