"""The runs of a paper that are still missing, made one after another."""

import sys
import time

from lab.papers.declaration import Run, Scale
from lab.papers.results import Results


def make_missing(
    results: Results, runs: list[Run], scale: Scale, seeds: int, *failures: type[Exception]
) -> int:
    """Makes and keeps those of a paper's runs that are missing, seed after seed; returns how many
    failed. A line on standard error for each.

    Args:
        failures: what may keep a run from being made here; it is named and left out.
    """
    every = [(run, seed) for seed in range(1, seeds + 1) for run in runs]
    failed = 0
    for number, (run, seed) in enumerate(every, 1):
        if results.of(run.key, seed, scale.name) is not None:
            continue
        _say(f"{number} of {len(every)}: table {run.table}, {run.cell}, seed {seed}")
        kind, began = results.paper.kinds[run.kind], time.monotonic()
        try:
            metrics = kind.measure(scale.settings[run.kind], run.settings, seed)
        except failures as cause:
            _say(f"table {run.table}, {run.cell}: {cause}")
            failed += 1
        else:
            results.add(run, seed, scale.name, time.monotonic() - began, metrics)
    return failed


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
