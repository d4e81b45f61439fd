"""The idx reader, on good files and on every kind of bad one."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from planted_images import idx_bytes

from lab.data.idx import DEBIAN_FASHION_MNIST, load_image_set, read_idx
from lab.data.images import DataError


def test_reads_plain_and_gzipped(tmp_path: Path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    plain = tmp_path / "a-idx3-ubyte"
    plain.write_bytes(idx_bytes(array))
    packed = tmp_path / "b-idx3-ubyte.gz"
    packed.write_bytes(gzip.compress(idx_bytes(array)))
    np.testing.assert_array_equal(read_idx(plain, dimensions=3), array)
    np.testing.assert_array_equal(read_idx(tmp_path / "b-idx3-ubyte", dimensions=3), array)


def test_loads_a_whole_set(image_folder: Path):
    images = load_image_set(image_folder)
    assert images.train_images.shape == (96, 1, 28, 28)
    assert images.train_labels.shape == (96,)
    assert images.test_images.shape == (40, 1, 28, 28)
    assert images.test_labels.max() < 10


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "too short"),
        (b"\0\0\x08\x03\0\0", "too short"),
        (b"\x89PNG" + bytes(20), "not an idx file"),
        (b"\0\0\x0d\x03" + bytes(12), "element type 13"),
        (b"\0\0\x08\x01" + bytes(12), "1 dimension"),
        (idx_bytes(np.zeros((2, 2, 2)))[:-1], "damaged"),
        (idx_bytes(np.zeros((2, 2, 2))) + b"x", "damaged"),
        (b"\0\0\x08\x03" + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 9), "claims"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: bytes, part: str):
    path = tmp_path / "bad-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_idx(path, dimensions=3)
    assert part in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_gzip_is_named(tmp_path: Path):
    whole = gzip.compress(idx_bytes(np.zeros((5, 28, 28))))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for name, content in (("cut", whole[:-9]), ("flipped", bytes(flipped)), ("text", b"hello")):
        (tmp_path / f"{name}.gz").write_bytes(content)
        with pytest.raises(DataError, match=name):
            read_idx(tmp_path / name, dimensions=3)


def test_missing_files_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DataError, match="--data DIR"):
        load_image_set(tmp_path)
    monkeypatch.setattr("lab.data.idx.DEBIAN_FASHION_MNIST", tmp_path)
    with pytest.raises(DataError, match="apt-get install dataset-fashion-mnist"):
        load_image_set(tmp_path)
    assert DEBIAN_FASHION_MNIST.is_absolute()


@pytest.mark.parametrize(
    ("name", "array", "part"),
    [
        ("train-labels-idx1-ubyte", np.zeros(95), "95 labels for 96 images"),
        ("train-labels-idx1-ubyte", np.full(96, 10), "label 10"),
        ("t10k-images-idx3-ubyte", np.zeros((40, 32, 32)), "32x32"),
    ],
)
def test_files_that_do_not_fit(image_folder: Path, name: str, array: np.ndarray, part: str):
    (image_folder / name).write_bytes(idx_bytes(array))
    with pytest.raises(DataError, match=part):
        load_image_set(image_folder)
