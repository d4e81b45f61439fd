"""A process of the soak: takes steps or rounds, and says after each what it has."""

import dataclasses
import hashlib
import signal
import time
from collections.abc import Callable

import numpy as np

ELEMENTS = 50_000
# Errors after which a process joins again: it was given up, or it was in the smaller part of a
# split. "Timeout": it is still cut off.
_COMES_BACK = ("Excluded", "NoQuorum")
_JOINERS_WAIT = ("Timeout", "PeerLost")


@dataclasses.dataclass(frozen=True)
class Task:
    """What all members do.

    Attributes:
        spec: codec, or pattern and codec.
        seconds: of each wait.
        pace: seconds of computation a step, besides that of a network.
        steps: how many; of `rounds`, how many rounds.
        rounds: of local steps of a network, instead of steps.
        seed: of the samples that members draw.
        namespace: the network namespace to be in, or None.
    """

    spec: str
    seconds: float
    pace: float
    steps: int
    rounds: bool = False
    seed: int = 1
    namespace: str | None = None


class Member:
    """Weights, and a session that changes them. `say` takes (kind, values...)."""

    def __init__(self, say: Callable[[tuple], None], task: Task) -> None:
        self.say, self.task = say, task
        self.settings = {
            "timeout": task.seconds,
            "arrival_timeout": 2 * task.seconds,
            "connect_timeout": 10 * task.seconds,
        }
        self.leaves = False
        self._doors: list[str] = []  # of the last members that it knew
        self._weights = np.zeros(ELEMENTS, np.float32)
        signal.signal(signal.SIGUSR1, self._note_leave)

    def run(self, place: dict, addresses: str) -> None:
        """Until all steps are committed, or it shall leave. `place`: rank and world_size, or
        nothing to join; who is excluded joins again."""
        import deltawire

        while True:
            try:
                self.take_part({**place, "address": addresses, **self.settings})
                return
            except deltawire.DeltawireError as error:
                self.say(("error", error.code, str(error)))
                waits = not place and error.code in _JOINERS_WAIT
                if error.code not in _COMES_BACK and not waits:
                    return
                place, addresses = {}, ",".join(self._doors) or addresses

    def take_part(self, session: dict) -> None:
        """In one session; `session`: what `Session` takes."""
        import deltawire

        self.knock(session)
        state = {"weights": self._weights}
        with deltawire.Session(
            self.task.spec, elastic=True, state=lambda: state, **session
        ) as session:
            if session.joined_state is not None:
                self._weights[:] = session.joined_state["weights"]
            self.enter(session)
            while session.steps < self.task.steps and not self.leaves:
                time.sleep(self.task.pace)
                own_id = session.members()[session.rank]["id"]
                draw = np.random.default_rng([session.steps, own_id])
                update = draw.standard_normal(ELEMENTS, np.float32)
                session.all_reduce({"weights": update})
                self._weights -= update
                self.report(session, session.steps - 1, self._weights.tobytes())

    def knock(self, session: dict) -> None:
        """Says that this process is ready to begin, or to join."""
        self.say(("knock", "rank" in session))

    def enter(self, session) -> None:
        """Says that this process is a member."""
        self._doors = [each["address"] for each in session.members()]
        self.say(("in", session.members()[session.rank]["id"], self._doors))

    def report(self, session, step: int, weights: bytes) -> None:
        """Says what is committed."""
        members = session.members()
        self._doors = [each["address"] for each in members]
        ids = [each["id"] for each in members]
        digest = hashlib.sha256(weights).hexdigest()
        self.say(("step", step, session.epoch, ids, digest, time.time(), self._doors))

    def _note_leave(self, *_) -> None:
        self.leaves = True
