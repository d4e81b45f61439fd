"""What is between two ends of a connection, and may change what it passes on."""

import contextlib
import socket
import threading


class Relay:
    """A listener between two ends that may change or cut what the server sends.

    Attributes:
        address: of the listener.
        change: is given each piece, and returns what is passed on; None ends the connection.
    """

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.change = lambda piece: piece
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(self._target)
                for one, other, changes in ((inner, outer, False), (outer, inner, True)):
                    threading.Thread(
                        target=self._pass, args=(one, other, changes), daemon=True
                    ).start()

    def _pass(self, one: socket.socket, other: socket.socket, changes: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(1 << 16):
                if changes and (piece := self.change(piece)) is None:
                    break
                other.sendall(piece)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
