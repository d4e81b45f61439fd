"""Training under faults: ranks are killed, cut off, frozen, send garbage or raise, and recover.

    python -m lab.probes.soak fp32 3lc gcomp sbc --steps 3000 --rate 0.01

For each codec LeNet5 with 32 hidden units (51,532 parameters) is trained twice with
DistributedDataParallel and deltawire's hook, each rank a process: once undisturbed, once with
faults that a seed chooses: at which step, on which rank, of which kind, and whether before, amid or
after the backward pass. After each fault all surviving ranks must be at the same step with the same
bits. They connect again and repeat the step that did not count; if a rank was killed, all return to
the last checkpoint, and a new process replaces it. At the end, and every 50 steps before, the
weights of all ranks must be bit for bit those of the undisturbed run.

If they are not, the exit status is 1, and one line says why.
"""

import argparse
import collections
import dataclasses
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from lab.command.program import main_of, make_parser
from lab.probes.soak.rank import KINDS, MOMENTS, Fault, Order, Plan, Report, checkpoint, run_rank
from lab.ranks.launcher import Launcher, RankEnded, RanksFailed

_SILENCE_SECONDS = 120.0  # until an attempt's next message


class SoakFailed(Exception):
    """A broken promise; the message is one line."""


@dataclasses.dataclass
class Outcome:
    """What happened in a run.

    Attributes:
        log: digests of the weights, by step, equal on all ranks.
        fired: faults, by kind.
        codes: the errors that ranks saw, by code.
        attempts: how often the ranks formed a group.
        compared: how often the weights of all surviving ranks were compared.
        repeated: how many steps were repeated, because of a checkpoint or because they failed.
    """

    log: dict[int, str] = dataclasses.field(default_factory=dict)
    fired: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    codes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    attempts: int = 0
    compared: int = 0
    repeated: int = 0
    seconds: float = 0.0


def chosen_faults(plan: Plan, rate: float, kinds: list[str]) -> tuple[Fault, ...]:
    """The faults: one at each step with probability `rate`; they depend only on the plan's seed."""
    chance = random.Random(f"{plan.seed} faults")
    faults = []
    for step in range(plan.steps):
        if chance.random() < rate:
            place = (chance.choice(kinds), chance.randrange(plan.ranks), chance.choice(MOMENTS))
            faults.append(Fault(step, *place))
    return tuple(faults)


class Soak:
    """A run: its ranks, and what they report."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._launcher = Launcher(run_rank, plan.ranks)
        self._fired: set[int] = set()
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Trains to the last step. Raises SoakFailed."""
        began = time.monotonic()
        with self._launcher:
            self._launcher.start(self._plan)
            start: int | None = 0
            reports: dict[int, Report] = {}
            while not reports or any(report.error for report in reports.values()):
                if self._outcome.attempts > 2 * len(self._plan.faults) + 1:
                    errors = {rank: report.error for rank, report in reports.items()}
                    raise SoakFailed(f"more attempts than faults; the last errors are {errors}")
                start = self._attempt(start, reports)
        self._outcome.seconds = time.monotonic() - began
        return self._outcome

    def _attempt(self, start: int | None, reports: dict[int, Report]) -> int | None:
        """One attempt of all ranks; returns where the next one begins. Fills `reports`."""
        self._outcome.attempts += 1
        self._launcher.send(Order(self._outcome.attempts, start, frozenset(self._fired)))
        reports.clear()
        reports |= self._reports()
        self._check(reports)
        dead = [rank for rank in range(self._plan.ranks) if rank not in reports]
        if not dead:
            self._outcome.repeated += any(report.error for report in reports.values())
            return None
        for rank in dead:
            self._launcher.start_rank(rank, self._plan)
        reports[dead[0]] = Report(0, "", "killed")
        last = self._last_checkpoint()
        self._outcome.repeated += next(iter(reports.values())).step - last + 1
        return last

    def _reports(self) -> dict[int, Report]:
        """The reports of all ranks that survive."""
        waiting, reports, frozen = set(range(self._plan.ranks)), {}, set()
        while waiting:
            if waiting == frozen:  # all others have dropped them
                for rank in frozen:
                    self._launcher.signal(rank, signal.SIGCONT)
                frozen = set()
            try:
                rank, message = self._launcher.receive(_SILENCE_SECONDS, waiting)
            except RankEnded as end:
                if end.status != -signal.SIGKILL:
                    raise SoakFailed(str(end)) from end
                waiting.discard(end.rank)
                continue
            except RanksFailed as cause:
                raise SoakFailed(str(cause)) from cause
            if isinstance(message, Report):
                reports[rank] = message
                waiting.discard(rank)
            elif isinstance(message, tuple):
                self._compare(rank, *message)
            else:
                fault = self._plan.faults[message]
                self._fired.add(message)
                self._outcome.fired[fault.kind] += 1
                if fault.kind == "freeze":
                    frozen.add(rank)
        return reports

    def _check(self, reports: dict[int, Report]) -> None:
        """Checks that all ranks are at the same step with the same weights."""
        seen = {(report.step, report.digest) for report in reports.values()}
        if len(seen) != 1:
            places = {rank: (report.step, report.digest) for rank, report in reports.items()}
            raise SoakFailed(f"the ranks differ, (next step, digest) by rank: {places}")
        for report in reports.values():
            if report.error:
                self._outcome.codes[report.code] += 1
        ((step, digest),) = seen
        self._outcome.compared += 1
        if not any(report.error for report in reports.values()):
            self._outcome.log[step] = digest

    def _compare(self, rank: int, step: int, digest: str) -> None:
        if self._outcome.log.setdefault(step, digest) != digest:
            raise SoakFailed(f"rank {rank}'s weights of step {step} differ")

    def _last_checkpoint(self) -> int:
        every, ranks = self._plan.checkpoint_every, range(self._plan.ranks)
        steps = range(0, self._plan.steps + 1, every)
        folder = self._plan.folder
        whole = (s for s in steps if all(checkpoint(folder, r, s).exists() for r in ranks))
        return max(whole, default=0)


def soaked(plan: Plan) -> Outcome:
    """Runs the plan in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="deltawire-soak-") as folder:
        return Soak(dataclasses.replace(plan, folder=Path(folder))).run()


def compared(plan: Plan, rate: float, kinds: list[str]) -> tuple[Outcome, Outcome]:
    """The undisturbed run, and the one with faults. Raises SoakFailed where they differ."""
    plain = soaked(plan)
    disturbed = soaked(dataclasses.replace(plan, faults=chosen_faults(plan, rate, kinds)))
    wrong = [step for step in plain.log if disturbed.log.get(step) != plain.log[step]]
    if wrong:
        raise SoakFailed(
            f"{plan.spec}: from step {min(wrong)} on the weights differ from the undisturbed run's"
        )
    return plain, disturbed


def line(plan: Plan, plain: Outcome, disturbed: Outcome) -> str:
    """A line of the table."""
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(disturbed.fired.items()))
    return (
        f"| `{plan.spec}` | {plan.steps:,} | {faults or 'none'} | {disturbed.repeated:,} "
        f"| {disturbed.compared + len(disturbed.log)} | `{disturbed.log[plan.steps]}` | equal "
        f"| {plain.seconds:.0f} | {disturbed.seconds:.0f} |"
    )


HEAD = (
    "| codec | steps | faults | steps done again | comparisons | weights | undisturbed | s | s |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    kinds = "\n".join(f"  {kind}: {what}" for kind, what in KINDS.items())
    parser = make_parser("lab.probes.soak", f"{__doc__}\nfaults:\n{kinds}")
    parser.add_argument("specs", nargs="+", metavar="CODEC", help='e.g. "3lc:s=1.75", "gcomp"')
    parser.add_argument("--steps", type=int, default=3000, help="default 3000")
    parser.add_argument("--ranks", type=int, default=4, help="default 4")
    parser.add_argument("--rate", type=float, default=0.01, help="faults a step, default 0.01")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--batch", type=int, default=4, help="images a step and rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="STEPS")
    parser.add_argument("--timeout", type=float, default=2.0, help="of the hook, in seconds")
    given = parser.parse_args(argv)
    if given.steps < 1 or given.ranks < 2 or not 0 <= given.rate <= 1 or given.checkpoint_every < 1:
        parser.error("steps and checkpoint-every from 1, ranks from 2, rate from 0 to 1")
    return given


def run(given: argparse.Namespace) -> None:
    """Prints the table, line by line."""
    print(HEAD, flush=True)
    for spec in given.specs:
        counts = (given.steps, given.ranks, given.batch, given.seed)
        plan = Plan(spec, *counts, Path(), given.checkpoint_every, given.timeout)
        plain, disturbed = compared(plan, given.rate, given.kinds)
        print(line(plan, plain, disturbed), flush=True)
        print(f"  errors seen: {dict(disturbed.codes)}", file=sys.stderr)


main = main_of("lab.probes.soak", parse, run, SoakFailed)


if __name__ == "__main__":
    sys.exit(main())
