"""Ports of the loopback."""

import socket


def free_port() -> int:
    """A port where nothing listens; another process may take it at any time."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
