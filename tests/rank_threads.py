"""Ranks as threads of the test's own process."""

import threading
from collections.abc import Callable

from ports import kept_port


def in_threads(run: Callable[[int, str], None], world_size: int, seconds: float) -> None:
    """Calls `run(rank, address)` in a thread for each rank, each of which ends within `seconds`."""
    with kept_port() as port:
        threads = [
            threading.Thread(target=run, args=(rank, f"127.0.0.1:{port}"))
            for rank in range(world_size)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(seconds)
            assert not each.is_alive()
