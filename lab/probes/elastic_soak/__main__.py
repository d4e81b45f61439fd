"""Elastic sessions under random faults: processes are killed, frozen, made to leave, and started,
also while the others meet again; with --splits the network is cut in two for a while. After each
step all members must have the same bits, and each step must have been committed once, by all
members of one epoch. Exit status 1 if not.

    python -m lab.probes.elastic_soak --steps 1000 --seed 1
    python -m lab.probes.elastic_soak --rounds --splits --ranks 6 --steps 1000

With --rounds the members train LeNet5 with 32 hidden units on MNIST by ElasticLocalSteps with
DiLoCo's outer optimizer, two local steps of 16 images a round; the loss on 2,000 test images is
printed at the end, and how many rounds after its knock each process trained that joined.
"""

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import random
import signal
import statistics
import sys
import time
from multiprocessing.connection import Connection, wait
from typing import Any

from lab.command.program import make_parser
from lab.probes.elastic_soak.member import Task
from lab.probes.elastic_soak.process import run_member
from lab.ranks.namespaces import Namespaces

_CONTEXT = multiprocessing.get_context("spawn")
_MOST, _FEWEST = 6, 3
_CUT_OFF = ("NoQuorum", "Timeout", "PeerLost")  # errors of members that a split has cut off
_START = 300.0  # seconds; until the first step, when all import what they need
_LATE = 3.0  # seconds in which all must have finished after the first one


class Process:
    """A member's process, and what it has said."""

    def __init__(self, place: dict, addresses: str, task: Task, slot: int) -> None:
        self.pipe, theirs = _CONTEXT.Pipe(duplex=False)
        arguments = (theirs, place, addresses, task)
        self.process = _CONTEXT.Process(target=run_member, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.id: int | None = None
        self.step = -1
        self.epoch = -1
        self.slot = slot  # its place in the network
        self.knocked_at: int | None = None  # the round that was open then
        self.frozen_until: float | None = None
        self.doomed = False  # it was killed, or told to leave
        self.ended = False

    def signal(self, number: int) -> None:
        """Sends it a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)


class Ledger:
    """What was committed by whom."""

    def __init__(self) -> None:
        self.steps: dict[int, tuple[int, tuple[int, ...], str]] = {}
        self.at: dict[int, float] = {}
        self.said: dict[int, set[int]] = {}
        self.faults: list[str] = []
        self.doors: list[str] = []
        self.waited: list[int] = []  # rounds from a knock to the first one that it trained
        self.losses: set[tuple[float, float]] = set()

    def note(self, process: Process, message: tuple) -> None:
        """A member has committed a step; compares it with what others said of that step."""
        step, epoch, ids, digest, at, doors = message[1:]
        known = self.steps.setdefault(step, (epoch, tuple(ids), digest))
        if known != (epoch, tuple(ids), digest):
            self.faults.append(
                f"step {step}: member {process.id} has epoch {epoch}, members {ids}, {digest[:8]}; "
                f"another had epoch {known[0]}, members {list(known[1])}, {known[2][:8]}"
            )
        if step != process.step + 1 and process.step >= 0:
            self.faults.append(f"member {process.id}: step {step} after {process.step}")
        self.at.setdefault(step, at)
        self.said.setdefault(step, set()).add(process.id)
        if process.knocked_at is not None:
            self.waited.append(step - process.knocked_at)
            process.knocked_at = None
        process.step, process.epoch = step, epoch
        if step >= max(self.at):
            self.doors = doors


class Soak:
    """Keeps three to six processes going, and breaks them. `network`: of as many namespaces; None:
    all are on one machine, and nothing splits."""

    def __init__(self, arguments: argparse.Namespace, network: Namespaces | None) -> None:
        self._arguments, self._network = arguments, network
        self._random = random.Random(arguments.seed)
        given = (arguments.spec, arguments.seconds, arguments.pace, arguments.steps)
        self._task = Task(*given, arguments.rounds, arguments.seed)
        self._healed_at: float | None = None  # while the network is split
        self.ledger = Ledger()
        kinds = ("killed", "frozen", "left", "joined", "excluded", "split")
        self.counts = dict.fromkeys(kinds, 0)
        self._processes: list[Process] = []
        self._next_fault = arguments.every
        self._finished_at: float | None = None
        port = 20_000 + os.getpid() % 10_000
        for rank in range(arguments.ranks):
            place = {"rank": rank, "world_size": arguments.ranks}
            host = "127.0.0.1" if network is None else network.address(0)
            self._start(place, f"{host}:{port}")

    def _start(self, place: dict, addresses: str) -> None:
        used = {each.slot for each in self._processes if not each.ended}
        slot = min(set(range(_MOST)) - used, default=None)
        if slot is None:
            return  # somebody who was given up is still in its place
        name = None if self._network is None else self._network.name(slot)
        task = dataclasses.replace(self._task, namespace=name)
        self._processes.append(Process(place, addresses, task, slot))

    def run(self) -> float:
        """Seconds from the first step to the last; raises TimeoutError where nothing goes on."""
        last_news, top = time.monotonic(), -1
        # Who still waits to join when the others have finished is too late.
        while self._finished_at is None or time.monotonic() < self._finished_at + _LATE:
            pipes = {each.pipe: each for each in self._processes if not each.ended}
            for pipe in wait(list(pipes), timeout=0.02):
                self._hear(pipes[pipe], pipe)
                if self._processes_step() > top:
                    last_news, top = time.monotonic(), self._processes_step()
            self._mend()
            if self._processes_step() >= self._next_fault:
                self._break()
            if all(each.ended for each in self._processes):
                break
            patience = _START if top < 0 else 20 * self._arguments.seconds
            if time.monotonic() > last_news + patience:
                self.ledger.faults.append("nothing goes on any more")
                raise TimeoutError
        times = self.ledger.at
        return max(times.values()) - min(times.values()) if times else 0.0

    def stop(self) -> None:
        """Kills what is left."""
        for each in self._processes:
            each.signal(signal.SIGKILL)
            each.process.join()

    def _tell(self, *what: object) -> None:
        if self._arguments.verbose:
            print(f"{time.monotonic():.2f}", *what, flush=True)

    def _hear(self, process: Process, pipe: Connection) -> None:
        try:
            message: tuple[Any, ...] = pipe.recv()
        except EOFError:
            process.ended = True
            if not process.doomed:
                self.ledger.faults.append(f"member {process.id} ended by itself")
            return
        if message[0] != "step" or message[2] != process.epoch:
            self._tell(process.process.pid, process.id, *message[:4])
        if message[0] == "step":
            self.ledger.note(process, message)
        elif message[0] == "in":
            process.id, process.step = message[1], -1
            self.counts["joined"] += message[1] >= self._arguments.ranks
        elif message[0] == "knock":
            # The round after the last one that is known to be committed is open.
            process.knocked_at = None if message[1] else self._processes_step() + 1
            process.step = -1
        elif message[0] == "loss":
            self.ledger.losses.add(message[1])
        elif message[0] == "error":
            self.counts["excluded"] += message[1] == "Excluded"
            process.step = -1
            expected = ("Excluded", *((*_CUT_OFF,) if self._network is not None else ()))
            known = process.doomed or self._finished_at is not None
            if message[1] not in expected and not known:
                self.ledger.faults.append(f"member {process.id}: {message[2]}")
        elif message[0] == "end":
            process.doomed = True
            if process.step == self._arguments.steps - 1:
                self._finished_at = self._finished_at or time.monotonic()

    def _processes_step(self) -> int:
        return max(self.ledger.at, default=-1)

    def _mend(self) -> None:
        for each in self._processes:
            if each.frozen_until is not None and time.monotonic() > each.frozen_until:
                each.frozen_until = None
                each.signal(signal.SIGCONT)
        if self._healed_at is not None and time.monotonic() > self._healed_at:
            self._healed_at = None
            self._network.heal()

    def _whole(self) -> list[Process]:
        """Those that run, and have come to the latest epoch."""
        return [
            each
            for each in self._processes
            if not (each.ended or each.doomed) and each.frozen_until is None and each.step >= 0
        ]

    # One fault, or two at once; never as many as would take the quorum.
    def _break(self) -> None:
        draw = self._random
        whole = self._whole()
        latest = max((each.epoch for each in whole), default=0)
        now = [each for each in whole if each.epoch == latest]
        view = self.ledger.steps[max(self.ledger.steps)][1]
        broken = any(each.frozen_until for each in self._processes) or self._healed_at is not None
        if len(now) != len(view) or broken:
            return  # not all have come to the latest epoch yet
        top = max(self.ledger.at)
        self._next_fault = top + 1 + draw.randrange(2 * self._arguments.every)
        if top > self._arguments.steps - 10:
            return
        splits = ("split",) if self._network is not None else ()
        kind = draw.choice(("kill", "kill", "freeze", "leave", "join", "join", *splits))
        count = 1 + (len(now) > 4 and draw.random() < 0.3)
        if kind == "join" or len(now) - count < _FEWEST:
            for _ in range(min(1 + draw.randrange(2), _MOST - len(now))):
                self._start({}, ",".join(draw.sample(self.ledger.doors, len(self.ledger.doors))))
            return
        if kind == "split":  # the others are more than half
            apart = draw.sample(now, draw.randint(1, (len(now) - 1) // 2))
            self._tell("split", [each.id for each in apart])
            self._healed_at = time.monotonic() + draw.uniform(0.1, 6 * self._arguments.seconds)
            self._network.split([each.slot for each in apart])
            self.counts["split"] += 1
            return
        for victim in draw.sample(now, count):
            self._tell(kind, victim.process.pid, victim.id, "of", view)
            self._hit(kind, victim)
            time.sleep(draw.choice((0.0, 0.05)))

    def _hit(self, kind: str, victim: Process) -> None:
        if kind == "kill":
            victim.doomed = True
            victim.signal(signal.SIGKILL)
            self.counts["killed"] += 1
        elif kind == "leave":
            victim.doomed = True
            victim.signal(signal.SIGUSR1)
            self.counts["left"] += 1
        else:
            longest = 6 * self._arguments.seconds  # about half of them are given up
            victim.frozen_until = time.monotonic() + self._random.uniform(0.1, longest)
            victim.signal(signal.SIGSTOP)
            self.counts["frozen"] += 1


def torn(ledger: Ledger) -> list[int]:
    """Steps that no member has reported, though there are later ones."""
    steps = range(max(ledger.steps, default=-1) + 1)
    return [step for step in steps if step not in ledger.steps]


def main() -> int:
    """One run."""
    parser = make_parser("lab.probes.elastic_soak", __doc__)
    add = parser.add_argument
    add("--spec", default="3lc", help="codec, or pattern and codec; default 3lc")
    add("--ranks", type=int, default=5, help="to begin with; default 5")
    add("--steps", type=int, default=300, help="default 300")
    add("--every", type=int, default=10, help="steps between faults, on average; default 10")
    add("--seed", type=int, default=1, help="of the faults; default 1")
    add("--seconds", type=float, default=2.0, help="until a silent rank is lost; default 2")
    add("--pace", type=float, default=0.1, help="seconds of computation a step; default 0.1")
    add("--rounds", action="store_true", help="rounds of local steps of LeNet5, instead of steps")
    add("--splits", action="store_true", help="cut the network, too; needs root and namespaces")
    add("--verbose", action="store_true", help="print every fault and every epoch")
    add("--undisturbed", action="store_true", help="no faults, for the time that they cost")
    arguments = parser.parse_args()
    if arguments.undisturbed:
        arguments.every = arguments.steps + 1
    os.environ.setdefault("DELTAWIRE_TOKEN", os.urandom(32).hex())
    with contextlib.ExitStack() as held:
        network = held.enter_context(Namespaces(_MOST, None)) if arguments.splits else None
        soak = Soak(arguments, network)
        try:
            seconds = soak.run()
        except TimeoutError:
            seconds = float("nan")
        finally:
            soak.stop()
    return _told(arguments, soak, seconds)


def _told(arguments: argparse.Namespace, soak: Soak, seconds: float) -> int:
    """Prints what was seen; the exit status."""
    ledger = soak.ledger
    missing = torn(ledger)
    if missing:
        ledger.faults.append(f"steps {missing[:5]} are missing")
    steps = len(ledger.steps)
    epochs = len({epoch for epoch, _, _ in ledger.steps.values()})
    counts = ", ".join(f"{count} {kind}" for kind, count in soak.counts.items())
    print(f"{arguments.spec}, seed {arguments.seed}: {steps} steps in {epochs} epochs, {counts};")
    print(f"{seconds:.1f} s, {1e3 * seconds / max(1, steps):.0f} ms a step")
    if ledger.waited:
        middle, most = statistics.median(ledger.waited), max(ledger.waited)
        print(f"trained {middle:g} steps after the knock (median), {most} at most")
    for loss, accuracy in sorted(ledger.losses):
        print(f"loss {loss:.4f}, accuracy {100 * accuracy:.2f} %")
    if len(ledger.losses) > 1:
        ledger.faults.append("members end with different losses")
    print(f"faults: {len(ledger.faults)}")
    for fault in ledger.faults[:20]:
        print(" ", fault)
    return 1 if ledger.faults else 0


if __name__ == "__main__":
    sys.exit(main())
