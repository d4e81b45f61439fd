"""Sets of small labelled images, from any file format, and the folder of all data sets."""

import dataclasses
import lzma
import os
from pathlib import Path

import numpy as np

CLASS_COUNT = 10


class DataError(Exception):
    """A data set that is missing or damaged: one line that says which file and what to do."""


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """A whole data set in memory.

    Attributes:
        train_images, test_images: uint8 of shape (count, channels, height, width).
        train_labels, test_labels: uint8 of shape (count,), each below CLASS_COUNT.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def data_folder() -> Path:
    """The folder named by DELTAWIRE_DATA. Raises DataError if it is not set."""
    folder = os.environ.get("DELTAWIRE_DATA", "")
    if not folder:
        raise DataError(
            "DELTAWIRE_DATA names no folder of data; set it to one with cifar-10-batches-bin/, "
            "wikitext-2/, shakespeare/ and libsvm/, or pass --data DIR where that is an option"
        )
    return Path(folder)


def read_packed(path: Path) -> bytes:
    """The content of a file, or of the same file compressed as .xz. Raises DataError."""
    packed = path.with_name(path.name + ".xz")
    try:
        if packed.is_file():
            return lzma.decompress(packed.read_bytes())
        return path.read_bytes()
    except (OSError, lzma.LZMAError) as cause:
        raise DataError(f"{path}[.xz]: can't be read ({cause})") from cause
