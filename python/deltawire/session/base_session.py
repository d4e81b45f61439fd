"""The base of all sessions: records of steps, the first error, and which states fit."""

from typing import Any

from deltawire import _core, arguments
from deltawire.errors import DeltawireError, check_state_given, invalid
from deltawire.session.history import History, Metrics, metrics_of

STATE_VERSION = 1
_SAME_PLACE = "load the state of the same job and rank, or start without"


class BaseSession:
    """A rank's part in an exchange.

    Attributes:
        rank, world_size: this rank's number, and how many ranks there are.

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
        """What identifies this rank in a state."""
        return {
            "version": self._state_version,
            "spec": self.spec,
            "world_size": self.world_size,
            "rank": self.rank,
        }

    def _check_place(
        self, state: dict, counts: tuple[str, ...], also: tuple[str, ...] = ()
    ) -> None:
        """Raises InvalidArgumentError if a state lacks a key, or belongs to another rank or job.

        Args:
            state: as loaded.
            counts: keys of integers >= 0.
            also: further required keys.
        """
        place = self._state_place()
        check_state_given(state, (*place, *counts, "residuals", *also))
        for key, value in place.items():
            if state[key] != value:
                advice = self._resize_advice if key == "world_size" else _SAME_PLACE
                raise invalid(
                    f"the state has {key} {state[key]}, but this {self._kind} has {value}; "
                    + advice
                )
        for key in counts:
            arguments.check_count(f"the state's {key}", state[key])

    @property
    def last_error(self) -> DeltawireError | None:
        """The first error, or None."""
        return self._history.last_error

    @property
    def closed(self) -> bool:
        """True after `close()`; for `LocalSteps`, which a failure closes, also after one."""
        return self._session.closed

    @property
    def step_records(self) -> list[dict]:
        """The latest 4,096 steps (of `LocalSteps`: rounds), oldest first, as dicts of

        - buckets, elements;
        - encode_ms, exchange_ms (waiting for others), decode_ms;
        - bytes_sent: this rank's messages with their headers, every copy counted;
        - raw_bytes: the same messages as bare values, 4 bytes an element, 2 of bfloat16 and
          float16. On average over the N ranks, "direct", "ring" and "hierarchical" send each
          element 2 (N-1) / N times; "gather" sends it N-1 times on each;
        - ratio: raw_bytes / bytes_sent, the compression ratio; None if nothing was sent (a single
          rank). A round counts once, however many local steps it has;
        - digest: an int, a hash of the step's means, equal on all ranks;
        - finite: False for a step that came out as NaN and left no trace (nonfinite="pass");
        - for a round also local_steps, and the fragment of the model that was exchanged.
        """
        return list(self._history.records)

    def metrics(self) -> Metrics:
        """The last step's record (see `step_records`); the sums of the same keys over all steps as
        `total_...` (`total_ratio`: the ratio of the sums); `steps` (of `LocalSteps`: rounds), and
        `nonfinite_steps` among them; `traffic_bytes_sent` and `traffic_bytes_received` on the links
        (with transport headers and control messages). Memory in addition to the model's own:
        `residual_bytes`, `staging_bytes` (for forming means and incoming messages),
        `message_bytes` (messages encoded here, until the step ends) and `peak_memory_bytes`, the
        maximum of the three together.

        What error feedback holds back on this rank, over all tensors with a residual, in the latest
        of the steps 15, 79, 143 ... (`measured_step`); None before, and without residuals. With g
        the gradients of that step, e the residuals after it, s the values that it sent, and x = s +
        e the values that were due (g plus the residuals before):

        - `residual_to_gradient`: norm(e) / norm(g), in L2;
        - `waiting_steps`: norm(e) / norm(s), how many steps' messages wait;
        - `sent_share`: (s . x) / (x . x), the share of what was due that was sent.

        Tensors of more than 4,194,304 elements and those coded on a GPU are left out. All three
        level off within some tens of steps. If the first two keep growing, or the last falling,
        more comes in than goes out.
        """
        return metrics_of(self._history, self._session)
