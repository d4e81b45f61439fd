"""A store on a filesystem of fsspec: S3, Google's and Azure's stores, HDFS, SFTP, ..."""

import contextlib
import posixpath
from collections.abc import Iterable, Iterator

import numpy as np

from deltawire.errors import invalid
from deltawire.weights.store.download import Cache, Download
from deltawire.weights.store.manifest import StoredFile
from deltawire.weights.store.writer_locks import ObjectLock

_FILES = "files"
# Here one request replaces an object, whole or not at all. Elsewhere a file is renamed.
_ONE_PUT = {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "hf"}


class Objects:
    """Files of a store on a filesystem of fsspec.

    Attributes:
        cache: of downloads.
        place: the URL, for messages.
    """

    def __init__(self, url: str, cache: str | None, options: dict) -> None:
        try:
            import fsspec
        except ImportError:
            raise invalid(f"{url} needs the package fsspec: pip install fsspec") from None
        try:
            self._system, self._root = fsspec.url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise invalid(f"{url} can't be opened: {error}") from error
        self.cache = Cache(cache, url)
        self.place = url
        protocols = self._system.protocol
        names = {protocols} if isinstance(protocols, str) else set(protocols)
        self._one_put = bool(names & _ONE_PUT)

    def _path(self, *names: str) -> str:
        return posixpath.join(self._root, *names)

    def _make_folder(self, *names: str) -> None:
        """Object stores have none, and would look for the bucket each time."""
        if not self._one_put:
            self._system.makedirs(self._path(*names), exist_ok=True)

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """A small file's bytes, None if there is none."""
        del max_bytes  # one request takes all
        try:
            return self._system.cat_file(self._path(name))
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes) -> None:
        """Puts a small file in its place, whole or not at all."""
        self._make_folder()
        if self._one_put:
            self._system.pipe_file(self._path(name), data)
        else:
            partial = self._path(f"{name}.partial")
            with contextlib.suppress(FileNotFoundError):
                self._system.rm_file(partial)  # it may be a link
            self._system.pipe_file(partial, data)
            self._system.mv(partial, self._path(name))

    def write(self, name: str, parts: Iterable) -> None:
        """Writes a new file of the store."""
        self._make_folder(_FILES)
        with self._system.open(self._path(_FILES, name), "wb") as opened:
            for part in parts:
                opened.write(part)

    def open(self, file: StoredFile) -> np.ndarray:
        """A file's bytes, downloaded."""
        path = self._path(_FILES, file.name)
        return Download(self._system, path, file, self.cache.folder).run()

    def names(self) -> Iterator[str]:
        """Names of all files of the store, also of those that the manifest doesn't name."""
        self._system.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            for path in self._system.ls(self._path(_FILES), detail=False):
                yield posixpath.basename(path.rstrip("/"))

    def remove(self, name: str) -> None:
        """Deletes a file of the store; one that is gone is no error."""
        with contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(_FILES, name))

    def lock(self, take_over: bool) -> ObjectLock:
        """Makes the caller the store's only writer."""
        self._make_folder()
        return ObjectLock(self._system, self._path("writer.lock"), self.place, take_over)
