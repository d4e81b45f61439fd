"""Starts ranks as processes of this machine, and exchanges messages with them.

A fork server imports PyTorch once for all ranks. Each rank has its own session, so that Ctrl-C only
reaches the launcher, and its own log, whose last line says why the rank ended.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from typing_extensions import Self

from lab.ranks.namespaces import Namespaces, enter_namespace
from lab.ranks.rank import END, Line, Place

PRELOADED = ["deltawire.torch", "torch._dynamo"]  # by the fork server, which skips missing modules
context = multiprocessing.get_context("forkserver")
_GRACE_SECONDS = 2.0  # for ranks to end by themselves


class RanksFailed(Exception):
    """Ranks that failed, ended or were silent: one line with the reason."""


class RankEnded(RanksFailed):
    """A rank whose process has ended; `status` is negative after a signal."""

    def __init__(self, reason: str, rank: int, status: int | None) -> None:
        super().__init__(reason)
        self.rank, self.status = rank, status


class Launcher:
    """Ranks that all run one program.

    Use it as a context manager: no rank outlives it. Thread rule: one thread.

    Args:
        program: called on each rank with its Place, its Line and the arguments of `start`. It must
            be importable, and all messages must pickle.
        ranks: how many.
        namespaces: a link for each rank; None for the loopback.

    Attributes:
        namespaces: as given; the rate of their links may be changed while ranks run.
    """

    def __init__(
        self, program: Callable[..., None], ranks: int, namespaces: Namespaces | None = None
    ) -> None:
        self.namespaces = namespaces
        self._program, self._ranks = program, ranks
        self._processes: dict[int, multiprocessing.process.BaseProcess] = {}
        self._lines: dict[int, multiprocessing.connection.Connection] = {}
        self._starts = 0
        self._temporary = tempfile.TemporaryDirectory(prefix="deltawire-lab-")
        self._folder = Path(self._temporary.name)

    def __enter__(self) -> Self:
        _start_fork_server()
        return self

    def __exit__(self, *unused) -> None:
        self.stop()
        self._temporary.cleanup()

    @property
    def running(self) -> bool:
        """Whether ranks have been started and not stopped."""
        return bool(self._processes)

    def start(self, *arguments: Any) -> None:
        """Starts all ranks, with a new rendezvous; may be called again after `stop`."""
        self._starts += 1
        for rank in range(self._ranks):
            self._log(rank).touch()  # it may end before it opens it
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_run,
                args=(self._program, self._place(rank), theirs, self._log(rank), arguments),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._processes[rank], self._lines[rank] = process, ours

    def send(self, message: Any) -> None:
        """Sends a message to all ranks. Raises RankEnded."""
        for rank in range(self._ranks):
            try:
                self._lines[rank].send(message)
            except OSError as cause:
                raise self._ended(rank) from cause

    def receive(
        self, seconds: float | None = None, among: Collection[int] | None = None
    ) -> tuple[int, Any]:
        """A rank and its message: the next one of any rank, or of those in `among`.

        Raises:
            RankEnded: one of these ranks has ended, and all its messages were received.
            RanksFailed: no message came for `seconds`.
        """
        ranks = range(self._ranks) if among is None else sorted(among)
        lines = {self._lines[rank]: rank for rank in ranks}
        ready = multiprocessing.connection.wait(list(lines), seconds)
        if not ready:
            silent = ", ".join(map(str, ranks))
            raise RanksFailed(f"no message for {seconds:g} s from rank(s) {silent}")
        rank = min(lines[line] for line in ready)
        try:
            return rank, self._lines[rank].recv()
        except (EOFError, OSError) as cause:
            raise self._ended(rank) from cause

    def messages(self, seconds: float | None = None) -> Iterator[Any]:
        """Rank 0's messages until it ends successfully.

        Raises:
            RanksFailed: a rank failed, or no message came for `seconds`.
        """
        waiting = set(range(self._ranks))
        while 0 in waiting:
            try:
                rank, message = self.receive(seconds, waiting)
            except RankEnded as end:
                if end.status != 0:
                    raise
                waiting.discard(end.rank)
                continue
            if rank == 0:
                yield message

    def first_end(self, seconds: float) -> str | None:
        """The exit reason of the first rank that ends within `seconds`; None if none does."""
        sentinels = {process.sentinel: rank for rank, process in self._processes.items()}
        ended = multiprocessing.connection.wait(list(sentinels), seconds)
        return str(self._ended(min(sentinels[each] for each in ended))) if ended else None

    def stop(self) -> None:
        """Ends all ranks, also those that hang."""
        for line in self._lines.values():
            with contextlib.suppress(OSError):
                line.send(END)
            line.close()
        deadline = time.monotonic() + _GRACE_SECONDS
        for process in self._processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
        self._processes, self._lines = {}, {}

    def _place(self, rank: int) -> Place:
        store = str(self._folder / f"store-{self._starts}")
        if self.namespaces is None:
            return Place(rank, self._ranks, store)
        return Place(
            rank,
            self._ranks,
            store,
            self.namespaces.interface,
            self.namespaces.address(rank),
            self.namespaces.name(rank),
        )

    def _log(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}.log"

    def _ended(self, rank: int) -> RankEnded:
        """The error for a rank that has ended, with its exit reason."""
        process = self._processes[rank]
        process.join(_GRACE_SECONDS)
        status = process.exitcode
        if status is None:
            return RankEnded(f"rank {rank} closed its line but still runs", rank, None)
        how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        lines = self._log(rank).read_text(errors="replace").strip().splitlines()
        reason = f"rank {rank} ended with {how}" + (f": {lines[-1].strip()}" if lines else "")
        return RankEnded(reason, rank, status)


def _start_fork_server() -> None:
    """Starts the fork server. It and all ranks ignore Ctrl-C, and compute with one thread."""
    if not PRELOADED or context.get_start_method() != "forkserver":
        return
    context.set_forkserver_preload(PRELOADED)
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    try:
        forkserver.ensure_running()
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _run(
    program: Callable[..., None],
    place: Place,
    connection: multiprocessing.connection.Connection,
    log: Path,
    arguments: tuple,
) -> None:
    """A rank's process."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with log.open("wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
    except FileNotFoundError:  # interrupted while it started this rank, the launcher has gone
        return
    if place.namespace is not None:
        enter_namespace(place.namespace)
    import torch

    torch.set_num_threads(1)
    program(place, Line(connection), *arguments)
