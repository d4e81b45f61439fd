"""Reading CIFAR-10's binary version: good files, and damaged ones."""

import lzma
from pathlib import Path

import numpy as np
import pytest
from planted_images import write_cifar10

from lab.data.cifar import load_cifar10, read_batch
from lab.data.images import DataError


def test_images_are_read_as_they_lie_in_the_file(tmp_path: Path):
    path = write_cifar10(tmp_path) / "data_batch_3.bin"
    images, labels = read_batch(path)
    content = np.frombuffer(path.read_bytes(), np.uint8).reshape(12, 3073)
    assert images.shape == (12, 3, 32, 32)
    assert images[2, 1, 0, 5] == content[2, 1 + 1024 + 5]
    assert labels.tolist() == content[:, 0].tolist()


def test_a_set_has_the_batches_that_are_there_in_order(tmp_path: Path):
    images = load_cifar10(write_cifar10(tmp_path))
    assert images.train_images.shape == (24, 3, 32, 32)
    assert images.test_images.shape == (8, 3, 32, 32)
    first = lzma.decompress((tmp_path / "data_batch_1.bin.xz").read_bytes())
    assert images.train_labels[:12].tolist() == list(first[::3073])
    assert images.train_images.dtype == images.train_labels.dtype == np.uint8


@pytest.mark.parametrize("content", [b"", bytes(3072), b"\x0a" + bytes(3072)])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes):
    path = write_cifar10(tmp_path) / "test_batch.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match="test_batch"):
        load_cifar10(tmp_path)


def test_a_folder_without_images_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"data_batch_1.bin\[.xz\]; pass --data"):
        load_cifar10(tmp_path)
