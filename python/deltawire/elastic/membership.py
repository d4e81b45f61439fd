"""One process's part in an elastic session: its view, the mesh of each epoch, and what is kept from
one to the next."""

import collections
import contextlib
import functools
import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from deltawire import _core, arguments
from deltawire.elastic.agreement import Agreement, Standing, Tensors
from deltawire.elastic.calls import hear
from deltawire.elastic.founding import come, found
from deltawire.elastic.hosting import host
from deltawire.elastic.meeting import Means, Meeting
from deltawire.elastic.state import Taking
from deltawire.elastic.views import View
from deltawire.errors import DeltawireError, in_epoch, make_error
from deltawire.session.network import Doors

logger = logging.getLogger("deltawire")

# What the loss of a member looks like. After other errors all members would do the same again.
RECOVERABLE = ("PeerLost", "Timeout", "Aborted", "Corrupt", "System")
# Of one attempt to form a view; and the part of the meeting's time that it may take at most, so
# that there is another one if a member dies in it.
_CONNECT_SECONDS, _CONNECT_PART = 10.0, 0.3
_LEAVE_SECONDS = 1.0  # for each member that is told
_BLAMED_TWICE = 2
_PAUSE = 0.05  # before the next attempt to form a view


def check_membership(elastic: bool, at_least: object, state: object, revert: str) -> None:
    """Raises InvalidArgumentError for arguments of `Session` that don't go together."""
    if not elastic and (at_least is not None or state is not None):
        raise make_error("InvalidArgument", "at_least= and state= are for elastic=True")
    if at_least is not None:
        arguments.check_positive("at_least", at_least)
    if state is not None and not callable(state):
        raise make_error("InvalidArgument", "state= must be a function that returns arrays by name")
    if elastic and revert != "exact":
        raise make_error(
            "InvalidArgument",
            f"revert={revert!r} keeps the input of a failed step, which an elastic session gives "
            'again: use revert="exact"',
        )


class Membership:
    """Thread rule: one thread at a time, but for `close`.

    Args:
        make_session: connects; takes a listener and a `_core.Mesh`.
        means: of meetings.
        doors: where to call.
        seconds: within which it must be connected.

    Attributes:
        view, session: of this epoch.
        steps: how many are committed.
        joined_arrays: of a process that joined, what another member gave it.
        events: see `Session.events`.
        failed: the error that ended the session.
    """

    def __init__(
        self,
        make_session: Callable[[_core.Listener, _core.Mesh], _core.Session],
        means: Means,
        doors: Doors,
        seconds: float,
    ) -> None:
        """Meets the ranks that the session begins with at rank 0's door, or joins one that runs.
        Raises DeltawireError."""
        self._make_session = make_session
        self._means = means
        self._process = os.getpid()
        self._job = ""
        self._id = -1
        self._base: View | None = None  # the last view that committed a step
        self._tried: list[View] = []  # since
        self.view: View | None = None
        self.session: _core.Session | None = None
        self.steps = 0
        self.joined_arrays: dict[str, np.ndarray] | None = None
        self.events: list[dict[str, Any]] = []
        self.failed: DeltawireError | None = None
        self._due: Tensors | None = None  # in the first step of a process that joins
        try:
            if means.place is None:
                self._join(doors, seconds)
            else:
                self._begin(*means.place, doors, seconds)
        except BaseException:
            means.reception.close()
            raise

    @property
    def place(self) -> tuple[int, int]:
        """Rank and world size."""
        return self.view.rank_of(self._id), len(self.view.members)

    def metrics(self) -> dict[str, Any]:
        """Of the changes of members, see `Session.metrics`."""
        return {
            "epoch": self.view.epoch,
            "world_size": len(self.view.members),
            "recoveries": len(self.events),
            "recovery_seconds": sum(event["seconds"] for event in self.events),
            "residual_lost": math.hypot(*(event["residual_lost"] for event in self.events)),
        }

    def _begin(self, rank: int, world_size: int, doors: Doors, seconds: float) -> None:
        if rank == 0:
            agreement = found(self._means, world_size, seconds)
        else:
            question = {"say": "found", "rank": rank, "world_size": world_size}
            question["settings"] = self._means.settings
            agreement = come(self._means, question, doors, seconds)
        self._id = rank
        self._base = agreement.view
        self._start(agreement, seconds)

    def _join(self, doors: Doors, seconds: float) -> None:
        end = time.monotonic() + seconds
        question = {"say": "join", "settings": self._means.settings}
        taking = Taking()
        while True:
            agreement = come(self._means, question, doors, end - time.monotonic(), taking)
            self._id = agreement.own_id
            self._tried = [agreement.view]
            # Others may meet again while this process connects, and must find it alive.
            known = agreement.base or agreement.view
            self._means.reception.introduce(agreement.job, self._id, known)
            try:
                self._start(agreement, _CONNECT_SECONDS)
                self.joined_arrays, self._due = taking.arrays(), agreement.opens
                return
            except DeltawireError as error:
                self._means.reception.withdraw()
                if error.code not in RECOVERABLE or time.monotonic() > end - 1:
                    raise

    def _start(self, agreement: Agreement, seconds: float) -> None:
        self._job, self.steps = agreement.job, agreement.steps
        session = self._connect(agreement, seconds)
        self._enter(agreement, session)

    def shall_admit(self) -> bool:
        """Whether this member should end the epoch because others want to join."""
        return self._means.reception.has_joiners()

    def note_tensors(self, tensors: Iterable[tuple]) -> None:
        """What is or will be exchanged: (name, address, bytes, shape)."""
        for name, *_, shape in tensors:
            self._means.tensors[name] = list(shape)

    def open_step(self, tensors: Sequence[tuple]) -> None:
        """The next step begins, of (name, address, bytes, shape).

        Raises DeltawireError (Mismatch) where this process has joined and the members' step has
        others: then it leaves, and they go on.
        """
        opens = [(name, list(shape)) for name, *_, shape in tensors]
        if self._due is not None and opens != self._due:
            text = (
                f"step {self.steps} of the session has {_difference(self._due, opens)}; this "
                "process has left, and the others go on: join with the same names and shapes"
            )
            self.close(text)
            self.failed = in_epoch(make_error("Mismatch", text), self.view.epoch)
            raise self.failed
        self._due = None
        self._means.opens = opens
        self.note_tensors(tensors)

    def committed(self) -> None:
        """The next step is committed."""
        self.steps += 1
        if self._base is not self.view:
            self._base, self._tried = self.view, []
            self._means.reception.forget_left(self.view.ids)
        self._means.state = None

    def recover(self, error: DeltawireError) -> None:
        """After a failure of the mesh: agrees on who goes on, and connects them.

        Raises DeltawireError: "Excluded", "NoQuorum", and others that end the session.
        """
        begun_at = time.monotonic()
        before = self.view
        logger.warning("rank %d: %s; looking for who goes on", self.place[0], error)
        try:
            if self._means.state is None:
                self._means.state = self.session.save()
                self._means.residual = self._residual()
            self.session.close()
            agreement, session = self._form_view()
            self._enter(agreement, session)
            if self._means.ends.is_set():  # closed meanwhile
                session.close()
                raise make_error("Aborted", "the session was closed while its members met")
        except DeltawireError as problem:
            self.failed = in_epoch(problem, before.epoch)
            self._means.reception.close()  # or the others would wait for this member
            raise self.failed from error
        self._note(agreement, before, error, time.monotonic() - begun_at)

    def _form_view(self) -> tuple[Agreement, _core.Session]:
        standing = Standing(self._job, self._id, self._base, self._tried, self.steps)
        standing.residual = self._means.residual
        meeting = Meeting(standing, self._means)
        blamed: collections.Counter[int] = collections.Counter()
        while True:
            agreement = meeting.agree(host)
            self._tried.append(agreement.view)
            try:
                seconds = min(_CONNECT_SECONDS, _CONNECT_PART * self._means.seconds)
                return agreement, self._connect(agreement, seconds)
            except DeltawireError as error:
                logger.warning("epoch %d did not begin: %s", agreement.view.epoch, error)
                # A member may have called where the next attempt's mesh meets already.
                if error.code not in (*RECOVERABLE, "Mismatch"):
                    raise
                if meeting.passed() > 1:
                    meeting.check_included()
                    raise
                # A host that gave up has found that a process which joins is dead.
                blames = error.suspect is not None and error.code != "Aborted"
                if blames and error.suspect < len(agreement.view.members):
                    blamed[agreement.view.members[error.suspect].id] += 1
                standing.blamed = {k for k, count in blamed.items() if count >= _BLAMED_TWICE}
                standing.blamed.discard(self._id)
                time.sleep(_PAUSE)

    def _connect(self, agreement: Agreement, seconds: float) -> _core.Session:
        view = agreement.view
        rank = view.rank_of(self._id)
        if rank is None:
            raise make_error("Corrupt", "the members agreed on a view without this one")
        place = rank, len(view.members)
        mesh = self._means.network.mesh(agreement.meeting_place, place, seconds)
        mesh.epoch = view.epoch
        if agreement.listener is not None:  # the host, which would wait for the dead
            mesh.set_interrupted(functools.partial(_has_hung_up, agreement.lines))
        listener = agreement.listener or self._means.listen()
        agreement.listener = None
        session = self._make_session(listener, mesh)
        try:
            self._load(session, agreement)
        except BaseException as error:
            session.abort(f"rank {rank} can't load the residuals: {error}")
            session.close()
            raise
        agreement.lines.clear()
        return session

    # A step that failed has left no trace, so that the residuals are those of the base's last step
    # until a step of a later view is committed.
    def _load(self, session: _core.Session, agreement: Agreement) -> None:
        base, view = agreement.base, agreement.view
        for name, shape in agreement.tensors:
            self._means.tensors.setdefault(name, shape)
        if base is None:
            return
        own = base.rank_of(self._id)
        if agreement.shares is None:
            session.load(bytearray(self._means.state))
            return
        states = [agreement.shares.get(member.id, b"") for member in base.members]
        if own is not None:
            states[own] = self._means.state
        ranks = [base.rank_of(member.id) for member in view.members]
        continued = [-1 if rank is None else rank for rank in ranks]
        place = view.rank_of(self._id), len(view.members)
        arrays = [np.frombuffer(bytearray(state), np.uint8) for state in states]
        session.load_resized(arrays, self._means.all_tensors(), place, continued)

    def _enter(self, agreement: Agreement, session: _core.Session) -> None:
        self.view, self.session = agreement.view, session
        self._means.reception.enter(self._job, self._id, agreement.view)

    def _residual(self) -> float:
        tensors = list(self._means.tensors.items())
        return sum(use.residual_norm**2 for use in self.session.explain(tensors, self.steps))

    def _note(
        self, agreement: Agreement, before: View, error: DeltawireError, seconds: float
    ) -> None:
        old, new = before.ids, agreement.view.ids
        ranks = {member.id: rank for rank, member in enumerate(before.members)}
        gone = [
            {"id": each, "rank": ranks[each], "why": agreement.gone.get(each, "")}
            for each in sorted(old - new)
        ]
        event = {
            "epoch": agreement.view.epoch,
            "step": self.steps,
            "gone": gone,
            "joined": sorted(new - old),
            "world_size": len(new),
            "seconds": seconds,
            "residual_kept": agreement.residuals[0],
            "residual_lost": agreement.residuals[1],
            "error": str(error),
        }
        self.events.append(event)
        logger.warning(
            "rank %d: epoch %d begins at step %d with %d members, after %.2f s; gone %s, joined %s",
            self.place[0],
            event["epoch"],
            event["step"],
            len(new),
            seconds,
            [f"{each['rank']} ({each['why']})" for each in gone],
            event["joined"],
        )

    def close(self, why: str = "it left") -> None:
        """Tells the other members that this one leaves, and hangs up. Idempotent."""
        # A forked child must not say goodbye for its parent.
        if self._means.ends.is_set() or os.getpid() != self._process:
            return
        self._means.ends.set()
        if self.view is not None and self.failed is None:
            for member in self.view.members:
                if member.id != self._id:
                    message = {"say": "left", "job": self._job, "id": self._id, "why": why}
                    with contextlib.suppress(DeltawireError):
                        self._means.caller.ask(member.address, message, _LEAVE_SECONDS)
        if self.session is not None:
            self.session.close()
        self._means.reception.close()


def _difference(due: Tensors, given: Tensors) -> str:
    pairs = enumerate(itertools.zip_longest(due, given))
    number, (theirs, own) = next(each for each in pairs if each[1][0] != each[1][1])
    return f"{_tensor_text(theirs)} as tensor {number}, and this process {_tensor_text(own)}"


def _tensor_text(tensor: tuple[str, list[int]] | None) -> str:
    return "none" if tensor is None else f"'{tensor[0]}' of shape {tensor[1]}"


def _has_hung_up(lines: list[_core.Line]) -> bool:
    """Whether one of the processes is dead that have these lines."""
    try:
        for line in lines:
            hear(line, 0)
    except DeltawireError:
        return True
    return False
