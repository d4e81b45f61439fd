"""Ports of this machine that a test keeps for the programs that it starts."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def kept_ports(count: int = 1) -> Iterator[list[socket.socket]]:
    """Sockets that are bound to ports next to each other, and don't listen: no program gets such a
    port by chance, and the one that asks for it by number (with SO_REUSEADDR, as servers do) gets
    it. What listens on such a socket takes the port."""
    while True:
        with contextlib.ExitStack() as held:
            try:
                sockets = [held.enter_context(_bound(0))]
                for above in range(1, count):
                    sockets.append(held.enter_context(_bound(number_of(sockets[0]) + above)))
            except (OSError, OverflowError):
                continue  # the next one is taken
            yield sockets
            return


def _bound(port: int) -> socket.socket:
    found = socket.socket()
    try:
        found.bind(("127.0.0.1", port))
    except BaseException:
        found.close()
        raise
    # Only now: a port that it was bound with would be anybody's who has this option, too.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return found


def number_of(held: socket.socket) -> int:
    """Its port."""
    return held.getsockname()[1]


@contextlib.contextmanager
def kept_port() -> Iterator[int]:
    """One such port's number."""
    with kept_ports() as (held,):
        yield number_of(held)
