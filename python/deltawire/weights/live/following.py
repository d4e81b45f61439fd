"""The thread of a subscriber: it keeps a connection to the publisher, fetches what is new from the
parent that the publisher names, and offers it to other subscribers."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator

from deltawire.errors import DeltawireError, make_error, wrong_state
from deltawire.weights.live.board import Board
from deltawire.weights.live.connection import Secrets
from deltawire.weights.live.fetched import Fetched
from deltawire.weights.live.messages import NO_VERSION, Place, Placed
from deltawire.weights.live.peer import Peer
from deltawire.weights.live.upstream import Upstream
from deltawire.weights.store.download import Cache
from deltawire.weights.store.reader import Reader

WAIT_SECONDS = 3.0  # of one request for a newer version; also how often the publisher hears of us
LAG_SECONDS = 10.0  # a parent that is so long behind the publisher is left
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 10.0  # between attempts to connect
_CLOSE_SECONDS = 30.0  # hashing a large model takes so long


class Following:
    """Follows a publisher from `start` until `close`.

    Args:
        address: the publisher's.
        secrets: those of publisher and parents.
        cache: for files.
        digest: gives that of the weights now.
        board: where others find what was fetched.
        serves: host and port at which they do; port 0 if they don't.

    Attributes:
        changed: notified when `fetched` or `problem` changes.
        fetched: of the current run; None before the first connection.
        problem: the last error since something was fetched, or a wait for it went well.
    """

    def __init__(
        self,
        address: str,
        secrets: Secrets,
        cache: Cache,
        digest: Callable[[], str],
        board: Board,
        serves: tuple[str, int],
    ) -> None:
        self._address, self._secrets = address, secrets
        self._cache, self._digest, self._board, self._serves = cache, digest, board, serves
        self.changed = threading.Condition()
        self.fetched: Fetched | None = None
        self.problem: DeltawireError | None = None
        self._received = 0  # over connections that have ended
        self._parent = ""
        self._pause = _FIRST_PAUSE
        self._peers: list[Peer] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"deltawire subscriber of {address}", daemon=True
        )
        self._thread.start()

    @property
    def bytes_received(self) -> int:
        """From publisher and parents, so far."""
        with self.changed:
            return self._received + sum(peer.received for peer in self._peers)

    @property
    def parent(self) -> str:
        """Whom it reads from, "host:port"."""
        return self._parent

    def check_open(self) -> None:
        """Raises DeltawireError, code "State", after `close`."""
        if self._closed.is_set():
            raise wrong_state("the subscriber is closed")

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        with self.changed:
            for peer in self._peers:
                peer.close()
            self.changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow()
            except DeltawireError as error:
                self._set_problem(error)
            except Exception as error:  # whatever it is, the server goes on serving
                self._set_problem(make_error("System", f"fetching weights failed: {error!r}"))
            self._rest()

    def _rest(self) -> None:
        """Pauses before the next attempt, longer each time until one goes well."""
        self._closed.wait(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, _LAST_PAUSE)

    def _follow(self) -> None:
        """Follows over one connection to the publisher, until that has an error."""
        with self._connection(self._address) as root:
            lost = False
            while not self._closed.is_set():
                lost = not self._follow_parent(root, self._place(root, lost))

    def _follow_parent(self, root: Peer, placed: Placed) -> bool:
        """Fetches from the parent until another one is due. False: this one is of no use."""
        if not placed.parent:
            return self._fetch_from(root, root, placed)
        try:
            with self._connection(placed.parent) as parent:
                return self._fetch_from(root, parent, placed)
        except DeltawireError as error:
            if root.closed:
                raise
            self._set_problem(error)
            self._rest()
            return error.code == "Io"  # a full cache is not the parent's fault

    def _fetch_from(self, root: Peer, parent: Peer, placed: Placed) -> bool:
        """Fetches until the publisher names another parent. False: this one lags."""
        self._parent = parent.address
        if self.fetched is None or self.fetched.run != placed.run:
            with self.changed:
                self.fetched = Fetched(placed.run)
        fetched = self.fetched
        lag = Lag(placed.latest)
        told = time.monotonic()
        while not self._closed.is_set():
            newest = fetched.newest if fetched.ready is not None else NO_VERSION
            upstream = self._upstream(parent, fetched, newest)
            if upstream.wait(WAIT_SECONDS):
                self._fetch(root, upstream, fetched)
            elif parent is root or fetched.newest >= placed.latest:
                self._set_problem(None)
            if time.monotonic() - told < WAIT_SECONDS:
                continue
            told = time.monotonic()
            now = self._place(root, False)
            if now.parent != placed.parent or now.run != placed.run:
                return True
            if lag.is_too_long(fetched.newest, now.latest) and parent is not root:
                self._set_problem(
                    make_error(
                        "Timeout",
                        f"{parent.address} is at version {fetched.newest}, the publisher at "
                        f"{now.latest}: another parent is asked for",
                    )
                )
                return False
        return True

    def _fetch(self, root: Peer, upstream: Upstream, fetched: Fetched) -> None:
        """Fetches what leads from the weights to the newest version, and offers it to others."""
        reader = Reader(upstream)
        manifest = reader.manifest()
        fetched.recognize(manifest, self._digest)
        start = NO_VERSION if fetched.at is None else fetched.at
        try:
            opened = reader.fetch(manifest, start, fetched.held())
        except DeltawireError as error:
            if error.code != "Corrupt" or upstream.place == root.address:
                raise
            # A parent has what it needed itself. What it lacks, the publisher has.
            upstream = self._upstream(root, fetched, NO_VERSION)
            if not upstream.wait(0):
                raise
            reader = Reader(upstream)
            manifest = reader.manifest()
            opened = reader.fetch(manifest, start, fetched.held())
        own = fetched.add(manifest, opened)
        self._board.announce(fetched.run, fetched.memory, own)
        self._set_problem(None)

    def _upstream(self, peer: Peer, fetched: Fetched, newest: int) -> Upstream:
        return Upstream(peer, fetched.run, newest, self._cache, fetched.memory)

    def _place(self, root: Peer, lost: bool) -> Placed:
        known = NO_VERSION if self.fetched is None else self.fetched.newest
        host, port = self._serves
        return root.place(Place(known, port, host, lost))

    def _set_problem(self, problem: DeltawireError | None) -> None:
        if problem is None:
            self._pause = _FIRST_PAUSE
        with self.changed:
            self.problem = problem
            self.changed.notify_all()

    @contextlib.contextmanager
    def _connection(self, address: str) -> Iterator[Peer]:
        peer = Peer(address, self._secrets)
        with self.changed:
            self._peers.append(peer)
        if self._closed.is_set():
            peer.close()
        try:
            yield peer
        finally:
            peer.close()
            with self.changed:
                self._peers.remove(peer)
                self._received += peer.received


class Lag:
    """How long a parent has been behind the publisher, and given nothing."""

    def __init__(self, latest: int) -> None:
        self._goal = latest
        self._newest = NO_VERSION
        self._since = time.monotonic()

    def is_too_long(self, newest: int, latest: int) -> bool:
        """Whether the parent has given nothing for LAG_SECONDS, and the publisher had more.

        Args:
            newest: the newest version from the parent.
            latest: the publisher's now.
        """
        if newest >= self._goal or newest != self._newest:
            self._goal, self._newest, self._since = latest, newest, time.monotonic()
            return False
        return time.monotonic() - self._since > LAG_SECONDS
