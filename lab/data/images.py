"""Sets of small labelled images, from any file format, and the folder of all data sets."""

import dataclasses
import gzip
import lzma
import os
import zlib
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
            "DELTAWIRE_DATA names no folder of data; set it to one with what ARTIFACT.md lists (and"
            " libsvm/ for traces), or pass --data DIR where that is an option"
        )
    return Path(folder)


def read_packed(path: Path) -> bytes:
    """The content of a file, or of the same one compressed as .xz or .gz. Raises DataError."""
    try:
        for ending, expand in (("", bytes), (".xz", lzma.decompress), (".gz", gzip.decompress)):
            packed = path.with_name(path.name + ending)
            if packed.is_file():
                return expand(packed.read_bytes())
        return path.read_bytes()
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as cause:
        raise DataError(f"{path}[.xz, .gz]: can't be read ({cause}); get it again") from cause
