"""Ranks as processes in network namespaces, each behind a link of its own; rank 0 tells how it
goes, a line of JSON for each event."""

import contextlib
import dataclasses
import datetime
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from lab.demo.crew import rank_environment
from lab.ranks.namespaces import Namespaces

_LAST_WORDS = 3


class RanksFailed(Exception):
    """One line with the reason."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a rank stands. A rank's job begins with these fields.

    Attributes:
        rank, ranks: its number, of how many.
        store: a file that all ranks share.
        interface, address: of the link, as PyTorch and deltawire take it.
    """

    rank: int
    ranks: int
    store: str
    interface: str
    address: str


class LinkedRanks:
    """The running ranks. A context manager: no rank and no namespace outlives it.

    Args:
        module: of a rank's program, which takes its job as JSON.
        ranks: how many.
        bytes_per_second: of every link, in both directions.
        silence: seconds after which an event is overdue.

    Attributes:
        namespaces: whose links' rate may be changed meanwhile.

    Raises:
        NamespaceError: on entry; this machine has no namespaces for us.
    """

    def __init__(self, module: str, ranks: int, bytes_per_second: float, silence: float) -> None:
        self._module, self._ranks, self._silence = module, ranks, silence
        self.namespaces = Namespaces(ranks, bytes_per_second)
        self._ending = contextlib.ExitStack()
        self._processes: list[subprocess.Popen] = []

    def __enter__(self) -> "LinkedRanks":
        with contextlib.ExitStack() as ending:
            prefix = f"deltawire-{self._module.split('.')[1]}-"
            folder = tempfile.TemporaryDirectory(prefix=prefix)
            self._folder = Path(ending.enter_context(folder))
            ending.enter_context(self.namespaces)
            self._ending = ending.pop_all()
        return self

    def __exit__(self, *unused) -> None:
        self._ending.close()

    def start(self, **settings: object) -> None:
        """All ranks, each with the settings behind its `Place`'s fields."""
        for rank in range(self._ranks):
            place = Place(
                rank=rank,
                ranks=self._ranks,
                store=str(self._folder / "store"),
                interface=self.namespaces.interface,
                address=self.namespaces.address(rank),
            )
            job = json.dumps({**dataclasses.asdict(place), **settings})
            command = [sys.executable, "-m", self._module, job]
            with self._log(rank).open("wb") as log:
                process = subprocess.Popen(
                    [*self.namespaces.command_prefix(rank), *command],
                    stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if rank == 0 else log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the controlling process alone
                    env=rank_environment(),
                )
            self._ending.callback(_end, process)
            self._processes.append(process)

    def events(self) -> Iterator[dict]:
        """What rank 0 tells, up to the event "done", the last.

        Raises:
            RanksFailed: a rank ended early, or nothing came in time.
        """
        told = self._processes[0].stdout
        with selectors.DefaultSelector() as selector:
            selector.register(told, selectors.EVENT_READ)
            while True:
                if not selector.select(self._silence):
                    self._kill()
                    raise RanksFailed(f"rank 0 told nothing for {self._silence:.0f} s")
                line = told.readline()
                if not line:
                    self._kill()
                    raise RanksFailed(self._last_words())
                event = json.loads(line)
                yield event
                if event["event"] == "done":
                    return

    def go_on(self) -> None:
        """Lets rank 0 go on, which waits for a line."""
        self._processes[0].stdin.write(b"\n")
        self._processes[0].stdin.flush()

    def _log(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}.log"

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()

    def _last_words(self) -> str:
        """Of the rank whose log says most about an error."""
        for rank in range(self._ranks):
            lines = self._log(rank).read_text(errors="replace").strip().splitlines()
            errors = [line for line in lines if "Error" in line]
            if errors:
                return f"rank {rank}: " + " / ".join(line.strip() for line in errors[-_LAST_WORDS:])
        return "a rank ended without a word"


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    process.kill()
    process.wait()


def tell(place: Place, event: dict) -> None:
    """On rank 0, to whoever reads `LinkedRanks.events`."""
    if place.rank == 0:
        print(json.dumps(event), flush=True)


@contextlib.contextmanager
def process_group(place: Place, seconds: float) -> Iterator[None]:
    """On a rank: PyTorch's default group, over gloo and the link; `seconds` is its timeout."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = place.interface
    dist.init_process_group(
        "gloo",
        init_method=f"file://{place.store}",
        rank=place.rank,
        world_size=place.ranks,
        timeout=datetime.timedelta(seconds=seconds),
    )
    yield
    dist.barrier()
    dist.destroy_process_group()
