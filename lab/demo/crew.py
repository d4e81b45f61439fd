"""The worker processes of the demo, seen from the controlling process."""

import dataclasses
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lab.demo.methods import Method
from lab.demo.settings import Settings
from lab.ranks.namespaces import Namespaces

_START_SECONDS = 120.0  # importing PyTorch on a busy machine
_GRACE_SECONDS = 2.0  # for the other ranks to say why they failed, and for an end in peace
_READ_BYTES = 1 << 16


class CrewFailed(Exception):
    """A row, or the start of the workers, that failed: one line with the reason."""


@dataclasses.dataclass
class _Member:
    rank: int
    process: subprocess.Popen
    line: socket.socket
    log: Path
    unread: bytes = b""


class Crew:
    """Starts the workers once and gives them rows. After CrewFailed they have to be started again.

    Use as a context manager: no worker outlives it. Thread rule: one thread.
    """

    def __init__(self, settings: Settings, folder: Path, namespaces: Namespaces | None) -> None:
        self._settings = settings
        self._folder = folder
        self._namespaces = namespaces
        self._members: list[_Member] = []
        self._starts = 0

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *unused) -> None:
        self.stop()

    def run_row(self, method: Method, seed: int, on_news: Callable[[dict], None]) -> list[dict]:
        """Every rank's report of one training. `on_news` gets rank 0's events.

        Raises:
            CrewFailed: the row failed or hangs, or a worker ended.
        """
        try:
            if not self._members:
                self._start()
            order = {"method": dataclasses.asdict(method), "seed": seed}
            self._order([order] * self._settings.ranks)
            done = self._collect("done", 2 * self._settings.timeout + 10, on_news)
            return [news["report"] for news in done]
        except CrewFailed:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all workers, also those that hang."""
        for member in self._members:
            member.line.close()  # its end is theirs
        deadline = time.monotonic() + _GRACE_SECONDS
        for member in self._members:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
        self._members = []

    def _start(self) -> None:
        self._starts += 1
        for rank in range(self._settings.ranks):
            self._members.append(self._start_one(rank))
        store = self._folder / f"store-{self._starts}"
        jobs = []
        for rank in range(self._settings.ranks):
            place = {"interface": "127.0.0.1", "group_interface": "lo"}
            if self._namespaces is not None:
                place = {
                    "interface": self._namespaces.address(rank),
                    "group_interface": self._namespaces.interface,
                }
            settings = dataclasses.asdict(self._settings)
            jobs.append({"rank": rank, "settings": settings, "store": str(store), **place})
        self._order(jobs)
        self._collect("ready", _START_SECONDS, lambda news: None)

    def _start_one(self, rank: int) -> _Member:
        ours, theirs = socket.socketpair()
        log = self._folder / f"worker-{rank}.log"
        prefix = [] if self._namespaces is None else self._namespaces.command_prefix(rank)
        with theirs, log.open("wb") as output:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "lab.demo.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the controlling process, which ends them
                env=rank_environment(),
            )
        return _Member(rank, process, ours, log)

    def _order(self, orders: list[dict]) -> None:
        for member, order in zip(self._members, orders, strict=True):
            try:
                member.line.sendall(json.dumps(order).encode() + b"\n")
            except OSError as cause:
                raise CrewFailed(_obituary(member)) from cause

    def _collect(self, awaited: str, silence: float, on_news: Callable[[dict], None]) -> list[dict]:
        """One `awaited` event of every rank, in rank order; at most `silence` seconds without any
        event.
        """
        found: dict[int, dict] = {}
        with selectors.DefaultSelector() as selector:
            for member in self._members:
                selector.register(member.line, selectors.EVENT_READ, member)
            while len(found) < len(self._members):
                ready = selector.select(silence)
                if not ready:
                    missing = [m.rank for m in self._members if m.rank not in found]
                    raise CrewFailed(
                        f"no news for {silence:.0f} s from rank(s) {', '.join(map(str, missing))}"
                    )
                for key, _ in ready:
                    for news in self._read(key.data):
                        if news["event"] == awaited:
                            found[key.data.rank] = news
                        elif news["event"] == "failed":
                            raise CrewFailed(self._reason(news["error"]))
                        else:
                            on_news(news)
        return [found[rank] for rank in sorted(found)]

    def _read(self, member: _Member) -> list[dict]:
        try:
            received = member.line.recv(_READ_BYTES)
        except OSError:
            received = b""
        if not received:
            raise CrewFailed(_obituary(member))
        *lines, member.unread = (member.unread + received).split(b"\n")
        return [json.loads(text) for text in lines]

    def _reason(self, first_error: str) -> str:
        """A rank that ended is the cause; else what was said first."""
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            for member in self._members:
                if member.process.poll() is not None:
                    return _obituary(member)
            time.sleep(0.05)
        return first_error


def rank_environment() -> dict[str, str]:
    """One thread each, and this package on the path, wherever the demo was started."""
    path = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _obituary(member: _Member) -> str:
    """How a worker ended, and its last words."""
    try:
        status = member.process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"rank {member.rank} closed its line but goes on"
    how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
    words = member.log.read_text(errors="replace").strip().splitlines()
    return f"rank {member.rank} ended with {how}" + (f": {words[-1].strip()}" if words else "")
