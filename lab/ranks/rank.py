"""A rank in its own process: its place, the line to its launcher, its process group.

PyTorch is imported in functions, because the launcher, which imports this file, doesn't need it.
"""

import contextlib
import dataclasses
import datetime
import multiprocessing
import multiprocessing.connection
import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

END = "end"  # the last message that a launcher sends


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a rank runs.

    Attributes:
        rank, ranks: its number, and how many there are.
        store: a file that all ranks share, for PyTorch's rendezvous.
        interface, address: of the link, as PyTorch and as deltawire take it.
        namespace: the network namespace of the link; None for the loopback.
    """

    rank: int
    ranks: int
    store: str
    interface: str = "lo"
    address: str = "127.0.0.1"
    namespace: str | None = None


class Line:
    """The line to the launcher. When it ends, this process ends too, whatever it is doing."""

    def __init__(self, connection: multiprocessing.connection.Connection) -> None:
        self._connection = connection
        self._messages: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="launcher", daemon=True).start()

    def _listen(self) -> None:
        launcher = multiprocessing.parent_process().sentinel
        try:
            while launcher not in multiprocessing.connection.wait([self._connection, launcher]):
                if (message := self._connection.recv()) == END:
                    break
                self._messages.put(message)
        finally:
            os._exit(0)

    def receive(self) -> Any:
        """The launcher's next message; waits for it."""
        return self._messages.get()

    def send(self, message: Any) -> None:
        """Sends a message to the launcher, pickled."""
        self._connection.send(message)


@contextlib.contextmanager
def process_group(place: Place, seconds: float) -> Iterator[None]:
    """PyTorch's default group, over gloo and the rank's link; `seconds` is its timeout."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = place.interface
    dist.init_process_group(
        "gloo",
        init_method=f"file://{place.store}",
        rank=place.rank,
        world_size=place.ranks,
        timeout=datetime.timedelta(seconds=seconds),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
