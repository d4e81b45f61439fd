"""A store in the memory of this process, for those who serve it to others."""

import threading
from collections.abc import Iterable, Iterator

import numpy as np

from deltawire.errors import make_error
from deltawire.weights.store.download import Cache
from deltawire.weights.store.manifest import StoredFile


class Memory:
    """Files of a store in memory; threads may share it.

    Attributes:
        cache: of downloads, of which there are none.
        place: whose memory it is, for messages.
    """

    def __init__(self, place: str) -> None:
        self.cache = Cache(None)
        self.place = place
        self._lock = threading.Lock()
        self._small: dict[str, bytes] = {}
        self._files: dict[str, np.ndarray] = {}

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """A small file's bytes, None if there is none."""
        del max_bytes  # they are there already
        return self._small.get(name)

    def replace(self, name: str, data: bytes) -> None:
        """Puts a small file in its place, whole or not at all."""
        self._small[name] = data

    def write(self, name: str, parts: Iterable) -> None:
        """Writes a new file of the store."""
        data = bytearray()
        for part in parts:
            data += part
        self.keep(name, np.frombuffer(data, np.uint8))

    def keep(self, name: str, data: np.ndarray) -> None:
        """Makes an array that nobody will change a file of the store."""
        with self._lock:
            self._files[name] = data

    def open(self, file: StoredFile) -> np.ndarray:
        """A file's bytes."""
        data = self._files.get(file.name)
        if data is None:
            raise make_error("Io", f"{self.place}/{file.name} is missing")
        return data

    def names(self) -> Iterator[str]:
        """Names of all files of the store."""
        with self._lock:
            return iter(list(self._files))

    def remove(self, name: str) -> None:
        """Deletes a file of the store; whoever reads it still has it."""
        with self._lock:
            self._files.pop(name, None)

    def lock(self, take_over: bool) -> "Memory":
        """Only its owner has it, so nothing is to be locked."""
        del take_over
        return self

    def check(self) -> None:
        """Nobody takes it from its owner."""

    def release(self) -> None:
        """Nobody waits for it."""
