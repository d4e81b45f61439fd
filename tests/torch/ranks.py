"""Real processes as ranks: started, watched, faulted and ended by a test.

A worker is a function worker(rank, world_size, report, ...) of a test module. It runs in a process
group over gloo on loopback; what it returns or raises comes back, and report(x) tells the test
something meanwhile.
"""

import contextlib
import dataclasses
import datetime
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
from models import DEVICE

AT_ONCE = 25.0  # seconds: what needs none may take this long on a busy machine; far below LONG

_FORKSERVER = multiprocessing.get_context("forkserver")  # tests/conftest.py says what it imports


def attempted(action):
    """On a rank: what `action()` raises as (type's name, text, suspect), or None. It must come at
    once on all ranks, and leave the process group usable."""
    dist.barrier()
    began = time.monotonic()
    try:
        action()
        caught = None
    except Exception as error:
        caught = (type(error).__name__, str(error), getattr(error, "suspect", None))
    assert time.monotonic() - began < AT_ONCE, "it took a timeout, not an answer"
    dist.barrier()
    return caught


@dataclasses.dataclass
class Outcome:
    """How a rank ended: `value` it returned, or name and text of what it raised; when (`at`, of
    time.monotonic(), which is the same clock in all processes); and `after` seconds counted from
    when the test began to wait."""

    value: object = None
    raised: str | None = None
    text: str = ""
    at: float = 0.0
    after: float = 0.0


def _run(worker, rank, world_size, init, pipe, args):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{init}",
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=60),
    )
    dist.barrier()  # who ends at once leaves nobody in the middle of connecting
    try:
        outcome = Outcome(value=worker(rank, world_size, pipe.send, *args))
    except BaseException as error:
        traceback.print_exc()
        outcome = Outcome(raised=type(error).__name__, text=str(error))
    outcome.at = time.monotonic()
    pipe.send(outcome)


class Ranks:
    """The running ranks of a test."""

    def __init__(self, worker, world_size, args=(), fresh=()):
        spawn = multiprocessing.get_context("spawn")
        if DEVICE.type == "cuda":
            fresh = range(world_size)  # a process can't use a GPU that a parent of it has asked for
        self._folder = tempfile.TemporaryDirectory(prefix="deltawire-ranks-")
        init = os.path.join(self._folder.name, "store")
        self.pipes, self.processes = [], []
        for rank in range(world_size):
            ours, theirs = multiprocessing.Pipe(duplex=False)
            process = (spawn if rank in fresh else _FORKSERVER).Process(
                target=_run, args=(worker, rank, world_size, init, theirs, args), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def hear(self, rank, timeout=90.0):
        """The next thing that a rank reports."""
        if not self.pipes[rank].poll(timeout):
            raise AssertionError(f"rank {rank} said nothing for {timeout} s")
        return self.pipes[rank].recv()

    def signal(self, rank, number):
        os.kill(self.processes[rank].pid, number)

    def until_it_waits(self, rank, timeout=60.0):
        """Until a rank takes no processor time: it waits for others. On however busy a machine, who
        has work gets more of a second than this."""
        end = time.monotonic() + timeout
        before = _ticks(self.processes[rank].pid)
        while time.monotonic() < end:
            time.sleep(1.0)
            now = _ticks(self.processes[rank].pid)
            if now - before <= 2:
                return
            before = now
        raise AssertionError(f"rank {rank} was at work for {timeout} s")

    def outcomes(self, ranks=None, timeout=90.0):
        """The outcomes of these ranks (default: all), by rank."""
        start = time.monotonic()
        waiting = set(range(len(self.processes)) if ranks is None else ranks)
        found = {}
        while waiting:
            left = timeout - (time.monotonic() - start)
            if left <= 0:
                raise AssertionError(f"ranks {sorted(waiting)} didn't end in {timeout} s")
            ready = multiprocessing.connection.wait([self.pipes[r] for r in waiting], left)
            for rank in [r for r in waiting if self.pipes[r] in ready]:
                outcome = self.pipes[rank].recv()
                if isinstance(outcome, Outcome):
                    outcome.after = time.monotonic() - start
                    found[rank] = outcome
                    waiting.discard(rank)
        return found

    def exit_codes(self, timeout=60.0):
        for process in self.processes:
            process.join(timeout)
        return [process.exitcode for process in self.processes]

    def end(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.join(10)
        self._folder.cleanup()


def _ticks(pid):
    """Of the processor's time (10 ms each), of all of a process's threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@contextlib.contextmanager
def started(worker, world_size, *args, fresh=()):
    """Ranks that end with the block, whatever happens in it. Those in `fresh` are interpreters of
    their own, which take seconds to import torch, and end as interpreters do."""
    ranks = Ranks(worker, world_size, args, fresh)
    try:
        yield ranks
    finally:
        ranks.end()


def results(worker, world_size, *args, fresh=(), timeout=100):
    """Runs a worker to its end: the values, by rank. A rank that raises, or is at work after
    `timeout` seconds, fails the test. `fresh` is as for `started`."""
    with started(worker, world_size, *args, fresh=fresh) as ranks:
        outcomes = ranks.outcomes(timeout=timeout)
    for rank, outcome in sorted(outcomes.items()):
        assert outcome.raised is None, f"rank {rank}: {outcome.raised}: {outcome.text}"
    return [outcomes[rank].value for rank in range(world_size)]


def refusals(worker, *settings):
    """What each rank of worker(rank, world_size, report, settings) has `attempted`, by rank: every
    rank was refused, in one line."""
    values = results(worker, len(settings), settings)
    print(values)
    assert all(value is not None and "\n" not in value[1] for value in values)
    return values


def _in_turn(rank, world_size, report, worker, cases):
    return [worker(rank, world_size, report, settings) for settings in cases]


def refusals_in_turn(worker, cases):
    """`refusals` of each of several lists of settings, by one group, which each leaves usable: to
    start ranks costs more than to refuse what they ask for."""
    values = list(zip(*results(_in_turn, len(cases[0]), worker, cases), strict=True))
    print(values)
    assert all(value is not None and "\n" not in value[1] for case in values for value in case)
    return values


def wait_for_training(ranks):
    """Until each rank has reported "training"."""
    for rank in range(len(ranks.processes)):
        assert ranks.hear(rank) == "training"
