"""What a server offers: the newest manifest of a store, and its files."""

import threading

import numpy as np

from deltawire.errors import DeltawireError
from deltawire.weights.live.messages import NO_VERSION, RUN_BYTES
from deltawire.weights.store import manifest as manifests
from deltawire.weights.store.manifest import Manifest, StoredFile


class Board:
    """Threads that serve wait here for the next version."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._run = bytes(RUN_BYTES)
        self._storage = None
        self._manifest = b""
        self._latest = NO_VERSION
        self._files: dict[str, StoredFile] = {}
        self._closed = False

    def announce(self, run: bytes, storage, manifest: Manifest) -> None:
        """Replaces what is offered; `storage` has the files that the manifest names."""
        named = manifest.files()
        files = {file.name: file for version in manifest.versions for file in version.files}
        with self._changed:
            if run == self._run:  # readers of an older manifest still have retired files
                files |= {name: file for name, file in self._files.items() if name in named}
            latest = NO_VERSION if manifest.latest is None else manifest.latest
            self._run, self._storage, self._latest = run, storage, latest
            self._manifest, self._files = manifests.to_bytes(manifest), files
            self._changed.notify_all()

    def newest(self) -> tuple[bytes, int]:
        """The run, and its newest version or NO_VERSION."""
        with self._changed:
            return self._run, self._latest

    def wait(self, run: bytes, version: int, seconds: float) -> bytes | None:
        """The manifest when this run has a version above `version`; None if it does not in time."""

        def is_newer() -> bool:
            return self._run == run and self._latest > version

        with self._changed:
            self._changed.wait_for(lambda: is_newer() or self._closed, seconds)
            return self._manifest if is_newer() else None

    def data(self, name: str) -> np.ndarray | None:
        """A file's bytes; None if there is none of this name."""
        with self._changed:
            file, storage = self._files.get(name), self._storage
        if file is None:
            return None
        try:
            return storage.open(file)
        except DeltawireError:
            return None

    def close(self) -> None:
        """Ends all waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
