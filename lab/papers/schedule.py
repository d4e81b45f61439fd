"""Which runs a budget allows, by measured costs; and how they are worked through."""

import re
import statistics
import sys
import time
from collections.abc import Callable

from lab.papers.declaration import Paper, Run, Scale
from lab.papers.results import Results

_UNITS = {"s": 1, "m": 60, "h": 3600}
_FEWEST_TO_JUDGE = 1.0  # seconds: shorter runs say little about longer ones


def parse_budget(text: str) -> float:
    """ "10m" in seconds. Raises ValueError with a line that says what is allowed."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise ValueError(f"'{text}' is not a budget; write e.g. 90s, 10m or 2h")
    return float(match[1]) * _UNITS[match[2]]


def in_words(seconds: float) -> str:
    """Seconds as "50 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Schedule:
    """Runs of a paper, and how long they take here.

    Args:
        runs: those that are wanted.
        failures: what may keep a run from being made here; it is named and left out.
        clock: in seconds; tests have their own.
    """

    def __init__(
        self,
        paper: Paper,
        runs: list[Run],
        results: Results,
        failures: tuple[type[Exception], ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paper, self._runs, self._results = paper, runs, results
        self._failures, self._clock = failures, clock
        self._began = clock()

    def choose(self, budget: float, seeds: int) -> tuple[Scale, int]:
        """The largest scale whose runs with all seeds take no longer than what the measurement of
        costs leaves of the budget; if none does, the smallest but the first and as many seeds as
        do, at least one."""
        self._probe()
        budget -= self._spent()
        for scale in reversed(self._paper.scales):
            if scale is not self._paper.scales[0] and seeds * self._one_seed(scale) <= budget:
                return scale, seeds
        smallest = self._paper.scales[min(1, len(self._paper.scales) - 1)]
        return smallest, max(1, min(seeds, int(budget / self._one_seed(smallest))))

    def work(self, scale: Scale, seeds: int, budget: float | None) -> tuple[int, int]:
        """Makes all missing runs that end within the budget, seed after seed. Returns how many
        failed, and how many are left. A line on standard error for each run."""
        missing = [
            (run, seed)
            for seed in range(1, seeds + 1)
            for run in self._runs
            if self._results.of(run.key, seed, scale.name) is None
        ]
        total, failed, too_long = seeds * len(self._runs), 0, 0
        for number, (run, seed) in enumerate(missing):
            slowness = self._slowness()
            left = sum(self._seconds(each, scale, slowness) for each, _ in missing[number:])
            if budget is not None and self._spent() + self._seconds(run, scale, slowness) > budget:
                too_long += 1
                continue
            _say(
                f"{total - len(missing) + number + 1} of {total}: table {run.table}, {run.cell}, "
                f"seed {seed} (about {in_words(left)} left)"
            )
            failed += not self._make(run, seed, scale)
        return failed, too_long

    def _spent(self) -> float:
        return self._clock() - self._began

    def _probe(self) -> None:
        """Makes runs of each kind at the first scale, unless some are known: two, because the first
        also reads the data."""
        scale, known = self._paper.scales[0], self._slowness()
        made: dict[str, int] = {}
        for run in self._runs:
            if run.kind not in known and made.get(run.kind, 0) < 2:
                made[run.kind] = made.get(run.kind, 0) + 1
                if self._results.of(run.key, 1, scale.name) is None:
                    _say(f"how fast this machine is: {run.kind}")
                    self._make(run, 1, scale)

    def _make(self, run: Run, seed: int, scale: Scale) -> bool:
        """Makes and keeps a run; returns whether it could be made."""
        kind, began = self._paper.kinds[run.kind], self._clock()
        try:
            metrics = kind.measure(scale.settings[run.kind], run.settings, seed)
        except self._failures as cause:
            _say(f"table {run.table}, {run.cell}: {cause}")
            return False
        self._results.add(run, seed, scale.name, self._clock() - began, metrics)
        return True

    def _one_seed(self, scale: Scale) -> float:
        slowness = self._slowness()
        return sum(self._seconds(run, scale, slowness) for run in self._runs)

    def _declared(self, run: Run, scale: Scale) -> float:
        return self._paper.kinds[run.kind].seconds(scale.settings[run.kind], run.settings)

    def _seconds(self, run: Run, scale: Scale, slowness: dict[str, float]) -> float:
        """How long a run takes here."""
        return self._declared(run, scale) * slowness.get(run.kind, 1.0)

    def _slowness(self) -> dict[str, float]:
        """By kind: measured over declared seconds of the runs that were made, the median; of long
        ones if there are some."""
        runs = {run.key: run for run in self._paper.runs}
        scales = {scale.name: scale for scale in self._paper.scales}
        found: dict[str, list[tuple[float, float]]] = {}
        for entry in self._results.all():
            run, scale = runs.get((entry["table"], entry["cell"])), scales.get(entry["scale"])
            if run is not None and scale is not None:
                declared = max(self._declared(run, scale), 1e-9)
                found.setdefault(run.kind, []).append((entry["seconds"], declared))
        return {kind: _median_ratio(pairs) for kind, pairs in found.items()}


def _median_ratio(pairs: list[tuple[float, float]]) -> float:
    long = [pair for pair in pairs if pair[1] >= _FEWEST_TO_JUDGE] or pairs
    return statistics.median_low([measured / declared for measured, declared in long])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
