"""The server's side of federated rounds."""

import dataclasses
from collections.abc import Hashable, Mapping

import numpy as np

from deltawire.errors import wrong_state
from deltawire.rounds.broadcast import Broadcast
from deltawire.rounds.intake import MOST_SAMPLES, Intake, Update, added
from deltawire.rounds.limits import (
    TEN_MEDIANS,
    TWO_MEDIANS,
    Medians,
    brief,
    check_limit,
    sample_cap_of,
)
from deltawire.rounds.messages import Download, Reply, as_float32


class Server:
    """Rounds of clients; averages their replies, weighted by samples.

    Args:
        model: float arrays by name, the first version.
        up: codec that clients must use; None: each may use its own.
        down: codec of the model sent to clients; None: it is sent without loss, as a patch if that
            is smaller than the model.
        max_norm: updates with a larger Euclidean norm are refused: a number is checked in `take`,
            `Medians` when the round ends; None: no limit.
        max_samples: replies that claim more are refused.
        sample_cap: a client counts with at most this many samples: a number, or `Medians` of the
            round's claims (by default twice the median); None: no cap.
        min_elements: arrays below this many elements are sent uncompressed; as the clients'.
        weights: "bfloat16": the model that clients get is rounded to it; `model` has all bits.
        bases: how many earlier versions are kept to make patches from, each a model in memory; 0:
            no patches. None: 8, or 0 with `down`. See `Broadcast`.

    Attributes:
        model: float32 arrays by name, after the last round.
        round: the number of the current round, from 0; -1 before the first.
        refused: (round, client, the error) of every reply that was refused; errors are cut to 300
            characters.
        capped: (round, client, its samples, what it counted with) where `sample_cap` lowered it.

    Thread rule: one thread at a time.
    """

    def __init__(
        self,
        model: Mapping[str, np.ndarray],
        *,
        up: str | None = None,
        down: str | None = "3lc",
        max_norm: float | Medians | None = TEN_MEDIANS,
        max_samples: int = MOST_SAMPLES,
        sample_cap: int | Medians | None = TWO_MEDIANS,
        min_elements: int = 256,
        weights: str = "float32",
        bases: int | None = None,
    ) -> None:
        self.model = as_float32(model)
        self._broadcast = Broadcast(down, min_elements=min_elements, weights=weights, bases=bases)
        self._intake = Intake(
            up, max_norm=max_norm, max_samples=max_samples, min_elements=min_elements
        )
        check_limit("sample_cap", sample_cap)
        self._sample_cap = sample_cap
        self.round = -1
        self.refused: list[tuple[int, Hashable, str]] = []
        self.capped: list[tuple[int, Hashable, int, int]] = []
        self._sent: dict[Hashable, int] = {}  # to clients whose reply is due: the version
        self._silent: set[Hashable] = set()
        self._updates: dict[Hashable, Update] = {}
        self._told: dict[Hashable, tuple[int, int]] = {}  # their clients' verdicts until the end

    def begin(self) -> None:
        """Opens the next round, and encodes the model, once."""
        self._broadcast.advance(self.model)
        self.round += 1
        for client in self._silent:  # it may or may not have received its download
            self._broadcast.forget(client)
        self._sent, self._silent, self._updates, self._told = {}, set(), {}, {}

    def download(self, client: Hashable, *, full: bool = False) -> Download:
        """A client's download; `full` for one that has lost its state. Clients may have any
        name. One that comes again may reply again."""
        if self.round < 0:
            raise wrong_state("no round is open; call begin() first")
        # An update that may be replaced, or refused at the end, isn't accepted yet.
        accepted, refused = self._told.get(client) or self._intake.verdicts(client)
        found = self._broadcast.download(client, full=full)
        self._sent[client] = found.version
        self._silent.add(client)
        return dataclasses.replace(found, round=self.round, accepted=accepted, refused=refused)

    def take(self, client: Hashable, reply: Reply) -> Update:
        """Checks a client's reply and counts it; once a round: the reply to a second download, in
        which the client has put its first one, takes its place.

        Raises:
            DeltawireError: the reply is refused, and the round continues without it: see
                `Intake.take`. "State": the client was sent nothing in this round, or the reply is
                an old one; that of this round may still come.
        """
        version, before = self._sent.get(client), self._intake.verdicts(client)
        self._silent.discard(client)
        try:
            if version is None:
                raise wrong_state("was sent nothing in this round, or has replied")
            update = self._intake.take(
                client, reply, due=(self.round, version), layout=self._broadcast.layout.tensors
            )
            added(self.model, update.change, {})
        except Exception as error:
            self._refuse(client, error)
            if version is not None:  # even if refused, the reply says which version its client has
                self._broadcast.confirm(client, reply.version, reply.patches)
            raise
        self._broadcast.confirm(client, version, reply.patches)
        del self._sent[client]
        self._updates[client] = update
        self._told.setdefault(client, before)
        return update

    def _refuse(self, client: Hashable, error: Exception) -> None:
        if getattr(error, "code", None) != "State":  # "State": from another round, no verdict
            self._intake.refuse(client, self.round)
            for held in (self._sent, self._updates, self._told):
                held.pop(client, None)
        self.refused.append((self.round, client, brief(error)))

    def finish(self) -> dict[str, np.ndarray]:
        """Ends the round: adds the mean of the replies so far, weighted by samples, to the model;
        without replies the model stays. Returns the model (the server's own arrays: don't change
        them).

        If `max_norm` is `Medians`, updates that are too large compared with the others are refused
        now. The mean is added to the model, not to the reference from which clients have trained,
        so later downloads still send what earlier ones left out.
        """
        norms = {client: update.norm for client, update in self._updates.items()}
        for client, error in self._intake.out_of_line(norms).items():
            self._refuse(client, error)
        weights = self._weights()
        model = {name: array.copy() for name, array in self.model.items()}
        for name, array in model.items():
            total = np.zeros(array.shape, np.float64)
            for client, update in self._updates.items():
                total += weights[client] * update.change[name]
            array += total.astype(np.float32)
        self.model, self._updates, self._told = model, {}, {}
        return model

    def _weights(self) -> dict[Hashable, float]:
        """Each client's share of the mean."""
        counts = {client: update.samples for client, update in self._updates.items()}
        cap = sample_cap_of(self._sample_cap, counts)
        for client, claimed in counts.items():
            if cap is not None and claimed > cap:
                counts[client] = cap
                self.capped.append((self.round, client, claimed, cap))
        total = sum(counts.values())
        return {client: count / total for client, count in counts.items()}
