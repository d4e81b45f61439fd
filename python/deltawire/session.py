"""Ranks that average NumPy arrays over TCP, without PyTorch."""

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from deltawire import _core, arguments, arrays
from deltawire.base_session import BaseSession
from deltawire.errors import DeltawireError, make_error
from deltawire.history import History
from deltawire.leaving import (
    ClosesAtEnd,
    exception_under_way,
    forget,
    gave_up,
    leave_at_exit,
)
from deltawire.policy import Policy, spec_of


class Session(ClosesAtEnd, BaseSession):
    """One rank of a job: `all_reduce` replaces arrays by their mean over all ranks.

    Every rank makes one and calls the same members in the same order with the same names and
    shapes. Rank 0 listens at `address`; the others connect to it, with the job's token::

        with deltawire.Session("3lc", rank=rank, world_size=2, address="10.0.0.1:29600") as session:
            session.all_reduce({"weights": gradient})

    Thread rule: any thread may call any member; steps run one after another. If several threads
    call `all_reduce`, the order of their calls must be the same on all ranks.
    """

    def __init__(
        self,
        spec: Policy,
        *,
        rank: int,
        world_size: int,
        address: str | None = None,
        token: str | bytes | None = None,
        encryption: str | None = None,
        interface: str | None = None,
        port: int | str | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 60.0,
        arrival_timeout: float = 60.0,
        min_elements: int = 256,
        revert: str = "exact",
        threads: int | None = None,
        nonfinite: str = "error",
        link: _core.LinkShape | None = None,
    ) -> None:
        """Connects; returns when all ranks are connected.

        Args:
            spec: pattern, codec and parameters, rules, or a policy (`deltawire.policy.spec_of`).
            rank: this one, 0 ... world_size - 1.
            world_size: ranks in the job.
            address: rank 0's host and a free port there, "10.0.0.1:29600"; required for two ranks
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
            revert: what happens to a step that fails, for all its arrays alike: "exact" (it never
                happened: give its input again; costs a second buffer of the residuals' size) or
                "fold" (its input is kept and sent later: never give it again; messages are kept
                until their step ends, docs/design/memory.md). `save` returns the kept input, too.
                "fold" is refused with `ring` and nonfinite="pass".
            threads: how many threads encode and decode a message; None: the process's.
            nonfinite: "error", or "pass": a step with NaN or infinities results in NaN on all ranks
                and leaves no trace.
            link: limits the rate at which this rank sends (the rate of a slow link, or of one to
                simulate).

        Raises:
            InvalidArgumentError (a ValueError): an invalid argument, or no token.
            DeltawireError: "Timeout" (names the missing ranks), "Unauthorized" (another token),
                "Mismatch" (a rank with another spec, other options or another encryption, or a
                duplicate rank), "Corrupt" (bytes were changed on the way),
                "PeerLost" (a rank that connected and died), "AddressInUse", "System"; each also if
                another rank found it.
        """
        place = _place(rank, world_size)
        text = spec_of(spec)
        options = arguments.reducer_options(min_elements, revert, threads, nonfinite)
        arguments.check_reducer(text, options)
        arguments.check_link(link)
        self._timeout_ms = arguments.timeout_in_ms(timeout)
        connect_ms = arguments.timeout_in_ms(connect_timeout, "connect_timeout")
        arrival_ms = arguments.timeout_in_ms(arrival_timeout, "arrival_timeout")
        secret = _secret(arguments.secret(token), world_size)
        encryption = arguments.encryption(encryption, has_secret=True)
        where = _where(address, world_size)
        mesh = _core.Mesh.at(where, *place, _core.token_of(secret))
        listener = _core.listen_for(where, rank, interface or "", *arguments.ports(port))
        mesh.set_encryption(encryption)
        mesh.shape = link
        mesh.connect_timeout_ms = connect_ms
        mesh.arrival_timeout_ms = arrival_ms
        history = History(rank, "skip or mend the step, or pass nonfinite='pass'")
        super().__init__(_core.Session(listener, mesh, text, options), place, history)
        self._steps = 0
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, self._session.close)
        self._end.atexit = False  # `leave` is called then
        leave_at_exit(self)

    def all_reduce(self, arrays_by_name: Mapping[str, Any], *, scale: float = 1.0) -> _core.Report:
        """One step: each array becomes its mean over all ranks, bit-equal on all of them.

        Args:
            arrays_by_name: float32, C-contiguous and writable NumPy arrays, or anything that
                supports DLPack on the CPU (e.g. PyTorch tensors); their memory is written. Names,
                shapes and their order must be the same on all ranks. Residuals belong to names.
            scale: the factor by which the arrays are scaled (a loss scale); equal on all ranks.

        Returns:
            What the step cost this rank: seconds, bytes, the means' digest.

        Raises:
            DTypeError (a TypeError), InvalidArgumentError (a ValueError): an array that is not
                supported; nothing is sent then.
            DeltawireError: the step failed on every rank, and the arrays are untouched: "Timeout",
                "PeerLost", "Aborted", "Mismatch" (other names or shapes on another rank),
                "NotFinite". The session can then only be saved and closed; `revert` says whether
                to give the step's arrays to a new one.
        """
        arrays.check_names(arrays_by_name)
        held = {name: arrays.to_write(name, array) for name, array in arrays_by_name.items()}
        tensors = [(name, array.ctypes.data, list(array.shape)) for name, array in held.items()]
        with self._lock:
            waiting = _Waiting()
            step = _core.Step(self._steps, 0, True, scale)
            self._session.submit(tensors, step, self._timeout_ms, waiting.end)
            try:
                waiting.ended.wait()  # the step has a deadline of its own
            except BaseException:  # Ctrl-C: the core uses the memory until it has released it
                self._session.abort(f"interrupted on rank {self.rank}")
                waiting.ended.wait()
                raise
            error = self._history.end(waiting.error, waiting.report, True)
            if error is not None:
                raise error
            self._steps += 1
            return waiting.report

    def abort(self, reason: str) -> None:
        """Fails every wait on every rank, naming this one and the reason."""
        self._session.abort(f"rank {self.rank} gave up: {reason}")

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
            self._session.load(bytearray(state["residuals"]))
            self._steps = state["steps"]

    @property
    def steps(self) -> int:
        """How many steps count, including those before a loaded state: the next step's number."""
        return self._steps

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
            self._session.abort(gave_up(f"rank {self.rank}", cause))
        forget(self)
        self._end()


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


def _place(rank: int, world_size: int) -> tuple[int, int]:
    arguments.check_positive("world_size", world_size)
    arguments.check_count("rank", rank)
    if rank >= world_size:
        raise make_error("InvalidArgument", f"rank={rank} must be below world_size={world_size}")
    return rank, world_size


def _secret(token: bytes | None, world_size: int) -> bytes:
    if token is None and world_size > 1:
        raise make_error(
            "InvalidArgument",
            "no token: set DELTAWIRE_TOKEN to the same value on every rank, or pass token=; make "
            "one with `openssl rand -hex 32`",
        )
    return token or bytes(32)


def _where(address: str | None, world_size: int) -> tuple[str, int]:
    if address is None and world_size > 1:
        raise make_error("InvalidArgument", 'no address: pass rank 0\'s, address="10.0.0.1:29600"')
    return ("127.0.0.1", 0) if address is None else _core.parse_endpoint(str(address), "address")
