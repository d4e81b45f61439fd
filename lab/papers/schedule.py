"""The runs of a paper that are still missing, made one after another."""

import sys
import time

from lab.papers.declaration import Paper, Run, Scale
from lab.papers.results import Results


class Schedule:
    """Runs of a paper at a scale, seed after seed.

    Args:
        runs: those that are wanted.
        failures: what may keep a run from being made here; it is named and left out.
    """

    def __init__(
        self,
        paper: Paper,
        runs: list[Run],
        results: Results,
        failures: tuple[type[Exception], ...] = (),
    ) -> None:
        self._paper, self._runs, self._results = paper, runs, results
        self._failures = failures

    def work(self, scale: Scale, seeds: int) -> int:
        """Makes all missing runs; returns how many failed. A line on standard error for each."""
        every = [(run, seed) for seed in range(1, seeds + 1) for run in self._runs]
        failed = 0
        for number, (run, seed) in enumerate(every, 1):
            if self._results.of(run.key, seed, scale.name) is None:
                _say(f"{number} of {len(every)}: table {run.table}, {run.cell}, seed {seed}")
                failed += not self._make(run, seed, scale)
        return failed

    def _make(self, run: Run, seed: int, scale: Scale) -> bool:
        """Makes and keeps a run; returns whether it could be made."""
        kind, began = self._paper.kinds[run.kind], time.monotonic()
        try:
            metrics = kind.measure(scale.settings[run.kind], run.settings, seed)
        except self._failures as cause:
            _say(f"table {run.table}, {run.cell}: {cause}")
            return False
        self._results.add(run, seed, scale.name, time.monotonic() - began, metrics)
        return True


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
