"""Runs seeds of the simulation of elastic sessions, and prints those that break a promise.

Exit status: 0, or 1 if a promise was broken.
"""

import argparse
import sys

from lab.command.program import main_of, make_parser
from lab.elastic_simulation.job import Job
from lab.elastic_simulation.plan import draw_plan
from lab.elastic_simulation.promises import broken_promises


def run(given: argparse.Namespace) -> int:
    """All seeds, or up to the first that breaks a promise."""
    broken, commits, views, events, seeds = 0, 0, 0, 0, 0
    for seed in range(given.seed, given.seed + given.seeds):
        job = Job(draw_plan(seed))
        job.run()
        seeds += 1
        commits += len(job.commits)
        views += len({each.epoch for each in job.commits})
        events += job.machine.events
        found = broken_promises(job)
        if given.trace:
            print(job.plan, *job.trace, sep="\n")
        for each in found:
            print(f"BROKEN by seed {seed}: {each}", flush=True)
        if found:
            broken += 1
            print(f"  again: python -m lab.elastic_simulation --seed {seed} --trace", flush=True)
        if found and not given.keep_going:
            break
    print(
        f"{broken} of {seeds} broken; {commits} steps seen committed, {views} views that committed "
        f"some, {events} events"
    )
    return 1 if broken else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.elastic_simulation", __doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; default 0")
    parser.add_argument("--seeds", type=int, default=1, help="how many; default 1")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--keep-going", action="store_true", help="go on after a broken promise")
    given = parser.parse_args(arguments)
    if given.seed < 0 or given.seeds < 1:
        parser.error("--seed is at least 0, and --seeds at least 1")
    return given


main = main_of("lab.elastic_simulation", parse, run)


if __name__ == "__main__":
    sys.exit(main())
