"""Reading a file from an object store, by ranges, so that a broken connection costs one range.

With a cache folder, what has arrived stays there: a reader that starts again continues, and the
readers of one machine download a file once.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deltawire.errors import DeltawireError, make_error
from deltawire.weights.store import manifest as manifests
from deltawire.weights.store.manifest import StoredFile

RANGE_BYTES = 16 << 20
ATTEMPTS = 5  # in a row without a byte
_FIRST_PAUSE = 0.1  # seconds; doubles with each attempt
_PARTIAL = ".partial"  # ends the name of a file that has not arrived whole


class Cache:
    """What a reader keeps of its downloads, by their names; without a folder it keeps none.

    Args:
        folder: of all sources.
        source: where this reader's files come from: it has a folder of its own there, as another
            source's files aren't known here.

    Attributes:
        folder: where they are, or None.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, source: str = "") -> None:
        own = hashlib.sha256(source.encode()).hexdigest()[:16]
        self.folder = None if folder is None else Path(folder) / own

    def forget(self, file: StoredFile) -> None:
        """Drops a file, as it turned out to be damaged."""
        if self.folder is not None:
            (self.folder / file.name).unlink(missing_ok=True)

    def forget_all_but(self, names: set[str]) -> None:
        """Drops files of stores that the manifest doesn't name any more."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            name = path.name.removesuffix(_PARTIAL)
            if manifests.is_own_name(name) and name not in names:
                path.unlink(missing_ok=True)


class Download:
    """One file's way to this machine."""

    def __init__(self, system, path: str, file: StoredFile, cache: Path | None) -> None:
        self._system = system
        self._path = path
        self._file = file
        self._cache = cache

    def run(self) -> np.ndarray:
        """The file's bytes: in memory, or mapped from the cache.

        Raises:
            DeltawireError: code "Io" if the file is missing or can't be read, "Truncated" if it is
                shorter than the manifest says.
            OSError: the cache can't be written, e.g. because its disk is full.
        """
        if self._cache is None or self._file.bytes == 0:
            return self._into_memory()
        try:
            return self._into_cache(self._cache)
        except OSError as error:  # a full disk's names no file
            raise OSError(error.errno, error.strerror, str(self._cache)) from error

    def _into_cache(self, cache: Path) -> np.ndarray:
        cache.mkdir(parents=True, exist_ok=True)
        whole = cache / self._file.name
        if not self._is_there(whole):
            beside = cache / f"{self._file.name}{_PARTIAL}"
            # Not through a link that somebody has put there.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(beside, flags, 0o666), "ab") as partial:
                try:
                    fcntl.flock(partial, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # somebody else downloads it: don't wait for them
                    return self._into_memory()
                if not self._is_there(whole):  # nobody finished it while this one was opened
                    there = partial.seek(0, os.SEEK_END)
                    # At once, and not after reading all that there is room for, at each attempt.
                    if shutil.disk_usage(cache).free < self._file.bytes - there:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    if there > self._file.bytes:
                        partial.truncate(there := 0)
                    for part in self._ranges(there):
                        partial.write(part)
                    partial.flush()
                    os.replace(beside, whole)
        return np.memmap(whole, np.uint8, mode="r")

    def _is_there(self, whole: Path) -> bool:
        return whole.exists() and whole.stat().st_size == self._file.bytes

    def _into_memory(self) -> np.ndarray:
        data = np.empty(self._file.bytes, np.uint8)
        at = 0
        for part in self._ranges(0):
            data[at : at + len(part)] = np.frombuffer(part, np.uint8)
            at += len(part)
        return data

    def _ranges(self, at: int) -> Iterator[bytes]:
        """The file from byte `at` on."""
        failures = 0
        while at < self._file.bytes:
            end = min(at + RANGE_BYTES, self._file.bytes)
            try:
                part = self._system.cat_file(self._path, start=at, end=end)
            except FileNotFoundError:
                raise make_error("Io", f"{self._path} is missing") from None
            except DeltawireError:  # a connection of our own, which won't come back
                raise
            except Exception as error:  # each filesystem has its own
                failures += 1
                if failures >= ATTEMPTS:
                    raise make_error("Io", f"{self._path} can't be read: {error}") from error
                time.sleep(_FIRST_PAUSE * 2 ** (failures - 1))
                continue
            if len(part) == 0 or len(part) > end - at:
                raise make_error(
                    "Truncated",
                    f"{self._path} gives {len(part):,} bytes from byte {at:,} on: the manifest "
                    f"says that it has {self._file.bytes:,}",
                )
            failures = 0
            at += len(part)
            yield bytes(part)
