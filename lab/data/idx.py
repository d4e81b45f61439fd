"""Image sets in the idx format of MNIST: four files, each plain or gzipped.

An idx file is: two zero bytes, a byte for the element type (8 = unsigned byte), a byte for the
number of dimensions, one big-endian 32-bit length a dimension, then the elements in C order."""

import math
import struct
from pathlib import Path

import numpy as np

from lab.data.images import CLASS_COUNT, DataError, ImageSet, read_packed

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
IMAGE_SIDE = 28

_UNSIGNED_BYTE = 8
_MAX_ELEMENTS = 1 << 30  # a few damaged bytes must not make us allocate all memory


def load_image_set(directory: Path) -> ImageSet:
    """Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and their t10k counterparts (each may
    end in .gz).

    Raises:
        DataError: a file is missing, damaged, or not of 28x28 images in 10 classes.
    """
    parts = []
    for prefix in ("train", "t10k"):
        image_path = _find(directory, f"{prefix}-images-idx3-ubyte")
        label_path = _find(directory, f"{prefix}-labels-idx1-ubyte")
        images = read_idx(image_path, dimensions=3)
        labels = read_idx(label_path, dimensions=1)
        _check_pair(images, labels, image_path, label_path)
        parts += [images[:, np.newaxis], labels]
    return ImageSet(*parts)


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The array in an idx file of unsigned bytes.

    Raises:
        DataError: unreadable, not idx, another element type or number of dimensions, too short or
        long.
    """
    content = read_packed(path)
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes:
        raise DataError(
            f"{path}: only {len(content)} bytes, too short for an idx header; get it again"
        )
    zeros, element_type, found_dimensions = struct.unpack(">HBB", content[:4])
    if zeros != 0:
        raise DataError(f"{path}: not an idx file (starts with {content[:4].hex()}); get it again")
    if element_type != _UNSIGNED_BYTE or found_dimensions != dimensions:
        raise DataError(
            f"{path}: element type {element_type} and {found_dimensions} dimension(s) where "
            "unsigned "
            f"bytes (type {_UNSIGNED_BYTE}) and {dimensions} are due; pass another --data"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:header_bytes])
    count = math.prod(shape)
    if count > _MAX_ELEMENTS:
        raise DataError(f"{path}: claims {count:,} elements, more than {_MAX_ELEMENTS:,}")
    if len(content) - header_bytes != count:
        raise DataError(
            f"{path}: {len(content) - header_bytes:,} bytes of data where its header claims "
            f"{count:,}; "
            "it is damaged: get it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header_bytes).reshape(shape)


def _find(directory: Path, name: str) -> Path:
    path = directory / name
    if path.is_file() or path.with_name(f"{name}.gz").is_file():
        return path
    advice = "pass --data DIR with the four idx files of an MNIST-style set"
    if directory == DEBIAN_FASHION_MNIST:
        advice = f"install it (apt-get install dataset-fashion-mnist) or {advice}"
    raise DataError(f"{directory} has no {name}[.gz]; {advice}")


def _check_pair(images: np.ndarray, labels: np.ndarray, image_path: Path, label_path: Path) -> None:
    if images.shape[1:] != (IMAGE_SIDE, IMAGE_SIDE):
        found = "x".join(map(str, images.shape[1:]))
        raise DataError(f"{image_path}: images of {found}, but the network takes 28x28")
    if len(images) != len(labels):
        raise DataError(
            f"{label_path}: {len(labels):,} labels for {len(images):,} images; get both files again"
        )
    if len(labels) == 0:
        raise DataError(f"{image_path}: no images in it")
    if labels.max() >= CLASS_COUNT:
        raise DataError(f"{label_path}: label {labels.max()}, but the network knows 0 ... 9")
