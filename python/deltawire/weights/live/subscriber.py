"""The end of an inference server or replica: weights that follow a publisher's."""

import os
import threading
import time
from contextlib import AbstractContextManager

from deltawire import _core, arguments
from deltawire.errors import DeltawireError, make_error
from deltawire.session import leaving
from deltawire.weights.live.board import Board
from deltawire.weights.live.connection import secrets_of
from deltawire.weights.live.following import Following
from deltawire.weights.live.reading_lock import ReadingLock
from deltawire.weights.live.server import Server
from deltawire.weights.store.download import Cache
from deltawire.weights.store.model_tensors import Model

_ANY_HOST = ("0.0.0.0", "::")


class Subscriber(leaving.ClosesAtEnd):
    """Fetches a publisher's versions in the background, and updates weights when it is asked to.

    Only `update` writes to the weights, in place, all tensors or none, and bit for bit what was
    published. It may be called from one thread while others read the weights within `reading()`.
    Everything else may be called from any thread.

    It needs memory for the files that lead from the weights to the newest version, or room for them
    in `cache`.

    Args:
        model: as the publisher's: a module, or a dict of tensors or arrays, with the same names,
            dtypes and shapes, on any device. Weights that are a version of the publisher's take
            patches alone, others a snapshot. None: the first `update` makes a dict of them, of
            PyTorch tensors where that is installed.
        address: the publisher's, "host:port". It may start later.
        token: the publisher's; None: DELTAWIRE_TOKEN.
        serve: "host:port" at which this one serves others what it has fetched, so that the
            publisher sends less; port 0 for any free one. Others must reach it at `host`, or, if
            that is 0.0.0.0, where the publisher sees this one's connection come from.
        max_readers: others at the same time, at most.
        cache: a folder in which downloads stay and are continued, also after a restart.
        encryption: as the publisher's.

    Attributes:
        model: the weights; None before the first `update` if none were given.

    Raises:
        DeltawireError: code "AddressInUse" or "System" if it can't listen at `serve`.
        InvalidArgumentError: no token, or an address that is none.
    """

    def __init__(
        self,
        model: object | None,
        address: str,
        *,
        token: str | bytes | None = None,
        serve: str | None = None,
        max_readers: int = 64,
        cache: str | os.PathLike[str] | None = None,
        encryption: arguments.Encryption | None = None,
    ) -> None:
        arguments.check_positive("max_readers", max_readers)
        secrets = secrets_of(token, encryption)
        _core.parse_endpoint(str(address), "address")
        if model is not None:
            Model(model)  # what can't be updated is refused now
        self.model = model
        self._process = os.getpid()
        self._lock = ReadingLock()
        self._one_update = threading.Lock()
        self._board = Board()
        self._server: Server | None = None
        place = ("", 0)
        if serve is not None:
            self._server = Server(self._board, serve, secrets, tree=None, max_readers=max_readers)
            host = self._server.address.rpartition(":")[0].strip("[]")
            place = ("" if host in _ANY_HOST else host, self._server.port)
        self._following = Following(
            str(address), secrets, Cache(cache, str(address)), self._digest, self._board, place
        )
        leaving.leave_at_exit(self)

    @property
    def version(self) -> int | None:
        """The version that the weights are; None if that isn't known, or they are none."""
        fetched = self._following.fetched
        return None if fetched is None else fetched.at

    @property
    def latest(self) -> int | None:
        """The version that `update` would make of the weights now; None if there is none yet."""
        fetched = self._following.fetched
        return None if fetched is None else fetched.ready

    @property
    def problem(self) -> DeltawireError | None:
        """Why nothing can be fetched at present; it is tried again. None if all is well."""
        return self._following.problem

    @property
    def parent(self) -> str:
        """Whom it fetches from, "host:port"; empty before the first connection."""
        return self._following.parent

    @property
    def address(self) -> str | None:
        """ "host:port" where it serves others; None if it doesn't."""
        return None if self._server is None else self._server.address

    @property
    def bytes_received(self) -> int:
        """From publisher and parents, so far."""
        return self._following.bytes_received

    @property
    def bytes_sent(self) -> int:
        """To others, so far."""
        return 0 if self._server is None else self._server.bytes_sent

    def reading(self) -> AbstractContextManager[None]:
        """A block in which the weights are of one version: `update` waits for its end.

        Blocks in any number of threads may overlap; while `update` waits, new ones wait for it.
        """
        return self._lock.reading()

    def update(self, timeout: float = 60.0) -> int | None:
        """Turns the weights into the newest version that was fetched. Never waits for the network.

        Everything is checked before the first write, so after an error the weights are as they
        were. Ctrl-C and SIGTERM wait for the writes.

        Args:
            timeout: seconds for blocks of `reading()` to end.

        Returns:
            the version that the weights are now; None if nothing was fetched yet and they are no
            version that is known.

        Raises:
            DeltawireError: code "Mismatch" if the weights are not the version that they should be,
                because something else wrote to them, or the model has other tensors; "Timeout" if
                `reading()` does not end; "State" within `reading()`, after `close`, or in a
                forked process.
        """
        arguments.check_finite("timeout", timeout)
        leaving.check_own_process(self._process, "subscriber")
        self._lock.check_not_reading()
        with self._one_update:
            self._following.check_open()
            fetched = self._following.fetched
            if fetched is None or fetched.ready is None or fetched.ready == fetched.at:
                return self.version
            if self.model is None:
                self.model = fetched.load(self._lock.writing(timeout))
            else:
                fetched.update(self.model, self._lock.writing(timeout))
            return fetched.at

    def wait(self, version: int | None = None, timeout: float = 60.0) -> int:
        """Waits until `update` can make this version, or a later one, of the weights.

        Args:
            version: None: any that the weights are not yet.
            timeout: in seconds.

        Returns:
            the version that `update` would make.

        Raises:
            DeltawireError: code "Timeout", with the reason if one is known; "Unauthorized" at once,
                if publisher and subscriber have different tokens; "State" after `close`, or in a
                forked process.
        """
        following = self._following
        if version is not None:
            version = arguments.check_count("version", version)
        arguments.check_finite("timeout", timeout)
        leaving.check_own_process(self._process, "subscriber")
        deadline = time.monotonic() + timeout
        with following.changed:
            while True:
                following.check_open()
                latest, problem = self.latest, following.problem
                if latest is not None and (
                    latest != self.version if version is None else latest >= version
                ):
                    return latest
                if problem is not None and problem.code == "Unauthorized":
                    raise problem
                left = deadline - time.monotonic()
                if left <= 0:
                    wanted = "a new version" if version is None else f"version {version}"
                    reason = f": {problem}" if problem is not None else ""
                    raise make_error(
                        "Timeout", f"{wanted} did not come within {timeout:g} s{reason}"
                    )
                following.changed.wait(left)

    def close(self) -> None:
        """Ends all connections; the weights stay as they are.

        In a forked process it does nothing.
        """
        if os.getpid() != self._process:
            return
        leaving.forget(self)
        self._following.close()
        if self._server is not None:
            self._server.close()

    def _digest(self) -> str:
        with self._lock.reading():
            return "" if self.model is None else Model(self.model).digest()
