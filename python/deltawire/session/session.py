"""Ranks that average NumPy arrays over TCP, without PyTorch."""

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from deltawire import _core, arguments, arrays
from deltawire.errors import DeltawireError, invalid, make_error
from deltawire.session import elastic as members
from deltawire.session.base_session import BaseSession
from deltawire.session.history import History, Metrics
from deltawire.session.leaving import (
    ClosesAtEnd,
    Terminated,
    exception_under_way,
    forget,
    gave_up,
    leave_at_exit,
    problem_of,
)
from deltawire.session.network import Doors, Network, secret_of
from deltawire.session.weighted import LEAST_ELEMENTS, WeightsFirst, check_weight

TIMEOUT = 60.0  # seconds that a step may take, if a caller does not say
_NONFINITE_ADVICE = "skip or mend the step, or pass nonfinite='pass'"


class Session(ClosesAtEnd, BaseSession):
    """One rank of a job: `all_reduce` replaces arrays by their mean over all ranks.

    Every rank makes one and calls the same members in the same order with the same names and
    shapes. Rank 0 listens at `address`; the others connect to it, with the job's token::

        with deltawire.Session("3lc", rank=rank, world_size=2, address="10.0.0.1:29600") as session:
            session.all_reduce({"weights": gradient})

    Thread rule: any thread may call any member; steps run one after another. If several threads
    call `all_reduce`, the order of their calls must be the same on all ranks.
    """

    _terms = ""  # of a trainer
    _device = None  # of a trainer whose tensors are on one: the `DeviceParts` that codes them there

    def __init__(
        self,
        spec: str,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        address: str | None = None,
        token: str | bytes | None = None,
        encryption: arguments.Encryption | None = None,
        interface: str | None = None,
        port: int | str | None = None,
        timeout: float = TIMEOUT,
        connect_timeout: float = 60.0,
        arrival_timeout: float = 60.0,
        min_elements: int = 256,
        revert: arguments.Revert = "exact",
        threads: int | None = None,
        nonfinite: arguments.Nonfinite = "error",
        link: _core.LinkShape | None = None,
        elastic: bool = False,
        at_least: int | None = None,
        state: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Connects; returns when all ranks are connected.

        Args:
            spec: pattern, codec and parameters, or rules.
            rank: this one, 0 ... world_size - 1.
            world_size: ranks in the job.
            address: rank 0's host and a free port there, "10.0.0.1:29600"; "@" and the path of a
                file that has it; None: the environment's DELTAWIRE_ADDRESS. Required for two ranks
                or more.
            token: a secret that only the ranks of the job know: 16 bytes or more, hard to guess.
                None: the environment's DELTAWIRE_TOKEN. It is never sent
                (docs/reference/security.md). In C and C++, `deltawire_token_of` and `token_of`
                derive the same token from it.
            encryption: of the connections, by TLS 1.3 with a key from the token: "auto" (those that
                leave the machine), "required" or "off"; equal on all ranks. None: the
                environment's DELTAWIRE_ENCRYPTION, else "auto".
            interface: address, name or interface to listen on; None: the local address towards
                rank 0, and on rank 0 the host in `address`.
            port: where all ranks but rank 0 listen: a port, or a range "29600-29699"; None:
                DELTAWIRE_PORT, or any free one.
            timeout: seconds that a step may take, once it has begun.
            connect_timeout: seconds within which all ranks must connect. Until all have, a rank
                that dies may be started again.
            arrival_timeout: seconds to wait for a rank that is alive but begins the step later;
                `timeout` if that is longer.
            min_elements: arrays below this many elements are sent uncompressed.
            revert: what happens to all arrays of a failed step: "exact" (it never happened: give
                its input again; costs a second buffer of the residuals' size) or "fold" (its input
                is kept and sent later: never give it again; messages are kept until their step
                ends, docs/design/memory.md). `save` includes the kept input. "fold" is refused with
                `ring`, `hierarchical` and nonfinite="pass".
            threads: how many threads encode and decode a message; None: the process's.
            nonfinite: "error", or "pass": a step with NaN or infinities results in NaN on all ranks
                and leaves no trace.
            link: limits the rate at which this rank sends, e.g. to that of a slow link.
            elastic: the session goes on when ranks die, leave and join (docs/guides/elastic.md); on
                all ranks or on none. A process without `rank` and `world_size` joins a running
                session; `address` then has doors of its members, "10.0.0.1:29600,10.0.0.2:4711" (in
                a file one per line; a name stands for all its addresses), and `joined_state` the
                arrays that `state` returned on another rank.
            at_least: of an elastic session: how many members suffice to go on. None: more than half
                of the previous members, or half including the lowest, so that after a network split
                at most one side goes on. With a number both sides may.
            state: of an elastic session: returns, by name, all arrays that a process needs to join
                at this step. It is called within all_reduce on ranks that can give them. Arrays
                that are equal on all ranks are fetched from several ranks at once; put them first.
                They must not change until that all_reduce returns.

        Raises:
            InvalidArgumentError (a ValueError): an invalid argument, or no token.
            DeltawireError: "Timeout" (names the missing ranks), "Unauthorized" (another token),
                "Mismatch" (a rank with another spec, other options or another encryption, or a
                duplicate rank), "Corrupt" (bytes were changed on the way), "PeerLost" (a rank that
                connected and died), "AddressInUse", "System"; each also if another rank reports it.
        """
        joins = elastic and rank is None and world_size is None
        place = None if joins else _place(rank, world_size)
        text = arguments.spec_of(spec).text
        coding = arguments.Coding(min_elements, threads, revert, nonfinite)
        options = coding.options(self._device)
        arguments.check_reducer(text, options)
        arguments.check_listening(interface, link)
        self._timeout_ms, self._min_elements = arguments.timeout_in_ms(timeout), min_elements
        arguments.timeout_in_ms(connect_timeout, "connect_timeout")
        arrival_ms = arguments.timeout_in_ms(arrival_timeout, "arrival_timeout")
        alone = place is not None and place[1] == 1
        secret = secret_of(token, alone and not elastic)
        encryption = arguments.encryption(encryption, has_secret=True)
        doors = Doors(address, alone)
        network = Network(secret, encryption, interface, arguments.ports(port), link, arrival_ms)
        members.check_membership(elastic, at_least, state)
        self._elastic: _core.ElasticSession | None = None
        if elastic:
            times_ms = self._timeout_ms, arguments.timeout_in_ms(connect_timeout), arrival_ms
            joining = at_least, state is not None, self._terms
            core = network.elastic_session(text, options, place, doors, times_ms, *joining)
            place, self._elastic = (core.rank, core.world_size), core
        else:
            listener, mesh = network.listen_and_mesh(doors.only(), place, connect_timeout)
            core = _core.Session(listener, mesh, text, options)
        super().__init__(core, place, History(place[0], _NONFINITE_ADVICE))
        self._steps = core.steps if elastic else 0
        self._state = state
        self._joined = members.joined_arrays(core) if elastic else None
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, core.close)
        self._end.atexit = False  # `leave` is called then
        leave_at_exit(self)

    def all_reduce(
        self, arrays_by_name: Mapping[str, Any], *, scale: float = 1.0, weight: float | None = None
    ) -> _core.Report:
        """One step: each array becomes its mean over all ranks, bit-equal on all of them.

        Args:
            arrays_by_name: float32, C-contiguous and writable NumPy arrays, or anything that
                supports DLPack on the CPU (e.g. PyTorch tensors); their memory is written. Names,
                shapes and their order must be the same on all ranks, and no two may share memory.
                Residuals belong to names.
            scale: the factor by which the arrays are scaled (a loss scale); equal on all ranks.
            weight: how much this rank counts, 0 or more, for instance the number of its samples:
                the result is sum(weight * array) / sum(weight) over the ranks. Give it on all ranks
                or on none, and so small that weight * array fits the codec's values. Needs
                min_elements of 2 or more, and a copy of the arrays. If all weights are 0, the
                result is that of `weight=None`. The weights are a bucket of their own, before that
                of the arrays.

        Returns:
            What the step cost this rank: seconds, bytes, the means' digest; weights not counted.

        Raises:
            DTypeError (a TypeError), InvalidArgumentError (a ValueError): an array, scale or weight
                that is not supported; nothing is sent then.
            DeltawireError: the step failed on every rank, and the arrays are untouched: "Timeout",
                "PeerLost", "Aborted", "Mismatch" (other names or shapes on another rank),
                "NotFinite". The session can then only be saved and closed; `revert` says whether
                to give the step's arrays to a new one.
        """
        arrays.check_names(arrays_by_name)
        arguments.check_scale(scale)
        held = {name: arrays.to_write(name, array) for name, array in arrays_by_name.items()}
        places = _places_of(held)
        _core.check_apart(places)
        if weight is None:
            return self._take_step(places, scale)
        weights = WeightsFirst(held, check_weight(weight))
        self._check_weights_fit()
        report = self._take_step(_places_of(weights.means), scale, weights)
        weights.end()
        return report

    def _check_weights_fit(self) -> None:
        if self._min_elements < LEAST_ELEMENTS:
            raise invalid(
                f"weights need min_elements={LEAST_ELEMENTS} or more: they are an array of one "
                "element, which must be sent uncompressed"
            )

    def _take_step(
        self, tensors: list[tuple], scale: float, weights: WeightsFirst | None = None
    ) -> _core.Report:
        """One step of (name, address, bytes, shape) of each array."""
        with self._lock:
            waiting = self._run(tensors, weights, scale=scale)
            error = self._history.end(waiting.error, waiting.report, True)
            if error is not None:
                raise error
            return waiting.report

    def _run(self, tensors: list[tuple], weights: WeightsFirst | None = None, **more) -> "_Waiting":
        """Until the step is committed, or has failed for good; counts it. more: of `_core.Step`."""
        run = self._run_elastic if self._elastic is not None else self._run_once
        waiting = run(tensors, weights, more)
        if waiting.error is None:
            self._steps += 1
        return waiting

    def _run_once(
        self, tensors: list[tuple], weights: WeightsFirst | None, more: dict[str, Any]
    ) -> "_Waiting":
        if weights is None:
            return self._run_bucket(tensors, _core.Step(self._steps, 0, True, **more))
        waiting = self._run_bucket(weights.begin(), _core.Step(self._steps, 0, False))
        if waiting.error is None:
            weights.weigh()
            waiting = self._run_bucket(tensors, _core.Step(self._steps, 1, True, **more))
        return waiting

    def _run_bucket(self, tensors: list[tuple], step: _core.Step) -> "_Waiting":
        waiting = _Waiting()
        self._session.submit(tensors, step, self._timeout_ms, waiting.end)
        try:
            waiting.ended.wait()  # the step has a deadline of its own
        except BaseException:  # Ctrl-C: the core uses the memory until it has released it
            self._session.abort(f"interrupted on rank {self.rank}")
            waiting.ended.wait()
            raise
        return waiting

    # Until the step is committed by those who remain, or an error ends the session.
    def _run_elastic(
        self, tensors: list[tuple], weights: WeightsFirst | None, more: dict[str, Any]
    ) -> "_Waiting":
        waiting, state = _Waiting(), self._state
        buckets = [(tensors, None)]
        if weights is not None:
            buckets = [(weights.begin(), weights.begin), (tensors, weights.weigh)]
        given = None if state is None else lambda: members.offered(state)
        try:
            waiting.report = self._elastic.all_reduce(buckets, given, **more)
        except DeltawireError as error:
            waiting.error = members.ended(self._elastic, error)
        self.rank, self.world_size = self._elastic.rank, self._elastic.world_size
        self._history.rank = self.rank
        return waiting

    def abort(self, reason: str) -> None:
        """Fails every wait on every rank, naming this one and the reason. The other members of an
        elastic session go on without this one."""
        if self._elastic is not None:
            self._elastic.abort(reason)
            return
        text = f"rank {self.rank} gave up: {reason}"
        self._session.abort(make_error("Aborted", text, reporter=self.rank))

    def save(self) -> dict[str, Any]:
        """For checkpoints, between steps: the residuals as bytes, the number of steps, and which
        rank and job they belong to. Only plain types."""
        with self._lock:
            return {**self._state_place(), "steps": self._steps, "residuals": self._session.save()}

    def load(self, state: dict[str, Any]) -> None:
        """Restores what `save` returned on this rank of a job with this spec and world size.

        Raises:
            InvalidArgumentError (a ValueError): a state of another rank or job, or not a state.
            DeltawireError: "Truncated", "Corrupt", "Mismatch"; nothing is changed then.
        """
        self._check_place(state, ("steps",))
        with self._lock:
            self._session.load(_bytes_of(state["residuals"]))
            self._steps = state["steps"]
            if self._elastic is not None:
                self._elastic.begin_at(self._steps)

    @property
    def steps(self) -> int:
        """How many steps count, including those before a loaded state: the next step's number."""
        return self._steps

    @property
    def epoch(self) -> int:
        """Of an elastic session: the number of its view, which grows when members go or come. 0 for
        others."""
        return self._elastic.epoch if self._elastic is not None else 0

    def members(self) -> list[dict[str, Any]]:
        """Of an elastic session: its members by rank, as dicts of "id" (a number that a process
        keeps while it is a member), "rank" and "address" (of its door). Empty for others."""
        if self._elastic is None:
            return []
        return [
            {"id": number, "rank": rank, "address": address}
            for rank, (number, address) in enumerate(self._elastic.members())
        ]

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of an elastic session: the changes of members that it has seen, as dicts of "epoch",
        "step" (which was repeated), "gone" (dicts of "id", the former "rank", "why"), "joined"
        (ids), "world_size", the "seconds" that the change took, and the "error" that began it;
        "residual_kept", the L2 norm of the residuals of the members that go on, in the unit of the
        arrays that a rank gives; and "residual_lost", an estimate of the others' residuals: as if
        each had had the mean square of those that are kept."""
        return self._elastic.events() if self._elastic is not None else []

    @property
    def joined_state(self) -> dict[str, Any] | None:
        """Of a process that joined an elastic session: the arrays that another rank's `state`
        returned, by name. None for others."""
        return self._joined

    def metrics(self) -> Metrics:
        """`BaseSession.metrics`; of an elastic session also "epoch", "world_size", and
        "recoveries" and "recovery_seconds", the number of changes of members and their time, and
        "residual_lost" in all of them (see `events`). Traffic is then that of the epoch."""
        changes = {} if self._elastic is None else members.changes(self._elastic)
        return {**super().metrics(), **changes}

    def close(self) -> None:
        """Says goodbye to the other ranks; idempotent. Called at exit in any case. If it is called
        while an exception propagates (in a `finally`, or at the end of a `with`), or at the exit of
        a program that an exception ended, it tells the other ranks about the exception."""
        self._leave(exception_under_way())

    def leave(self) -> None:
        """Called at exit: closes the session."""
        self._leave(exception_under_way(at_exit=True))

    def _leave(self, cause: BaseException | None) -> None:
        if cause is not None and not self.closed:
            if self._elastic is None:
                self._session.abort(gave_up(self.rank, cause))
            elif not isinstance(cause, Terminated):  # a member that leaves has not failed
                self._elastic.abort(problem_of(cause))
        forget(self)
        self._end()


def _places_of(held: Mapping[str, Any]) -> list[tuple]:
    return [
        (name, array.ctypes.data, array.nbytes, list(array.shape)) for name, array in held.items()
    ]


class _Waiting:
    """Waits for one bucket's end. It holds no reference to the session, because the session's own
    thread calls `end`, and must not keep its session alive."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: DeltawireError | None = None
        self.report: _core.Report | None = None

    def end(self, error: DeltawireError | None, report: _core.Report | None) -> None:
        self.error, self.report = error, report
        self.ended.set()


def _bytes_of(residuals: object) -> bytearray:
    if not isinstance(residuals, bytes | bytearray | memoryview):
        raise invalid(
            f"the state's residuals are a {type(residuals).__name__}, not bytes; load what save() "
            "gave"
        )
    return bytearray(residuals)


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if rank is None or world_size is None:
        raise invalid("rank= and world_size= are missing")
    return arguments.check_rank(rank, world_size)
