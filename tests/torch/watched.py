"""Sees from which threads a session is given buckets, and what is logged."""

import logging
import threading


def logged(level: int = logging.INFO) -> list[str]:
    """What the library logs from now on in this process, at this level and above; it grows."""
    texts: list[str] = []
    handler = logging.Handler(level)
    handler.emit = lambda record: texts.append(record.getMessage())
    logger = logging.getLogger("deltawire")
    logger.addHandler(handler)
    logger.setLevel(level)
    return texts


class Watched:
    """Stands in front of a session and notes who submits tensors.

    Attributes:
        session: the session.
        threads: names of the threads.
        addresses: of the tensors' values.
    """

    def __init__(self, session):
        self.session = session
        self.threads, self.addresses = set(), set()

    def __getattr__(self, name):
        return getattr(self.session, name)

    def submit(self, tensors, *rest):
        if tensors:  # not the end of a step
            self.threads.add(threading.current_thread().name)
            self.addresses.update(address for _, address, *_ in tensors)
        self.session.submit(tensors, *rest)
