"""Serves a board to readers that know the token, a thread for each."""

import contextlib
import errno
import os
import socket
import ssl
import threading
import time
import weakref

from deltawire import _core
from deltawire.errors import DeltawireError, make_error
from deltawire.live import handshake, messages
from deltawire.live.board import Board
from deltawire.live.connection import Connection, deadline_for
from deltawire.live.messages import NO_VERSION, Place, Placed, Read, Wait
from deltawire.live.tree import Tree

IDLE_SECONDS = 60.0  # a reader that asks nothing for so long is gone
_MAX_STRANGERS = 64  # connections that have not proved themselves; the oldest gives way
_CLOSE_SECONDS = 5.0
_PAUSE = 0.1  # seconds, after an error of `accept`

_listening: "weakref.WeakSet[Server]" = weakref.WeakSet()


class Server:
    """Listens from construction until `close`.

    Args:
        board: what is served.
        address: "host:port" to listen at; port 0 for any free one.
        secret: the token.
        tree: gives readers their parents; None: all read from here.
        max_readers: at the same time; more are refused.
        tls: of the server's side; None for connections without TLS.

    Attributes:
        address: "host:port" where it listens.
        port: of the address.

    Raises:
        DeltawireError: code "AddressInUse" or "System" if it can't listen there.
    """

    def __init__(
        self,
        board: Board,
        address: str,
        secret: bytes,
        *,
        tree: Tree | None,
        max_readers: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._board, self._secret, self._tree, self._tls = board, secret, tree, tls
        self._max_readers = max_readers
        self._lock = threading.Lock()
        self._strangers: dict[Connection, None] = {}  # in the order in which they came
        self._readers: set[Connection] = set()
        self._threads: set[threading.Thread] = set()
        self._sent = 0  # over connections that have ended
        self._closed = False
        self._listener = _listen(address)
        host, self.port = self._listener.getsockname()[:2]
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        _listening.add(self)
        self._acceptor = threading.Thread(
            target=self._accept, name=f"deltawire weights {self.address}", daemon=True
        )
        self._acceptor.start()

    @property
    def bytes_sent(self) -> int:
        """To readers, so far; without those of TCP and TLS."""
        with self._lock:
            return self._sent + sum(each.sent for each in (*self._readers, *self._strangers))

    def close(self) -> None:
        """Ends all connections. May be called again."""
        with self._lock:
            self._closed = True
            connections = [*self._readers, *self._strangers]
            threads = [self._acceptor, *self._threads]
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._board.close()
        for connection in connections:
            connection.wake()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._listener.close()

    def close_in_child(self) -> None:
        """In a forked process: its copy of the socket must not keep the port."""
        with contextlib.suppress(OSError):
            os.close(self._listener.detach())

    def _accept(self) -> None:
        while not self._closed:
            try:
                opened, where = self._listener.accept()
            except OSError:
                if not self._closed:
                    time.sleep(_PAUSE)  # e.g. no file descriptor is left
                continue
            try:
                if self._tls is not None:
                    opened = self._tls.wrap_socket(
                        opened, server_side=True, do_handshake_on_connect=False
                    )
            except OSError:
                opened.close()
                continue
            self._start(Connection(opened, f"a reader at {where[0]}"))

    def _start(self, connection: Connection) -> None:
        thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
        with self._lock:
            if self._closed:
                connection.close()
                return
            if len(self._strangers) >= _MAX_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.wake()
            self._strangers[connection] = None
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # no thread is left
            self._end(connection, thread)

    def _run(self, connection: Connection) -> None:
        """A connection's thread."""
        try:
            if handshake.answer(connection, self._secret):
                self._admit(connection)
                self._serve(connection)
        except DeltawireError as error:
            if error.code in ("Corrupt", "Limit"):
                with contextlib.suppress(DeltawireError):
                    connection.send(messages.refused(str(error)))
        finally:
            self._end(connection, threading.current_thread())

    def _admit(self, connection: Connection) -> None:
        with self._lock:
            self._strangers.pop(connection, None)
            self._readers.add(connection)
            count = len(self._readers)
        if count > self._max_readers:
            raise make_error(
                "Limit", f"{self.address} has its {self._max_readers} readers (max_readers)"
            )

    def _end(self, connection: Connection, thread: threading.Thread) -> None:
        connection.close()
        if self._tree is not None:
            self._tree.leave(connection)
        with self._lock:
            self._strangers.pop(connection, None)
            self._readers.discard(connection)
            self._threads.discard(thread)
            self._sent += connection.sent

    def _serve(self, connection: Connection) -> None:
        """Answers requests until the connection ends, or one is none."""
        while not self._closed:
            idle = time.monotonic() + IDLE_SECONDS
            kind, length = messages.parse_header(connection.receive(messages.HEADER_BYTES, idle))
            if length > messages.MAX_REQUEST:
                raise make_error("Limit", f"a request of {length:,} bytes")
            body = connection.receive(length, deadline_for(length)) if length else b""
            request = messages.parse_request(kind, body)
            if isinstance(request, Wait):
                self._answer_wait(connection, request)
            elif isinstance(request, Read):
                self._answer_read(connection, request)
            else:
                connection.send(messages.placed(self._placed(connection, request)))

    def _answer_wait(self, connection: Connection, request: Wait) -> None:
        manifest = self._board.wait(request.run, request.version, request.milliseconds / 1000)
        if manifest is None:
            connection.send(messages.frame(messages.NOTHING))
        else:
            connection.send(messages.header(messages.MANIFEST, len(manifest)), manifest)

    def _answer_read(self, connection: Connection, request: Read) -> None:
        data = self._board.data(request.name)
        if data is None or request.offset > len(data):
            connection.send(messages.frame(messages.MISSING))
            return
        part = data[request.offset : request.offset + request.count]
        connection.send(messages.header(messages.DATA, len(part)), part)

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


def _listen(address: str) -> socket.socket:
    text = str(address)
    any_port = text.endswith(":0")
    host, port = _core.parse_endpoint(f"{text[:-1]}1" if any_port else text, "address")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, 0 if any_port else port), family=family, backlog=128)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        advice = "another program has the port" if taken else "give an address of this machine"
        raise make_error(
            "AddressInUse" if taken else "System",
            f"{address} can't be listened at: {error.strerror or error}: {advice}",
        ) from error


def _close_in_child() -> None:
    for server in list(_listening):
        server.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
