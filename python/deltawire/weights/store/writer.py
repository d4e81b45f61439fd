"""Publishing: files for the readers of each earlier version, then the manifest that names them."""

import contextlib
import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from deltawire import _core, arguments
from deltawire.errors import DeltawireError, invalid, make_error, wrong_state
from deltawire.session.leaving import check_own_process
from deltawire.weights.store import manifest as manifests
from deltawire.weights.store import routes, stored_model
from deltawire.weights.store.manifest import Manifest, StoredFile, Version
from deltawire.weights.store.model_tensors import Model, weights_digest
from deltawire.weights.store.reader import Reader
from deltawire.weights.store.stored_model import (
    DTYPES,
    Entry,
    NewPatches,
    TensorDigest,
    digest_of,
    tensor_bytes,
)

_WRITTEN_AT_ONCE = 64 << 20  # bytes; a filesystem may copy what it is given
_PREVIOUS = 1  # the span of the patch from the version before
KEEP = 128  # versions: every update reads the manifest, which must not grow for ever


@dataclass(frozen=True)
class Policy:
    """What a writer publishes and keeps.

    Attributes:
        merged: spans, in versions, of patches that make a reader's way shorter: every 8th version
            also has one from 8 versions before.
        snapshot_every: how many versions after a snapshot the next is written, at the latest.
        keep: how many versions stay; None for all. The manifest has 250 to 300 bytes for each.
        grace: how many more versions are published before a file that is no longer needed is
            deleted.
    """

    merged: tuple[int, ...] = (8, 64)
    snapshot_every: int = 64
    keep: int | None = KEEP
    grace: int = 16

    def __post_init__(self) -> None:
        spans = self.merged if isinstance(self.merged, tuple | list) else (1,)  # refused as 1 is
        if len({arguments.check_positive("merged", span) for span in spans} - {1}) < len(spans):
            raise invalid(f"merged={self.merged!r}: give different spans, each above 1")
        arguments.check_positive("snapshot_every", self.snapshot_every)
        if self.keep is not None:
            arguments.check_positive("keep", self.keep)
        arguments.check_count("grace", self.grace)


class Writer:
    """The store's only writer.

    It holds the weights of the last version, and those from which the next merged patches will be
    made: a copy of the model, and another for each span.
    """

    def __init__(self, storage, policy: Policy, take_over: bool) -> None:
        self._storage = storage
        self._policy = policy
        self._reader = Reader(storage)
        self._held: dict[int, tuple[int, dict[str, Entry]]] = {}  # by span: version and weights
        self._written: list[str] = []  # files that no manifest names yet
        self._lock = storage.lock(take_over)
        self._process = os.getpid()
        try:
            # The manifests that this writer may find: after an interrupt it is either of two.
            self._left = (self._sweep(),)
            self._warn_of_many(len(self._left[0].versions))
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Lets the next writer in."""
        self._held.clear()
        if self._process == os.getpid():
            self._lock.release()

    def publish(self, model: Model, number: int, after: int | None = None) -> Version:
        """Adds a version: patches, a snapshot when it is due, and the manifest. Versions above
        `after` are abandoned."""
        manifest = self._current()
        number = arguments.check_count("version", number)
        if after is not None:
            after = arguments.check_count("after", after)
            manifest = manifest.back_at(after)
            self._held = {span: held for span, held in self._held.items() if held[0] <= after}
        latest = manifest.latest
        follows = max((each for each in (latest, after) if each is not None), default=-1)
        if number <= follows:
            raise invalid(
                f"version {number} does not follow version {follows}"
                + ("" if follows == after else f", which {self._storage.place} has already")
                + ": give a higher number, or the version to go on from as after="
            )
        return self._or_nothing(lambda: self._publish(manifest, model, number), number)

    def collect(self, keep: int) -> None:
        """Drops all but the last `keep` versions and what they are made from."""
        manifest = self._current()
        if manifest.versions:
            self._or_nothing(lambda: self._replace(manifest.without_old(keep)), None)

    def _publish(self, manifest: Manifest, model: Model, number: int) -> Version:
        if not manifest.generation:  # or nobody could tell what a first version leaves behind
            self._replace(manifest)
            manifest = self._current()
        new = {
            name: Entry(tensor.dtype, tensor.shape, tensor.read())
            for name, tensor in model.tensors.items()
        }
        if manifest.versions:
            latest = manifest.versions[-1]
            held = self._weights_of(_PREVIOUS, latest.version)
            made = stored_model.make_patches(held, new)
            version = Version(number, digest_of(made.digests), (), model.tied)
            files = list(self._patch(latest, version, made, _described(held)))
            weights = _advance(held, made)
        else:
            weights = {name: Entry(*each[:2], np.array(each.data)) for name, each in new.items()}
            version = Version(number, digest_of(_digests(weights)), (), model.tied)
            files = []
        self._held[_PREVIOUS] = (number, weights)
        # From here on the writer's own copy is read: the model may change.
        files += self._merged(manifest, weights, version)
        version = replace(version, files=tuple(files))
        if self._snapshot_is_due(manifest.with_version(version), weights):
            header = stored_model.front_of(_described(weights), _metadata(model.tied))
            parts = [header, *(weights[name].data for name in _described(weights))]
            version = replace(version, files=(*files, self._store(number, None, parts)))
        after = manifest.with_version(version)
        if self._policy.keep is not None:
            after = after.without_old(self._policy.keep)
        self._replace(after)
        return version

    def _merged(
        self, manifest: Manifest, weights: dict[str, Entry], to: Version
    ) -> Iterator[StoredFile]:
        """Patches over several versions, for readers that missed some."""
        for span in self._policy.merged:
            if manifest.published % span:
                continue
            index = len(manifest.versions) - span
            if index < 0:  # the first version, or one whose base was collected
                copies = {
                    name: Entry(*each[:2], each.data.copy()) for name, each in weights.items()
                }
                self._held[span] = (to.version, copies)
                continue
            base = manifest.versions[index]
            before = self._weights_of(span, base.version)
            made = stored_model.make_patches(before, weights)
            yield from self._patch(base, to, made, _described(before))
            self._held[span] = (to.version, _advance(before, made))

    def _patch(
        self, base: Version, to: Version, made: NewPatches, before: dict
    ) -> Iterator[StoredFile]:
        """Writes a patch, unless a snapshot is no larger."""
        after = _described(made.digests)
        front = stored_model.front_of(after, _metadata(to.tied))
        header = b"" if before == after and base.tied == to.tied else front[8:]
        parts = stored_model.patch_file_of(
            made, (base.digest, to.digest), (base.version, to.version), header
        )
        snapshot = len(front) + sum(tensor_bytes(*each) for each in after.values())
        if sum(map(len, parts)) < snapshot:
            yield self._store(to.version, base.version, parts)

    def _weights_of(self, span: int, number: int) -> dict[str, Entry]:
        """Weights that the writer holds, or reads from the store after a restart."""
        held = self._held.pop(span, None)  # until they are those of the next version
        if held is not None and held[0] == number:
            return held[1]
        return self._reader.load(number)[1]

    def _snapshot_is_due(self, after: Manifest, weights: dict[str, Entry]) -> bool:
        """Whether a reader that begins with nothing has a long way."""
        last = len(after.versions) - 1
        recent = after.versions[max(0, last - self._policy.snapshot_every + 1) :]
        if not any(file.base is None for version in recent for file in version.files):
            return True
        route = routes.shortest(after, None, after.versions[-1].version)
        whole = sum(len(entry.data) for entry in weights.values())
        return route is None or route.bytes - route.files[0].bytes >= whole

    def _store(self, version: int, base: int | None, parts: Iterable) -> StoredFile:
        """Writes a file that no manifest names yet."""
        name = manifests.new_name(version, base)
        checksum = hashlib.sha256()
        written = 0

        def pieces() -> Iterator[memoryview]:
            nonlocal written
            for part in parts:
                view = memoryview(part)
                for at in range(0, len(view), _WRITTEN_AT_ONCE):
                    piece = view[at : at + _WRITTEN_AT_ONCE]
                    checksum.update(piece)
                    written += len(piece)
                    yield piece

        self._written.append(name)
        self._storage.write(name, pieces())
        return StoredFile(name, written, checksum.hexdigest(), base)

    def _replace(self, after: Manifest) -> None:
        """Puts the next manifest in its place, then deletes what it allows."""
        after = after.without_deletable(self._policy.grace)
        self._left = before, _ = self._current(), after  # once more, as the files took their time
        try:
            self._storage.replace(manifests.NAME, manifests.to_bytes(after))
        except Exception:
            if self._reader.manifest() != after:
                raise
            # It is there: only the answer was lost.
        with contextlib.suppress(OSError):  # the next writer's sweep finds them
            for name in filter(manifests.is_own_name, before.files() - after.files()):
                self._storage.remove(name)

    def _or_nothing(self, change: Callable, number: int | None):
        """Runs a change of the store; after its failure the store is as it was."""
        self._written.clear()
        try:
            return change()
        except BaseException as error:
            self._held.clear()  # they may be ahead of the store
            with contextlib.suppress(DeltawireError, OSError):
                named = self._reader.manifest().files()
                for name in self._written:
                    if name not in named:
                        self._storage.remove(name)
            if not isinstance(error, OSError):
                raise
            what = "nothing was collected" if number is None else f"version {number} is not there"
            raise make_error(
                "Io",
                f"{self._storage.place}: {error.strerror or error}: {what}, the store is as it was",
            ) from error

    def _current(self) -> Manifest:
        """The manifest, which must be the one that this writer has left."""
        check_own_process(self._process, "store's writer")
        self._lock.check()
        manifest = self._reader.manifest()
        if manifest not in self._left:
            raise wrong_state(
                f"{self._storage.place} was written by somebody else meanwhile: a store has one "
                "writer at a time; close this one and open the store again"
            )
        return manifest

    def _warn_of_many(self, count: int) -> None:
        """If the store was written with a larger `keep`."""
        keep = self._policy.keep
        if keep is not None and count > keep + self._policy.snapshot_every:
            warnings.warn(
                f"{self._storage.place} has {count:,} versions: the next publication drops all but "
                f"the last {keep}, and those that they are made from; keep=None keeps all",
                RuntimeWarning,
                stacklevel=5,
            )

    def _sweep(self) -> Manifest:
        """Deletes files of publications that never ended; returns the manifest."""
        manifest = self._reader.manifest()
        unnamed = set(filter(manifests.is_own_name, self._storage.names())) - manifest.files()
        if unnamed and not manifest.generation:
            raise wrong_state(
                f"{self._storage.place} has files of a store and no {manifests.NAME}, which says "
                "what they are: put it back, or name an empty folder"
            )
        for name in unnamed:
            self._storage.remove(name)
        return manifest


def _described(tensors: Mapping[str, tuple]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtypes and shapes, in the order of a snapshot."""
    described = {name: (each[0], each[1]) for name, each in tensors.items()}
    return {name: described[name] for name in stored_model.in_file_order(described)}


def _digests(weights: Mapping[str, Entry]) -> dict[str, TensorDigest]:
    return {
        name: TensorDigest(dtype, shape, weights_digest(dtype, data))
        for name, (dtype, shape, data) in weights.items()
    }


def _metadata(tied: dict[str, str]) -> dict[str, str]:
    """A snapshot's metadata: what transformers looks for, and names of tied tensors as the package
    safetensors writes them."""
    return {"format": "pt", **{name: tied[name] for name in sorted(tied, key=str.encode)}}


def _advance(held: dict[str, Entry], made: NewPatches) -> dict[str, Entry]:
    """Held weights after patches, in the same memory where there is any."""
    after = {}
    for name, (dtype, shape, _) in made.digests.items():
        if name in made.full:
            after[name] = Entry(dtype, shape, np.array(made.full[name].data))
            continue
        data = held[name].data
        try:
            _core.apply_patch(made.patches[name], data, DTYPES[dtype].kind, data)
        except DeltawireError as error:
            raise make_error(
                error.code,
                f"'{name}' was changed while it was published: wait with the next step ({error})",
            ) from None
        after[name] = Entry(dtype, shape, data)
    return after
