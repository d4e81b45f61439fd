"""What a subscriber has fetched of one run of the publisher, in its memory."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from deltawire.errors import DeltawireError, changed
from deltawire.weights.live.messages import NO_VERSION
from deltawire.weights.store import manifest as manifests
from deltawire.weights.store import routes
from deltawire.weights.store.lines import OpenedFile
from deltawire.weights.store.manifest import Manifest
from deltawire.weights.store.memory import Memory
from deltawire.weights.store.model_tensors import Model, arrays_of, framework_of
from deltawire.weights.store.reader import OtherTensorsError, Reader


class Fetched:
    """Files of one run. One thread adds to them, another one updates weights from them.

    Attributes:
        run: the publisher's.
        memory: the files, with a manifest that names no others.
        newest: the newest version that was fetched, or NO_VERSION.
        at: the version that the weights are; None if they are no version that is known.
    """

    def __init__(self, run: bytes) -> None:
        self.run = run
        self.memory = Memory("the subscriber")
        self.newest = NO_VERSION
        self.at: int | None = None
        self._manifest = Manifest()

    @property
    def ready(self) -> int | None:
        """The version that `update` can make of the weights; None if it can make none."""
        manifest, at = self._manifest, self.at
        newest = manifest.latest
        if newest is None or newest == at:
            return newest
        return None if routes.shortest(manifest, at, newest) is None else newest

    def held(self) -> set[str]:
        """Names of the files."""
        return set(self.memory.names())

    def add(self, manifest: Manifest, opened: list[OpenedFile]) -> Manifest:
        """Adds files, drops those that `manifest` doesn't name; returns it without what isn't
        here."""
        for each in opened:
            self.memory.keep(each.file.name, each.data)
        held = self.held()
        own = replace(
            manifest,
            versions=tuple(
                replace(each, files=tuple(file for file in each.files if file.name in held))
                for each in manifest.versions
            ),
            retired={name: last for name, last in manifest.retired.items() if name in held},
        )
        self.memory.replace(manifests.NAME, manifests.to_bytes(own))
        for name in held - own.files():
            self.memory.remove(name)
        self._manifest = own
        self.newest = NO_VERSION if own.latest is None else own.latest
        return own

    def recognize(self, manifest: Manifest, digest: Callable[[], str]) -> None:
        """Finds out which version the weights are, if that isn't known."""
        if self.at is None and manifest.versions:
            found = digest()
            same = [each.version for each in manifest.versions if each.digest == found]
            self.at = same[-1] if same else None

    def load(self, lock: AbstractContextManager) -> dict[str, object]:
        """The newest version's weights, in memory of their own; `at` changes under `lock`."""
        version, tensors = Reader(self.memory).load(None)
        weights = arrays_of(tensors, version.tied, framework_of(None))
        with lock:
            self.at = version.version
        return weights

    def update(self, model: object, lock: AbstractContextManager) -> None:
        """Turns weights into the newest version, all tensors or none; `at` changes under `lock`."""
        start = NO_VERSION if self.at is None else self.at
        goal = self.newest

        def arrived() -> None:
            self.at = goal

        try:
            Reader(self.memory).update(Model(model), start, goal, lock, arrived)
        except OtherTensorsError:
            raise  # no snapshot would fit
        except DeltawireError as error:
            if error.code not in ("Mismatch", "State"):
                raise
            self.at = None
            advice = (
                "a snapshot is fetched if they are no version: wait() for it, then update() again"
            )
            raise changed(error, advice=advice) from error
