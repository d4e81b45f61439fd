"""A store of a model's versions."""

import os
from contextlib import AbstractContextManager
from typing import Any

from deltawire import arguments
from deltawire.errors import invalid
from deltawire.session.leaving import ClosesAtEnd
from deltawire.weights.store import manifest as manifests
from deltawire.weights.store.folder import Folder
from deltawire.weights.store.manifest import Version
from deltawire.weights.store.model_tensors import Model, arrays_of, framework_of
from deltawire.weights.store.reader import Reader
from deltawire.weights.store.writer import KEEP, Policy, Writer


class Store(ClosesAtEnd):
    """Versions of a model's weights, in a folder or on a filesystem of fsspec.

    A trainer publishes into it, readers update from it, in any number and on any machine that sees
    the folder or URL. It has one writer at a time: the first `publish` makes this one the writer,
    until `close`. An object of this class is for one thread at a time; threads may have one each.

    Args:
        url: a folder, or a URL that fsspec knows ("s3://bucket/policy").
        merged: spans, in versions, of patches for readers that missed versions: every 8th version
            also has a patch from 8 versions before. The writer keeps a copy of the weights for
            each, and one more.
        snapshot_every: a snapshot of all weights is written after this many versions at the latest,
            and earlier if the patches since the last one take as many bytes.
        keep: how many of the last versions stay; None for all. The files that these are made from
            stay, too, back to a snapshot. Every update reads the manifest, which has 250 to 300
            bytes for each version.
        grace: files that are no longer needed are deleted this many versions later.
        cache: a folder in which downloads from an object store stay and are continued.
        take_over: become the writer of an object store whose writer did not close it.
        storage_options: for fsspec.

    Attributes:
        bytes_read: of the files that this reader took from the store, manifests included.
    """

    __reduce__ = object.__reduce__  # unlike what else closes at the end, it can be copied

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        merged: tuple[int, ...] = (8, 64),
        snapshot_every: int = 64,
        keep: int | None = KEEP,
        grace: int = 16,
        cache: str | os.PathLike[str] | None = None,
        take_over: bool = False,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self._policy = Policy(merged, snapshot_every, keep, grace)
        self._storage = _storage_of(url, cache, storage_options or {})
        self._take_over = take_over
        self._reader = Reader(self._storage)
        self._writer: Writer | None = None

    def publish(self, model: object, version: int, *, after: int | None = None) -> Version:
        """Adds a version, which readers see, complete, when this returns.

        Args:
            model: a dict of NumPy arrays or PyTorch tensors, or a module. A tensor with several
                names (tied weights) is stored once. It must not change before this returns.
            version: above all published ones, e.g. the number of the training step.
            after: for a trainer that resumes from an older checkpoint: versions above this one are
                dropped in the same moment, and their numbers may be used again. Readers that have
                one of them take a snapshot.

        Returns:
            the version with its files and their sizes.

        Raises:
            DeltawireError: code "State" if the store has another writer, which the message names;
                "Io" if a file can't be written, e.g. because the disk is full. After an error the
                store is as it was.
            InvalidArgumentError: a version that is not above the last one.
            DTypeError: a tensor that patches don't know.
        """
        return self._write().publish(Model(model), version, after)

    def latest(self) -> int | None:
        """The newest version; None if there is none yet."""
        return self._reader.manifest().latest

    def versions(self) -> list[Version]:
        """All versions that can be loaded, in ascending order."""
        return list(self._reader.manifest().versions)

    def load(self, version: int | None = None, *, framework: str | None = None) -> dict[str, Any]:
        """A version's weights, by name; tied tensors are one object with several names.

        Args:
            version: its number; None for the newest.
            framework: "torch" or "numpy"; None for PyTorch where it is installed. NumPy needs
                `ml_dtypes` for bfloat16 and float8.

        Raises:
            DeltawireError: code "Corrupt" if nothing is left that the version could be made from.
            InvalidArgumentError: no such version.
        """
        chosen = framework_of(framework)
        found, tensors = self._reader.load(version)
        return arrays_of(tensors, found.tied, chosen)

    def update(
        self,
        model: object,
        from_version: int | None = None,
        to_version: int | None = None,
        *,
        lock: AbstractContextManager[Any] | None = None,
    ) -> int:
        """Turns weights in place into those of another version, bit for bit.

        It reads the fewest bytes that lead there: patches, or a snapshot and patches. Everything is
        checked before the first write, so after an error the weights are as they were. Ctrl-C and
        SIGTERM wait for the writes. Tensors that are not contiguous or on another device go through
        host memory.

        Args:
            model: as for `publish`, with the names, dtypes and shapes of that version.
            from_version: the version that the weights are now. None: any; they are recognized by
                their digest, and read from a snapshot if they are no version of the store.
            to_version: None for the newest.
            lock: a context manager, held only while the weights are written: whoever reads them
                under it sees one version.

        Returns:
            the version that the weights are now.

        Raises:
            DeltawireError: code "Mismatch" if the weights are not `from_version`, or the model has
                other tensors; "Corrupt" if nothing is left that the version could be made from.
            InvalidArgumentError: no such version, or not a number.

        Warns:
            RuntimeWarning: a damaged or missing file; another way was taken.
        """
        given = (("from_version", from_version), ("to_version", to_version))
        ends = [None if each is None else arguments.check_count(name, each) for name, each in given]
        return self._reader.update(Model(model), *ends, lock).version

    def collect(self, keep: int) -> None:
        """Drops all versions but the last `keep`, and those that they are made from.

        Their files are deleted `grace` versions later.
        """
        keep = arguments.check_positive("keep", keep)
        if self._reader.manifest().generation == 0:
            raise invalid(f"{self._storage.place} is no store: there is no {manifests.NAME}")
        self._write().collect(keep)

    def close(self) -> None:
        """Lets the next writer in. Only writers need it."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @property
    def bytes_read(self) -> int:
        """Bytes of the files that this reader took from the store, manifests included."""
        return self._reader.bytes_read

    def _write(self) -> Writer:
        if self._writer is None:
            self._writer = Writer(self._storage, self._policy, self._take_over)
        return self._writer


def _storage_of(url: str | os.PathLike[str], cache: str | os.PathLike[str] | None, options: dict):
    """A folder, or a filesystem of fsspec."""
    text = os.fspath(url)
    if not text:
        raise invalid("the store's name is empty; name a folder, or a URL")
    for scheme in ("file://", "local://"):
        text = text.removeprefix(scheme)
    if "://" not in text:
        return Folder(text)
    from deltawire.weights.store.objects import Objects

    return Objects(text, None if cache is None else os.fspath(cache), options)
