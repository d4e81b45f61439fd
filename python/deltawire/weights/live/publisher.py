"""The trainer's end: versions of a model's weights, served to subscribers over TCP."""

import os
import threading

from deltawire import arguments
from deltawire.errors import DeltawireError, invalid, make_error, wrong_state
from deltawire.session import leaving
from deltawire.weights.live.board import Board
from deltawire.weights.live.connection import secrets_of
from deltawire.weights.live.messages import NO_VERSION, RUN_BYTES
from deltawire.weights.live.server import Server
from deltawire.weights.live.staging import StagedModel
from deltawire.weights.live.tree import ReaderState, Tree
from deltawire.weights.store.folder import Folder
from deltawire.weights.store.memory import Memory
from deltawire.weights.store.model_tensors import Model
from deltawire.weights.store.reader import Reader
from deltawire.weights.store.writer import Policy, Writer

_CLOSE_SECONDS = 60.0  # a version of a large model takes so long


class Publisher(leaving.ClosesAtEnd):
    """Serves the versions of a model's weights to subscribers, from background threads.

    A reader that dies, lags or joins late costs the trainer nothing: `publish` copies the weights
    and returns, and memory doesn't grow with the readers. Memory, in copies of the model: the last
    version, one for each span in `merged`, a snapshot (two at times), and one or two of weights
    that are on their way to becoming a version. With `folder` snapshots are on disk.

    For one thread at a time.

    Args:
        model: a module, or a dict of PyTorch tensors or NumPy arrays, on any device; float32,
            float16, bfloat16, float8 and integers.
        address: "host:port" to listen at; port 0 for any free one.
        token: what subscribers must know, 16 bytes or more; None: DELTAWIRE_TOKEN. It is not sent.
        folder: keeps the versions in a folder, which is a `deltawire.weight_store`, instead of in
            memory; a publisher that starts again continues them.
        merged: spans, in versions, of patches for readers that missed some.
        snapshot_every: a snapshot of all weights is made after this many versions at the latest.
        keep: how many of the last versions can be reached by patches, back to a snapshot.
        fanout: how many readers read from here, and from each subscriber that serves others. More
            read from here where no subscriber serves.
        max_readers: more connections are refused.
        encryption: of all connections, by TLS 1.3 with a key from the token: "required", "auto"
            (those that leave the machine) or "off" (then whoever is on the way can read and replace
            weights); as the subscribers'. None: the environment's DELTAWIRE_ENCRYPTION, else
            "required".

    Raises:
        DeltawireError: code "AddressInUse" or "System" if it can't listen there; "State" if the
            folder has another writer.
        InvalidArgumentError: no token, an address that isn't this machine's, or an invalid setting.
    """

    def __init__(
        self,
        model: object,
        address: str,
        *,
        token: str | bytes | None = None,
        folder: str | os.PathLike[str] | None = None,
        merged: tuple[int, ...] = (8,),
        snapshot_every: int = 32,
        keep: int = 16,
        fanout: int = 4,
        max_readers: int = 256,
        encryption: arguments.Encryption | None = None,
    ) -> None:
        arguments.check_positive("fanout", fanout)
        arguments.check_positive("max_readers", max_readers)
        secrets = secrets_of(token, encryption)
        Model(model)  # what can't be published is refused now
        self._model, self._process = model, os.getpid()
        self._storage = Memory("the publisher") if folder is None else Folder(folder)
        self._writer = Writer(self._storage, Policy(merged, snapshot_every, keep, 4), False)
        self._run = os.urandom(RUN_BYTES)
        self._board = Board()
        self._tree = Tree(fanout)
        try:
            self._announce()
            self._server = Server(
                self._board, address, secrets, tree=self._tree, max_readers=max_readers
            )
        except BaseException:
            self._writer.close()
            raise
        self._changed = threading.Condition()
        # What waits for the thread: a version, its weights, and the one to go back to.
        self._staged: tuple[int, StagedModel, int | None] | None = None
        self._spare: list[StagedModel] = []  # with memory that is used again
        self._busy = False
        self._error: DeltawireError | None = None
        self._closed = False
        self._last = self.version  # given to `publish`
        self._thread = threading.Thread(target=self._work, name="deltawire publisher", daemon=True)
        self._thread.start()
        leaving.leave_at_exit(self)

    @property
    def address(self) -> str:
        """ "host:port" where it listens."""
        return self._server.address

    @property
    def version(self) -> int | None:
        """The newest version that readers can fetch."""
        newest = self._board.newest()[1]
        return None if newest == NO_VERSION else newest

    @property
    def bytes_sent(self) -> int:
        """To all readers, so far."""
        return self._server.bytes_sent

    def readers(self) -> list[ReaderState]:
        """The subscribers that are connected."""
        return self._tree.readers()

    def publish(self, version: int | None = None, *, after: int | None = None) -> int:
        """Makes the model's weights a version, e.g. after each step.

        It returns when they are copied; patches are made in the background, and readers get them
        then. If that takes longer than a step, the newest weights that wait take the place of those
        that waited before: readers miss a version, the trainer doesn't wait.

        Args:
            version: above all published ones; None for the next number.
            after: for a trainer that resumes from an older checkpoint: versions above this one are
                dropped, and their numbers may be used again. Readers are led to the new one.

        Returns:
            the version's number.

        Raises:
            DeltawireError: what went wrong with an earlier version, e.g. code "Io" if the disk is
                full; "State" after `close`, or in a forked process.
            InvalidArgumentError: a version that is not above the last one.
            DTypeError: a tensor that patches don't know.
        """
        self._check()
        last = self._last
        if after is not None:
            last = after = arguments.check_count("after", after)
        if version is None:
            version = 0 if last is None else last + 1
        version = arguments.check_count("version", version)
        if last is not None and version <= last:
            raise invalid(f"version {version} does not follow version {last}: give a higher number")
        model = Model(self._model)
        with self._changed:
            if self._staged is not None:
                target = self._staged[1]
                waiting = self._staged[2]  # may not have gone back yet
                if waiting is not None:
                    after = waiting if after is None else min(after, waiting)
            else:
                target = self._spare.pop() if self._spare else StagedModel()
            self._staged = None  # nobody takes it while it is written
        try:
            target.copy(model)
        except BaseException:
            with self._changed:
                self._spare.append(target)
            raise
        with self._changed:
            self._staged = version, target, after
            self._last = version
            self._changed.notify_all()
        return version

    def flush(self, timeout: float = 60.0) -> None:
        """Waits until readers can fetch the last version.

        Raises:
            DeltawireError: code "Timeout"; otherwise as for `publish`.
        """
        arguments.check_finite("timeout", timeout)
        with self._changed:
            if not self._changed.wait_for(self._is_idle, timeout):
                raise make_error(
                    "Timeout", f"version {self._last} is not ready after {timeout:g} s"
                )
        self._check()

    def close(self) -> None:
        """Ends all connections. Versions that wait are not published: `flush` waits for them.

        In a forked process it does nothing.
        """
        if os.getpid() != self._process:
            return
        leaving.forget(self)
        with self._changed:
            self._closed = True
            self._staged = None
            self._changed.notify_all()
        self._server.close()
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._writer.close()

    def _check(self) -> None:
        leaving.check_own_process(self._process, "publisher")
        if self._closed:
            raise wrong_state("the publisher is closed")
        with self._changed:
            error, self._error = self._error, None
        if error is not None:
            raise error

    def _is_idle(self) -> bool:
        return (self._staged is None and not self._busy) or not self._thread.is_alive()

    def _announce(self) -> None:
        self._board.announce(self._run, self._storage, Reader(self._storage).manifest())

    def _work(self) -> None:
        """The thread that makes versions."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._staged is not None or self._closed)
                if self._closed:
                    return
                version, staged, after = self._staged
                self._staged, self._busy = None, True
            error = None
            try:
                self._writer.publish(staged, version, after)
                if after is not None and self._board.newest()[1] > after:
                    self._run = os.urandom(RUN_BYTES)  # the numbers mean other weights now
                self._announce()
            except DeltawireError as raised:
                error = raised
            except Exception as raised:
                error = make_error("System", f"version {version} can't be published: {raised!r}")
            with self._changed:
                self._error = error or self._error
                self._spare.append(staged)
                self._busy = False
                self._changed.notify_all()
