"""The server's checks of a reply before it is averaged."""

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Hashable, Mapping

import numpy as np

from deltawire.arguments import check_positive
from deltawire.channel import Channel
from deltawire.errors import DeltawireError, invalid, make_error, mismatch, wrong_state
from deltawire.rounds.limits import TEN_MEDIANS, Medians, brief, check_limit
from deltawire.rounds.messages import Layout, Reply, zeros

MOST_SAMPLES = 1_000_000_000
_MOST_SPEC_CHARACTERS = 2_000
_MOST_SPECS = 16  # whose channels are kept
_FEWEST = 3  # fewer updates have no majority


@dataclasses.dataclass(frozen=True)
class Update:
    """A reply that has passed the checks.

    Attributes:
        change: of the weights, float32 by name.
        samples: how many it claims to have been trained with.
        norm: of the change, Euclidean over all tensors.
    """

    change: dict[str, np.ndarray]
    samples: int
    norm: float


class Intake:
    """Opens replies of untrusted clients, and remembers whether they were accepted.

    Args:
        spec: the codec that clients must use; None: each may use its own, and names it.
        max_norm: replies whose change has a larger Euclidean norm are refused: a number is checked
            at once, `Medians` when all of the round's are in (`out_of_line`); None: no limit.
        max_samples: replies with more samples are refused.
        min_elements: as the clients'.

    Thread rule: one thread at a time.
    """

    def __init__(
        self,
        spec: str | None = None,
        *,
        max_norm: float | Medians | None = TEN_MEDIANS,
        max_samples: int = MOST_SAMPLES,
        min_elements: int = 256,
    ) -> None:
        check_limit("max_norm", max_norm)
        check_positive("max_samples", max_samples)
        self._min_elements = min_elements
        self._max_norm, self._max_samples = max_norm, max_samples
        self._channels: OrderedDict[str, Channel] = OrderedDict()  # the last used one is last
        self._due: str | None = None
        if spec is not None:
            self._due = self._channel(spec).spec
        self._accepted: dict[Hashable, int] = {}
        self._refused: dict[Hashable, int] = {}

    def verdicts(self, client: Hashable) -> tuple[int, int]:
        """The last rounds in which a reply of the client was accepted, and refused; -1: none."""
        return self._accepted.get(client, -1), self._refused.get(client, -1)

    def refuse(self, client: Hashable, number: int) -> None:
        """Refuses a reply that passed the checks here but failed others."""
        self._refused[client] = number
        if self._accepted.get(client) == number:
            del self._accepted[client]

    def take(self, client: Hashable, reply: Reply, *, due: tuple[int, int], layout: Layout):
        """The `Update` of a reply.

        Args:
            client: its sender.
            reply: as received.
            due: the round and version that the client was sent.
            layout: of the model.

        Raises:
            DeltawireError: "State": of another round or version; no verdict. "Mismatch": of another
                codec. "InvalidArgument": a sample count out of range. "Range": too large a norm.
                "NotFinite", "Truncated", "Corrupt", "UnsupportedVersion": its frame. The reply is
                refused then: its client drops it.
        """
        if (reply.round, reply.version) != due:
            raise wrong_state(
                f"the reply is of round {brief(reply.round, 20)}, version "
                f"{brief(reply.version, 20)}; due is round {due[0]}, version {due[1]}: it is too "
                "old, or not the server's"
            )
        try:
            update = self._opened(reply, layout)
        except Exception as error:
            self.refuse(client, reply.round)
            if isinstance(error, DeltawireError):
                raise
            raise invalid(f"no fields of a Reply: {brief(error)}") from error
        self._accepted[client] = reply.round
        return update

    def out_of_line(self, norms: Mapping[Hashable, float]) -> dict[Hashable, DeltawireError]:
        """The errors of clients whose update is too large compared with the round's others, if
        `max_norm` is `Medians`. The caller must refuse these. Among fewer than three non-zero
        updates there is none, because one can't tell which one is out of line."""
        most, counted = self._max_norm, sum(norm > 0 for norm in norms.values())
        if not isinstance(most, Medians) or counted < _FEWEST:
            return {}
        limit = most.of(norms)
        return {
            client: make_error(
                "Range",
                f"the update's norm is {norm:.4g}, above {limit:.4g}: {most.factor:g} times the "
                f"median of the round's {len(norms)} updates; max_norm= sets another limit",
            )
            for client, norm in norms.items()
            if norm > limit
        }

    def _opened(self, reply: Reply, layout: Layout) -> Update:
        check_samples(reply.samples, self._max_samples)
        change = zeros(layout)
        self._channel(reply.spec).decode(reply.frame, change, step=reply.round)
        return Update(change, reply.samples, self._norm_of(change))

    def _norm_of(self, change: Mapping[str, np.ndarray]) -> float:
        squares = 0.0
        for name, array in change.items():
            if not np.isfinite(array).all():
                raise make_error("NotFinite", f"'{name}' has values that are not finite")
            squares += float(np.square(array, dtype=np.float64).sum())
        norm = math.sqrt(squares)
        most = self._max_norm
        if most is not None and not isinstance(most, Medians) and norm > most:
            raise make_error("Range", f"the update's norm is {norm:.4g}, above max_norm={most:.4g}")
        return norm

    def _channel(self, spec: str) -> Channel:
        """A channel for the codec that a client's frame names; the most recently used ones are
        kept."""
        if self._due is not None and spec != self._due:
            raise mismatch(f"the reply is of codec {spec[:80]!r}; due is {self._due!r}")
        if len(spec) > _MOST_SPEC_CHARACTERS:
            raise invalid(f"{spec[:40]!r} is not a codec spec")
        if spec not in self._channels:
            # With error feedback, like the clients': they may leave out a tensor of zeros.
            channel = Channel(spec, min_elements=self._min_elements)
            self._channels[spec] = self._channels[channel.spec] = channel
            while len(self._channels) > _MOST_SPECS:
                self._channels.popitem(last=False)
        self._channels.move_to_end(spec)
        return self._channels[spec]


def added(
    model: Mapping[str, np.ndarray], change: Mapping[str, np.ndarray], dtypes: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """`model` + an update, in the model's own dtypes (float32 for those that `dtypes` lacks).

    Raises:
        DeltawireError: "NotFinite", with the tensor's name: the sum is beyond what its dtype holds.
            So no mean of such models overflows.
    """
    found = {}
    for name, array in model.items():
        dtype = dtypes.get(name, "float32")
        with np.errstate(over="ignore"):
            found[name] = np.asarray(array + change[name], dtype)
        if not np.isfinite(found[name]).all():
            raise make_error("NotFinite", f"'{name}' + the update is beyond what {dtype} holds")
    return found


def check_samples(samples: object, most: int) -> None:
    """Raises InvalidArgumentError for anything but a whole number, 1 ... most."""
    if not isinstance(samples, int) or isinstance(samples, bool) or not 1 <= samples <= most:
        raise invalid(
            f"the sample count {brief(repr(samples), 40)} is not a whole number, 1 ... {most:,}"
        )
