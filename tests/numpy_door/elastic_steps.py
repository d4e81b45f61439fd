"""Steps of members of an elastic session, for tests."""

import hashlib

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
