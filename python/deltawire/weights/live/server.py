"""Serves a board to readers that know the token, a thread for each."""

import contextlib
import threading
import time

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.weights.live import messages
from deltawire.weights.live.board import Board
from deltawire.weights.live.connection import PATIENCE, Connection, Secrets
from deltawire.weights.live.messages import NO_VERSION, Place, Placed, Read, Wait
from deltawire.weights.live.tree import Tree

IDLE_SECONDS = 60.0  # a reader that asks nothing for so long is gone
_CLOSE_SECONDS = 5.0
_LAST_SECONDS = 1.0  # for a request that is on its way when a reader is refused
_ANSWER_MS = 100
_PAUSE = 0.1  # seconds, after an error of the door


class Server:
    """Listens from construction until `close`.

    Args:
        board: what is served.
        address: "host:port" to listen at; port 0 for any free one.
        secrets: those of all readers.
        tree: gives readers their parents; None: all read from here.
        max_readers: at the same time; more are refused.

    Attributes:
        address: "host:port" where it listens.
        port: of the address.

    Raises:
        DeltawireError: code "AddressInUse", "InvalidArgument" or "System" if it can't listen there.
    """

    def __init__(
        self, board: Board, address: str, secrets: Secrets, *, tree: Tree | None, max_readers: int
    ) -> None:
        self._board, self._tree = board, tree
        self._max_readers = max_readers
        self._lock = threading.Lock()
        self._readers: set[Connection] = set()
        self._threads: set[threading.Thread] = set()
        self._sent = 0  # over connections that have ended
        self._closed = False
        self._door = _core.open_door(_listen(address), *secrets)
        host, self.port = self._door.endpoint
        self.address = _address(host, self.port)
        self._acceptor = threading.Thread(
            target=self._accept, name=f"deltawire weights {self.address}", daemon=True
        )
        self._acceptor.start()

    @property
    def bytes_sent(self) -> int:
        """To readers, so far; without those of lines, TLS and TCP."""
        with self._lock:
            return self._sent + sum(each.sent for each in self._readers)

    def close(self) -> None:
        """Ends all connections. May be called again."""
        with self._lock:
            self._closed = True
            connections = list(self._readers)
            threads = [self._acceptor, *self._threads]
        self._board.close()
        for connection in connections:
            connection.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self) -> None:
        while not self._closed:
            try:
                line = self._door.answer(_ANSWER_MS)
            except DeltawireError:
                time.sleep(_PAUSE)  # e.g. no file descriptor is left
                continue
            if line is not None:
                self._start(Connection(line, f"a reader at {line.peer[0]}"))
        del self._door  # nobody listens any more

    def _start(self, connection: Connection) -> None:
        thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._readers.add(connection)
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # no thread is left
            self._end(connection, thread)

    def _run(self, connection: Connection) -> None:
        """A connection's thread."""
        try:
            messages.check_hello(connection.receive(1 + messages.MAX_REQUEST, PATIENCE))
            with self._lock:
                count = len(self._readers)
            if count > self._max_readers:
                raise make_error(
                    "Limit", f"{self.address} has its {self._max_readers} readers (max_readers)"
                )
            self._serve(connection)
        except DeltawireError as error:
            if error.code in ("Corrupt", "Limit", "Mismatch"):
                with contextlib.suppress(DeltawireError):
                    connection.send(messages.refused(str(error)))
                    # A request that nobody has read would take the reason along, as TCP resets.
                    connection.receive(1 + messages.MAX_REQUEST, _LAST_SECONDS)
        finally:
            self._end(connection, threading.current_thread())

    def _end(self, connection: Connection, thread: threading.Thread) -> None:
        connection.close()
        if self._tree is not None:
            self._tree.leave(connection)
        with self._lock:
            self._readers.discard(connection)
            self._threads.discard(thread)
            self._sent += connection.sent

    def _serve(self, connection: Connection) -> None:
        """Answers requests until the connection ends, or one is none."""
        while not self._closed:
            request = messages.parse_request(
                *messages.parse(connection.receive(1 + messages.MAX_REQUEST, IDLE_SECONDS))
            )
            if isinstance(request, Wait):
                answer = self._manifest(request)
            elif isinstance(request, Read):
                answer = self._data(request)
            else:
                answer = messages.placed(self._placed(connection, request))
            connection.send(answer)

    def _manifest(self, request: Wait) -> bytes:
        manifest = self._board.wait(request.run, request.version, request.milliseconds / 1000)
        if manifest is None:
            return messages.frame(messages.NOTHING)
        return messages.frame(messages.MANIFEST, manifest)

    def _data(self, request: Read) -> bytes:
        data = self._board.data(request.name)
        if data is None or request.offset > len(data):
            return messages.frame(messages.MISSING)
        part = data[request.offset : request.offset + request.count]
        return messages.frame(messages.DATA, part.tobytes())

    def _placed(self, connection: Connection, request: Place) -> Placed:
        parent = ""
        if self._tree is not None:
            host = connection.peer_host
            serves = _address(request.host or host, request.port) if request.port else ""
            version = None if request.version == NO_VERSION else request.version
            parent = self._tree.place(connection, host, serves, version, request.lost)
        return Placed(*self._board.newest(), parent)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listen(address: str) -> _core.Listener:
    text = str(address)
    any_port = text.endswith(":0")
    host, port = _core.parse_endpoint(f"{text[:-1]}1" if any_port else text, "address")
    return _core.Listener(host, 0 if any_port else port)
