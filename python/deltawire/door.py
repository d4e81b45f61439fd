"""The base of every interface to an exchange: records, the first error, and its states' owner."""

from typing import Any

from deltawire import _core, arguments
from deltawire.errors import DeltawireError, check_state_given, make_error
from deltawire.history import History, metrics_of

STATE_VERSION = 1
_SAME_PLACE = "load the state of the same job and rank, or start without"


class Door:
    """A rank's way into an exchange.

    Attributes:
        rank, world_size: of this rank, and how many there are.

    Thread rule: the members below that are public may be called from any thread.
    """

    _kind = "session"  # for messages
    _state_version = STATE_VERSION
    _resize_advice = _SAME_PLACE

    def __init__(self, session: _core.Session, place: tuple[int, int], history: History) -> None:
        self.rank, self.world_size = place
        self._spec = session.spec
        self._session = session
        self._history = history

    @property
    def spec(self) -> str:
        """Canonical, e.g. "direct(3lc:s=1.75,mode=auto,runs=on)"."""
        return self._spec

    def _state_place(self) -> dict[str, Any]:
        """Where a state of this rank belongs."""
        return {
            "version": self._state_version,
            "spec": self.spec,
            "world_size": self.world_size,
            "rank": self.rank,
        }

    def _check_place(
        self, state: dict, counts: tuple[str, ...], also: tuple[str, ...] = ()
    ) -> None:
        """Raises InvalidArgumentError where a state lacks a key, or belongs elsewhere.

        Args:
            state: as loaded.
            counts: its whole numbers, 0 or more.
            also: further keys that it must have.
        """
        check_state_given(state)
        place = self._state_place()
        missing = [key for key in (*place, *counts, "residuals", *also) if key not in state]
        if missing:
            raise make_error("InvalidArgument", f"the state lacks {', '.join(missing)}")
        for key, value in place.items():
            if state[key] != value:
                advice = self._resize_advice if key == "world_size" else _SAME_PLACE
                raise make_error(
                    "InvalidArgument",
                    f"the state has {key} {state[key]}, but this {self._kind} has {value}; "
                    + advice,
                )
        for key in counts:
            arguments.check_count(f"the state's {key}", state[key])

    @property
    def last_error(self) -> DeltawireError | None:
        """The first error, typed; None if there was none."""
        return self._history.last_error

    @property
    def closed(self) -> bool:
        """True after `close()`, and for `LocalSteps`, which a failure closes, after one."""
        return self._session.closed

    @property
    def step_records(self) -> list[dict]:
        """Records of the latest 4,096 steps (for `LocalSteps`: rounds), oldest first: dicts with

        - buckets, elements;
        - encode_ms, exchange_ms (waiting for others), decode_ms;
        - bytes_sent: of this rank's messages with headers, every copy counted;
        - raw_bytes: of the same messages as bare values, 4 bytes per element, 2 of bfloat16 and
          float16. In the mean over the N ranks, "direct" and "ring" send each element 2 (N-1) / N
          times; "gather" sends it N-1 times on each;
        - ratio: raw_bytes / bytes_sent, how many times smaller; None if nothing was sent (a single
          rank). A round counts once, however many local steps it has;
        - digest: an int, of the step's means, equal on all ranks;
        - finite: False for a step that came out as NaN and left no trace (nonfinite="pass");
        - for a round also local_steps, and the fragment of the model that was exchanged.
        """
        return list(self._history.records)

    def metrics(self) -> dict[str, Any]:
        """The last step's record (see `step_records`), the same keys summed over all steps as
        `total_...` (`total_ratio`: the sums' ratio), `steps` (for `LocalSteps`: rounds), how
        many of them were `nonfinite_steps`, and the links' `traffic_bytes_sent` and
        `traffic_bytes_received` (transport headers and control messages included). Further memory:
        `residual_bytes`, `staging_bytes` (where means are formed and messages received),
        `message_bytes` (encoded here, until the step ends) and `peak_memory_bytes`, the peak
        of all three together."""
        return metrics_of(self._history, self._session)
