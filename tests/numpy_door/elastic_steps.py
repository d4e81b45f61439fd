"""Steps of members of an elastic session, for tests."""

import hashlib
import logging
import os
import re
import signal

import numpy as np

ELEMENTS = 5000
KILLED = 3  # the step in which members are lost
STEPS = 6


def gradient(step: int, member: int) -> np.ndarray:
    draw = np.random.default_rng([step, member])
    return draw.standard_normal(ELEMENTS).astype(np.float32)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def steps_of(say, session, last: int, weights: np.ndarray, before=lambda session: None) -> None:
    """Takes steps, and says after each what it has."""
    while session.steps < last:
        before(session)
        own = session.members()[session.rank]["id"]
        mean = gradient(session.steps, own)
        session.all_reduce({"mean": mean})
        weights -= mean
        ids = [each["id"] for each in session.members()]
        say(("step", session.steps - 1, session.epoch, ids, digest(mean), digest(weights)))


def dies_when_a_view_is_agreed_on(after: int = 0) -> None:
    """From now on this process dies before it connects to the others of a view, at the step `after`
    or a later one."""

    class Death(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = re.search(r"was agreed on, at step (\d+)", record.getMessage())
            if said and int(said[1]) >= after:
                os.kill(os.getpid(), signal.SIGKILL)

    logging.getLogger("deltawire").addHandler(Death())
