"""A store in a folder of this machine, or of a network filesystem."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from deltawire import new_file
from deltawire.errors import make_error
from deltawire.weights.store.download import Cache
from deltawire.weights.store.manifest import StoredFile
from deltawire.weights.store.writer_locks import FolderLock

_FILES = "files"


class Folder:
    """Files of a store in a folder.

    Attributes:
        cache: of downloads, of which there are none.
        place: the folder, for messages.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.cache = Cache(None)
        self._folder = Path(folder)
        self.place = str(folder)

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """A small file's bytes, if too many one more than allowed; None if there is none."""
        try:
            with (self._folder / name).open("rb") as opened:
                return opened.read(max_bytes + 1)
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes) -> None:
        """Puts a small file in its place, whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        new_file.replace(self._folder / name, [data], sync=True)
        new_file.sync_folder(self._folder)

    def write(self, name: str, parts: Iterable) -> None:
        """Writes a new file of the store, which is on the disk when this returns."""
        folder = self._folder / _FILES
        folder.mkdir(parents=True, exist_ok=True)
        with new_file.create(folder / name) as opened:
            opened.writelines(parts)
            opened.flush()
            os.fsync(opened.fileno())
        new_file.sync_folder(folder)

    def open(self, file: StoredFile) -> np.ndarray:
        """A file's bytes, mapped into memory."""
        path = self._folder / _FILES / file.name
        try:
            if file.bytes == 0 or path.stat().st_size != file.bytes:
                raise make_error(
                    "Truncated",
                    f"{path} has {path.stat().st_size:,} bytes, the manifest says {file.bytes:,}",
                )
            return np.memmap(path, np.uint8, mode="r")
        except FileNotFoundError:
            raise make_error("Io", f"{path} is missing") from None
        except OSError as error:
            raise make_error("Io", f"{path} can't be read: {error.strerror}") from error

    def names(self) -> Iterator[str]:
        """Names of all files of the store, also of those that the manifest doesn't name."""
        with contextlib.suppress(FileNotFoundError):
            yield from os.listdir(self._folder / _FILES)

    def remove(self, name: str) -> None:
        """Deletes a file of the store; one that is gone is no error."""
        (self._folder / _FILES / name).unlink(missing_ok=True)

    def lock(self, take_over: bool) -> FolderLock:
        """Makes the caller the store's only writer."""
        del take_over  # the system releases the lock of a process that ended
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return FolderLock(self._folder / "writer.lock")
        except OSError as error:
            raise make_error(
                "Io", f"{self.place} can't be written: {error.strerror}; name a folder that can"
            ) from error
