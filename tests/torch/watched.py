"""Sees from which threads a session is given buckets."""

import threading


class Watched:
    """Stands in front of a session and notes who submits tensors.

    Attributes:
        session: the session.
        threads: names of the threads.
    """

    def __init__(self, session):
        self.session = session
        self.threads = set()

    def __getattr__(self, name):
        return getattr(self.session, name)

    def submit(self, tensors, *rest):
        if tensors:  # not the end of a step
            self.threads.add(threading.current_thread().name)
        self.session.submit(tensors, *rest)
