"""Reading a store: whole versions, and updates of weights in place."""

import contextlib
import hashlib
import signal
import threading
import warnings
from collections.abc import Callable, Collection, Iterator

import numpy as np

from deltawire.errors import DeltawireError, corrupt, invalid, make_error, wrong_state
from deltawire.weights.store import manifest as manifests
from deltawire.weights.store import routes
from deltawire.weights.store.lines import (
    DamagedFileError,
    Line,
    OpenedFile,
    WrongBaseError,
    lines_of,
)
from deltawire.weights.store.manifest import Abandoned, Manifest, StoredFile, Version
from deltawire.weights.store.model_tensors import Model, ModelTensor
from deltawire.weights.store.stored_model import Entry, digest_of, tensor_bytes

_LOST = ("PeerLost", "Timeout", "Limit")  # errors of a connection, which no other file mends
_DEFERRED = (signal.SIGINT, signal.SIGTERM)  # while weights are of two versions


class OtherTensorsError(DeltawireError):
    """The model has other tensors than the version. Code "Mismatch"."""


class Reader:
    """Reads versions from a store's files.

    Attributes:
        bytes_read: of all files that were read so far.
    """

    def __init__(self, storage) -> None:
        self._storage = storage
        self.bytes_read = 0

    def manifest(self) -> Manifest:
        """The store's manifest; an empty one if there is none yet."""
        where = f"{self._storage.place}/{manifests.NAME}"
        try:
            data = self._storage.read(manifests.NAME, manifests.MAX_BYTES)
        except OSError as error:
            raise make_error("Io", f"{where} can't be read: {error}") from error
        if data is None:
            return Manifest()
        if len(data) > manifests.MAX_BYTES:
            raise make_error("Limit", f"{where} has more than {manifests.MAX_BYTES:,} bytes")
        self.bytes_read += len(data)
        return manifests.parse(where, data)

    def load(self, goal: int | None) -> tuple[Version, dict[str, Entry]]:
        """A version and its tensors, in memory of their own."""

        def make(version: Version, opened: list[OpenedFile]) -> dict[str, Entry]:
            made, digests = {}, {}
            for name, line in lines_of(opened, {}).items():
                weights = np.array(line.start)
                line.patch(name, weights)
                made[name] = Entry(line.dtype, line.shape, weights)
                digests[name] = line.result(weights)
            _check_digest(version, digest_of(digests), opened)
            return made

        return self._by_best_route(self.manifest(), None, goal, make)

    def update(
        self,
        model: Model,
        start: int | None,
        goal: int | None,
        lock: contextlib.AbstractContextManager | None,
        arrived: Callable[[], None] = lambda: None,
    ) -> Version:
        """Turns a model's weights into those of a version, all tensors or none. `arrived` is called
        when they are, under `lock`, and before a Ctrl-C that waited for them is raised."""
        manifest = self.manifest()
        start = _known_start(manifest, model, start)

        def make(version: Version, opened: list[OpenedFile]) -> None:
            targets = _targets(model, version)
            from_own = opened[0].file.base is not None
            own = {name: (each[0].dtype, each[0].shape) for name, each in targets.items()}
            lines = lines_of(opened, own if from_own else {})
            _check_structure(lines, targets, version)
            old, new, changing = _verify_all(lines, targets)
            whole = all(line.start is None for line in lines.values())
            if whole and digest_of(old) != manifest.find(start).digest:
                raise WrongBaseError("a shape, a dtype or a tensor without a patch differs")
            _check_digest(version, digest_of(new), opened)
            for _, tensor in changing:
                tensor.check_writable()
            with lock if lock is not None else contextlib.nullcontext(), _deferred_signals():
                _write_all(changing)
                arrived()

        try:
            return self._by_best_route(manifest, start, goal, make)[0]
        except WrongBaseError as error:
            if self.manifest().generation != manifest.generation:  # the writer may have gone back
                return self.update(model, start, goal, lock, arrived)
            raise _wrong_base(manifest, start, model, str(error)) from None

    def fetch(
        self, manifest: Manifest, start: int | None, held: Collection[str]
    ) -> list[OpenedFile]:
        """Reads the files that lead to the newest version of `manifest`, and makes nothing of them.

        Args:
            manifest: the store's.
            start: the version to begin at; of None, or one that the store doesn't know, a snapshot
                is read.
            held: names of files that cost nothing to read.
        """
        return self._by_best_route(manifest, start, None, lambda _, opened: opened, held)[1] or []

    def _by_best_route(
        self,
        manifest: Manifest,
        start: int | None,
        goal: int | None,
        make: Callable,
        held: Collection[str] = (),
    ):
        """The version, and what `make` makes of the files of the best route that can be read."""
        version = self._wanted(manifest, goal)
        unusable: dict[str, str] = {}
        while version.version != start:
            route = routes.shortest(manifest, start, version.version, unusable, held)
            if route is None:
                raise self._no_route(version, unusable)
            try:
                opened = [
                    OpenedFile(file, number, self._fetch(file))
                    for file, number in zip(route.files, route.versions, strict=True)
                ]
                made = make(version, opened)
                self._storage.cache.forget_all_but(manifest.files())
                return version, made
            except DamagedFileError as error:
                newest = self.manifest()
                if newest.generation != manifest.generation:  # it may have been collected
                    manifest, version = newest, self._wanted(newest, goal)
                    if error.file.name not in manifest.files():
                        continue
                unusable[error.file.name] = str(error)
                warnings.warn(
                    f"{self._storage.place}: a file can't be used, another way is taken: {error}",
                    RuntimeWarning,
                    stacklevel=4,
                )
        return version, None

    def _wanted(self, manifest: Manifest, goal: int | None) -> Version:
        if not manifest.versions:
            raise invalid(f"{self._storage.place} has no version yet: publish one first")
        found = manifest.versions[-1] if goal is None else manifest.find(goal)
        if found is None:
            raise invalid(
                f"{self._storage.place} has no version {goal}: it has {len(manifest.versions)}, "
                f"from {manifest.versions[0].version} to {manifest.latest}"
            )
        return found

    def _no_route(self, version: Version, unusable: dict[str, str]) -> DeltawireError:
        reasons = "; ".join(unusable.values()) or "the files that lead to it are gone"
        return corrupt(
            f"{self._storage.place}: nothing is left that version {version.version} could be made "
            f"from: {reasons}; take another version, or publish a new one"
        )

    def _fetch(self, file: StoredFile) -> np.ndarray:
        """A file's bytes, which are those that the writer stored."""
        try:
            data = self._storage.open(file)
        except DeltawireError as error:
            if error.code in _LOST:
                raise
            raise DamagedFileError(file, str(error)) from error
        except OSError as error:  # not of the store: it has given the bytes
            raise make_error(
                "Io",
                f"{file.name} can't be kept in {error.filename or 'memory'}: "
                f"{error.strerror or error}: make room, or use another cache=",
            ) from error
        if hashlib.sha256(data).hexdigest() != file.sha256:
            self._storage.cache.forget(file)
            raise DamagedFileError(file, f"{file.name} is damaged: its checksum is wrong")
        self.bytes_read += file.bytes
        return data


def _known_start(manifest: Manifest, model: Model, start: int | None) -> int | None:
    """The version that the model's weights are; None if they are none of the store."""
    doubtful = start is None or any(each.version == start for each in manifest.abandoned)
    if not doubtful:
        return start
    digest = model.digest()
    if start is None:
        return next((v.version for v in manifest.versions if v.digest == digest), None)
    found = manifest.find(start)
    if found is not None and found.digest == digest:
        return start
    return None if Abandoned(start, digest) in manifest.abandoned else start


def _targets(model: Model, version: Version) -> dict[str, list[ModelTensor]]:
    """The model's tensors by the name under which the version stores them.

    Names that are tied in the store may be so in the model, or not: each memory is there once.
    """
    names = {name: name for name in model.tensors} | model.tied
    targets: dict[str, list[ModelTensor]] = {}
    stored_as: dict[str, str] = {}
    for name, own in names.items():
        stored = version.tied.get(name, name)
        if stored_as.setdefault(own, stored) != stored:
            raise invalid(
                f"'{own}' and '{name}' are one tensor in the model, but two in version "
                f"{version.version}"
            )
        tensor = model.tensors[own]
        if tensor not in targets.setdefault(stored, []):
            targets[stored].append(tensor)
    return targets


def _check_structure(lines: dict[str, Line], targets: dict, version: Version) -> None:
    """Raises OtherTensorsError unless both have the same tensors."""
    number = version.version
    for name in lines.keys() ^ targets.keys():
        bare = name.removeprefix("module.")
        if bare in lines and f"module.{bare}" in targets:
            words = (
                f"the model has a tensor 'module.{bare}', which version {number} has without "
                "'module.': pass the module in DistributedDataParallel, or names without it"
            )
        elif name in lines:
            words = f"version {number} has a tensor '{name}', and the model has none: add it"
        else:
            words = f"the model has a tensor '{name}', and version {number} has none: leave it out"
        raise OtherTensorsError(words, "Mismatch")
    for name, line in lines.items():
        for tensor in targets[name]:
            if (tensor.dtype, tensor.shape) != (line.dtype, line.shape):
                raise OtherTensorsError(
                    f"'{tensor.name}' is {tensor.dtype} {list(tensor.shape)} in the model, and "
                    f"{line.dtype} {list(line.shape)} in version {number}: make it the same there",
                    "Mismatch",
                )


def _verify_all(
    lines: dict[str, Line], targets: dict
) -> tuple[dict, dict, list[tuple[Line, ModelTensor]]]:
    """Digests of all old and new tensors, and those that change; after it nothing is left of the
    files that could fail."""
    largest = max((tensor_bytes(line.dtype, line.shape) for line in lines.values()), default=0)
    scratch = np.empty(largest, np.uint8)
    old, new, changing = {}, {}, []
    for name, line in lines.items():
        for tensor in targets[name]:
            weights = tensor.read()
            new[name] = line.verify(tensor.name, weights, scratch[: len(weights)])
            old[name] = line.before(weights)
            if old[name] != new[name]:
                changing.append((line, tensor))
    return old, new, changing


@contextlib.contextmanager
def _deferred_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the block's end: Python's handlers run then.

    Python runs handlers in the main thread alone, so a block in another thread isn't interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, object]] = []
    handlers = {number: signal.getsignal(number) for number in _DEFERRED}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda *call: received.append(call))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in received:
            handlers[number](number, frame)


def _write_all(changing: list[tuple[Line, ModelTensor]]) -> None:
    for line, tensor in changing:
        weights = tensor.read()
        if line.start is not None:
            np.copyto(weights, line.start)
        try:
            line.patch(tensor.name, weights)
        except (DamagedFileError, WrongBaseError) as error:
            raise wrong_state(
                "the weights were changed by somebody else while they were updated, and are "
                f"of two versions now: load() one of them ({error})"
            ) from None
        tensor.write(weights)


def _check_digest(version: Version, digest: str, opened: list[OpenedFile]) -> None:
    if digest != version.digest:
        raise DamagedFileError(
            opened[-1].file,
            f"{opened[-1].file.name} makes weights with the digest {digest}, version "
            f"{version.version} has {version.digest}",
        )


def _wrong_base(manifest: Manifest, start: int | None, model: Model, reason: str) -> DeltawireError:
    """The error of a reader whose weights are not those that it says."""
    digest = model.digest()
    same = [each.version for each in manifest.versions if each.digest == digest]
    known = manifest.find(start) if start is not None else None
    if same:
        whose, advice = f"that of version {same[-1]}", f"pass from_version={same[-1]}"
    else:
        whose, advice = "no version's", "pass from_version=None, which takes a snapshot"
    return make_error(
        "Mismatch",
        f"the weights are not version {start}, whose digest is {known.digest if known else '?'}: "
        f"theirs is {digest}, {whose} ({reason}); nothing was written",
        advice=advice,
    )
