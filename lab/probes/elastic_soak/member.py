"""A process of the soak: takes steps, and says after each what it has."""

import hashlib
import logging
import os
import signal
import time
from multiprocessing.connection import Connection

import numpy as np

ELEMENTS = 50_000


class Member:
    """Weights, and a session that changes them.

    Args:
        say: the end of a pipe that takes (kind, values...).
        spec, seconds, pace: codec; of each wait; of the computation of a step.
    """

    def __init__(self, say: Connection, spec: str, seconds: float, pace: float) -> None:
        self._say = say
        self._spec = spec
        self._pace = pace
        self._settings = {
            "elastic": True,
            "timeout": seconds,
            "arrival_timeout": 2 * seconds,
            "connect_timeout": 10 * seconds,
        }
        self._weights = np.zeros(ELEMENTS, np.float32)
        self._leaves = False
        self._doors: list[str] = []  # of the last members that it knew
        signal.signal(signal.SIGUSR1, self._note_leave)

    def run(self, place: dict, addresses: str, steps: int) -> None:
        """Until that many steps are committed, or it shall leave. `place`: rank and world_size, or
        nothing to join; who is excluded joins again."""
        import deltawire

        while True:
            try:
                with deltawire.Session(
                    self._spec, **place, address=addresses, state=self._state, **self._settings
                ) as session:
                    if session.joined_state is not None:
                        self._weights[:] = session.joined_state["weights"]
                    self._train(session, steps)
                return
            except deltawire.DeltawireError as error:
                self._say.send(("error", error.code, str(error)))
                if error.code != "Excluded":
                    return
                place, addresses = {}, ",".join(self._doors)

    def _train(self, session, steps: int) -> None:
        own_id = session.members()[session.rank]["id"]
        doors = self._doors = [each["address"] for each in session.members()]
        self._say.send(("in", own_id, doors))
        epoch = session.epoch
        while session.steps < steps and not self._leaves:
            time.sleep(self._pace)
            draw = np.random.default_rng([session.steps, own_id])
            update = draw.standard_normal(ELEMENTS, np.float32)
            session.all_reduce({"weights": update})
            self._weights -= update
            if session.epoch != epoch:
                epoch = session.epoch
                doors = self._doors = [each["address"] for each in session.members()]
            ids = [each["id"] for each in session.members()]
            digest = hashlib.sha256(self._weights).hexdigest()
            self._say.send(("step", session.steps - 1, epoch, ids, digest, time.time(), doors))

    def _state(self) -> dict[str, np.ndarray]:
        return {"weights": self._weights}

    def _note_leave(self, *_) -> None:
        self._leaves = True


def run_member(
    say: Connection, place: dict, addresses: str, steps: int, settings: tuple[str, float, float]
) -> None:
    """In a process of its own."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    logging.basicConfig(level=logging.CRITICAL)
    Member(say, *settings).run(place, addresses, steps)
    say.send(("end",))
