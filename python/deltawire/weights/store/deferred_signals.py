"""Ctrl-C and SIGTERM wait until weights are those of one version again."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_DEFERRED = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Runs Python's handlers of these signals when the block has ended.

    Python runs handlers in the main thread alone, so a block in another thread isn't interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, object]] = []
    handlers = {number: signal.getsignal(number) for number in _DEFERRED}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda *call: received.append(call))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in received:
            handlers[number](number, frame)
