"""A store behind a connection: what its reader needs of it, from whoever serves it."""

import posixpath

import numpy as np

from deltawire.errors import DeltawireError
from deltawire.weights.live.peer import Peer
from deltawire.weights.store.download import Cache, Download
from deltawire.weights.store.manifest import StoredFile
from deltawire.weights.store.memory import Memory


class Upstream:
    """Reads a server's files, for `weights.store.reader.Reader`.

    Args:
        peer: the server.
        run: the publisher's.
        version: the newest that the reader has.
        cache: where downloads stay and are continued.
        held: what the reader has already.

    Attributes:
        cache: as given.
        place: the server's address, for messages.
    """

    def __init__(self, peer: Peer, run: bytes, version: int, cache: Cache, held: Memory) -> None:
        self._peer, self._run, self._version = peer, run, version
        self.cache = cache
        self._held = held
        self._manifest = b""
        self.place = peer.address

    def wait(self, seconds: float) -> bool:
        """Whether there is a newer version in time."""
        manifest = self._peer.wait(self._run, self._version, seconds)
        if manifest is None:
            return False
        self._manifest = manifest
        return True

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """The manifest that `wait` has received."""
        del name, max_bytes
        return self._manifest or None

    def open(self, file: StoredFile) -> np.ndarray:
        """A file's bytes, downloaded."""
        try:
            return self._held.open(file)
        except DeltawireError:
            return Download(self, f"{self.place}/{file.name}", file, self.cache.folder).run()

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        """Bytes of a file, as fsspec has it; fewer than asked for if those are many."""
        return self._peer.read(posixpath.basename(path), start, end - start)
