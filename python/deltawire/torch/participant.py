"""The base of every hook and trainer: session, records, first error, state and end."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import NoReturn

import torch
import torch.distributed as dist

from deltawire import _core
from deltawire.errors import DeltawireError, invalid, wrong_state
from deltawire.session.base_session import BaseSession
from deltawire.session.history import History
from deltawire.session.leaving import ClosesAtEnd, exception_under_way, gave_up
from deltawire.torch.core import abort
from deltawire.torch.core.arguments import check_every
from deltawire.torch.metrics import scalars as flat
from deltawire.torch.metrics.explanation import Explanation, TensorRow, explanation

logger = logging.getLogger("deltawire")


class DetachedSession:
    """The session of a copied hook: closed from the start, because connections and threads have one
    owner, the original. Every use raises an error that says what to do.

    torch lets a DDP model be deep-copied and pickled together with its communication hook, but
    never calls the copy's hook: the copy would silently exchange plain gradients.
    """

    closed = True

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def error(self) -> DeltawireError:
        """The "State" error that every use raises."""
        return wrong_state(
            "this is a copy of a registered model or of its hook, and has no session: its "
            "gradients would be exchanged uncompressed; register the copied model again to train "
            "it (or use it under torch.no_grad())"
        )

    def submit(self, *_) -> NoReturn:
        """As all calls that need a session: raises `error()`."""
        raise self.error()

    explain = save = load = load_resized = submit

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received: a copy has no links."""
        return 0, 0

    def memory(self) -> _core.Memory:
        """All zeros: a copy has no exchange."""
        return _core.Memory()

    def abort(self, _) -> None:
        """There is nobody to tell."""

    def close(self) -> None:
        """Nothing to do: a copy is never open."""


class Participant(ClosesAtEnd, BaseSession):
    """A rank's part in an exchange.

    Attributes:
        rank, world_size: in the process group.
        group: the process group of the ranks that take part; None: all.
        encryption: of the connections between ranks: "auto", "required" or "off".
        carrier: of messages: "tcp" or "group".

    Thread rule: the members below that are public may be called from any thread, `close` by one.
    """

    _kind = ""  # "hook", "trainer"
    _nonfinite_advice = ""

    def __init__(
        self,
        session: _core.Session | DetachedSession,
        place: tuple[int, int],
        history: History | None = None,
        *,
        group: dist.ProcessGroup | None = None,
        summary_every: int | None = None,
        encryption: str = "auto",
        carrier: str = "tcp",
    ) -> None:
        """`history`: that of an earlier exchange, to be continued."""
        super().__init__(session, place, history or History(place[0], self._nonfinite_advice))
        self._number = self._history.rank  # of this rank in messages
        self.group = group
        self.summary_every = summary_every
        self.encryption, self.carrier = encryption, carrier
        self._steps_before = -self._history.steps  # of the history's first
        if not session.closed:
            abort.watch(self)

    @property
    def summary_every(self) -> int | None:
        """Steps between the lines that rank 0 logs (logger "deltawire", INFO); None: none. May be
        set between steps; InvalidArgumentError for anything but a whole number, 1 or more."""
        return self._summary_every

    @summary_every.setter
    def summary_every(self, steps: int | None) -> None:
        check_every("summary_every", steps)
        self._summary_every = steps

    @functools.cached_property
    def parsed_spec(self) -> _core.Spec:
        """`spec` as a value."""
        return _core.Spec(self.spec)

    @property
    def _who(self) -> str:
        """This rank's name in messages to the others."""
        return f"rank {self._number}"

    def close(self) -> None:
        """Joins the communication thread and says goodbye to the other ranks; idempotent.

        Happens at exit in any case. Buckets in flight are aborted on every rank; local steps since
        the last round (`LocalSteps`) are not exchanged. If an exception is being handled (in a
        `finally`, or at the end of `with register(...) as hook:`), the other ranks, which wait for
        this one, get its text.
        """
        if not self._session.closed and (cause := exception_under_way()) is not None:
            self._tell(cause)
        self._session.close()
        abort.unwatch(self)

    def leave(self) -> None:
        """At exit: `close` without waiting for any exchange. If an exception has ended the program,
        the other ranks get its text."""
        if not self._session.closed and (cause := exception_under_way(at_exit=True)) is not None:
            self._tell(cause)
        Participant.close(self)

    def _tell(self, cause: BaseException) -> None:
        """Tells the other ranks why this one leaves."""
        self._session.abort(gave_up(self._number, cause, self._who))

    def advise(self, first: str) -> None:
        """What an error about values that are not finite is to advise first."""
        self._history.advise(first)

    def explain(self) -> Explanation:
        """The codec of each tensor in the next step, and the bytes it took in the last."""
        raise NotImplementedError

    def buckets(self) -> list[dict]:
        """One dict for each bucket of the last step, in order: `bucket`, `tensors` (their names),
        `elements`, `encode_ms`, `exchange_ms`, `decode_ms`, `in_flight_ms` (from gradients to
        means), `bytes_sent`, `raw_bytes`, `ratio`, `residual_norm` (see `TensorRow`). Call between
        steps; DeltawireError ("State") within one. Reads all residuals once."""
        return self._bucket_rows(self._rows())

    def scalars(self, *, per_bucket: bool = False) -> dict[str, float]:
        """`metrics()` as floats with names such as "deltawire/ratio", for TensorBoard, Weights &
        Biases and the like, plus "deltawire/residual_norm" over all tensors. Values that are no
        quantities (`digest`) or not known are left out.

        Args:
            per_bucket: include `buckets()`, as "deltawire/bucket_0/encode_ms".

        Call between steps; DeltawireError ("State") within one. Reads all residuals once.
        """
        rows = self._rows()
        buckets = self._bucket_rows(rows) if per_bucket else []
        return flat.scalars(self.metrics(), rows, buckets)

    def _rows(self) -> Sequence[TensorRow]:
        return self.explain().rows

    def _bucket_rows(self, rows: Sequence[TensorRow]) -> list[dict]:
        return flat.bucket_rows(self._history.buckets, rows)

    def _log_summary(self) -> None:
        """Called at the beginning of a step: logs the steps before it, if a line is due."""
        every, steps = self.summary_every, self._history.steps
        if not every or steps == 0 or steps % every or self.rank != 0:
            return
        # A failed session says so itself, to whom this step's buckets are handed.
        with contextlib.suppress(DeltawireError):
            records = list(self._history.records)[-every:]
            logger.info("%s", flat.summary(steps, records, self.explain().rows))

    def _explain(
        self, tensors: list[tuple[str, tuple[int, ...]]], step: int, coded_on: str = "cpu"
    ) -> Explanation:
        uses = self._session.explain(tensors, step)
        # A step that was not finite has left no trace.
        finite = (record for record in reversed(self._history.records) if record["finite"])
        last = next((record["bytes_sent"] for record in finite), None)
        explained = explanation(self.spec, tensors, uses, step, (self.world_size, last))
        lines = tuple(self._session.lines())
        where = {"coded_on": coded_on, "carrier": self.carrier, "lines": lines}
        return dataclasses.replace(explained, **where)

    def _give_up(self, cause: BaseException) -> None:
        """Ends the exchange on every rank because of an exception here."""
        error = gave_up(self._number, cause, self._who)
        self._history.fail(error)
        self._session.abort(error)

    def _state(self, **more) -> dict:
        """A state for checkpoints: where it belongs, what the subclass adds, and the residuals as a
        uint8 tensor, which every checkpoint format can store."""
        residuals = torch.frombuffer(bytearray(self._session.save()), dtype=torch.uint8)
        return {**self._state_place(), **more, "residuals": residuals}

    def _steps_that_count(self) -> int:
        """Committed steps since training began. A failed step is not counted, however far it came
        on this rank: all surviving ranks have the same number to go on from."""
        return self._steps_before + self._history.steps

    def _go_on_after(self, steps: int) -> None:
        """Continues the count of committed steps from `steps`."""
        self._steps_before = steps - self._history.steps

    def _check_state(
        self, state: dict, counts: tuple[str, ...], also: tuple[str, ...] = ()
    ) -> None:
        """Like `_check_place`; also raises unless the residuals are a uint8 tensor."""
        self._check_place(state, counts, also)
        residuals = state["residuals"]
        if not isinstance(residuals, torch.Tensor) or residuals.dtype != torch.uint8:
            tensor = isinstance(residuals, torch.Tensor)
            kind = residuals.dtype if tensor else type(residuals).__name__
            raise invalid(f"the state's residuals are {kind}, not a uint8 tensor")

    def _load_residuals(self, state: dict) -> None:
        """Restores a state's residuals, or raises DeltawireError and changes nothing."""
        self._session.load(state["residuals"].cpu().contiguous().numpy())

    def _load_resized(self, residuals: list[torch.Tensor], tensors: list[tuple]) -> None:
        """Restores residuals from those of all ranks, whatever their number was. `tensors` as for
        `_explain`."""
        states = [each.cpu().contiguous().numpy() for each in residuals]
        self._session.load_resized(states, tensors, (self.rank, self.world_size))

    def interrupted(self) -> None:
        """Ends the exchange on every rank after Ctrl-C on this one."""
        if not self._session.closed:
            self._session.abort(f"interrupted on {self._who}")
