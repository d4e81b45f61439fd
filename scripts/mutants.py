#!/usr/bin/env python3
"""Tests the tests: plants small faults in the code, one at a time, and checks that a test fails.

A mutant is a line with one fault: < becomes <=, + becomes -, a constant is off by one, a condition
is negated, a statement is dropped, min becomes max, && becomes ||, true becomes false. Mutants are
made from the lines that you changed since you left main (or COMMIT: --changed COMMIT), or from all
lines of a layer (--layer). Each is planted in a copy of your working tree (build/mutants/copy-*;
your own files are only read). Then the layer's tests are built and run, the nearest ones first:

  killed    a test failed, or the tests hung: they took 20 s more than five times their usual time
  lived     all tests passed: a test is missing, or no test can tell the mutant from the original
  refused   the compiler rejected it; not counted
  same      it compiles to the same program; not counted

The same --seed and files give the same mutants. Results are written to build/mutants/results.json;
--resume continues from there. If no test could kill a mutant that lived, write `"equivalent":
"why"` in its entry, and it is not counted either.

Exit status: 0 all were killed, 1 some lived, 2 nothing could be judged. Ctrl-C stops it at any time
and keeps the results so far.

examples:
  scripts/mutants.py                                  all mutants of the lines you changed
  scripts/mutants.py --sample 30                      at most thirty of them in each layer
  scripts/mutants.py --layer wire --sample 40         forty from src/wire
  scripts/mutants.py --layer wire --sample 40 --list  only list them
"""

import argparse
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import layer_tests
from mutant_rules import faults
from mutant_trial import Failed, Mutant, Result, Trial
from tree_copy import Shell, Stopped, git

HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def changed_lines(root: Path, commit: str) -> dict[str, set[int]]:
    """The lines of the working tree, by file, that are not in the merge base with a commit."""
    try:
        base = git(root, "merge-base", commit, "HEAD").strip()
    except subprocess.CalledProcessError:
        raise Failed(f"no common history with {commit!r}; name a commit: --changed") from None
    changed: dict[str, set[int]] = defaultdict(set)
    path = ""
    for line in git(root, "diff", "-U0", "--no-color", "--no-ext-diff", base).splitlines():
        if line.startswith("+++ "):
            path = line[6:]
        elif match := HUNK.match(line):
            first, count = int(match[1]), int(match[2] or 1)
            changed[path].update(range(first, first + count))
    for name in git(root, "ls-files", "-z", "--others", "--exclude-standard").split("\0"):
        if name and (root / name).is_file():
            changed[name] = set(range(1, (root / name).read_bytes().count(b"\n") + 2))
    return changed


def generate(
    root: Path,
    layers: layer_tests.Layers,
    wanted: Iterable[str],
    changed: dict[str, set[int]] | None = None,
) -> dict[str, list[Mutant]]:
    """The mutants of the wanted layers: of all their lines, or of those that changed."""
    found: dict[str, list[Mutant]] = defaultdict(list)
    names = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for path in sorted(names if changed is None else changed.keys() & names):
        layer = layers.of(path)
        if layer not in wanted or not (root / path).is_file():
            continue
        for fault in faults(path, (root / path).read_text(encoding="utf-8")):
            if changed is None or fault.line in changed[path]:
                found[layer].append(Mutant(**asdict(fault), layer=layer, path=path))
    return dict(sorted(found.items()))


def choose(mutants: list[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """Draws at most `count` of them: one of each line first; a line's rules are equally likely."""
    if count is None or count >= len(mutants):
        return mutants
    lots = random.Random(seed)
    lines: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        lines[mutant.path, mutant.line].append(mutant)
    order = list(lines.values())
    lots.shuffle(order)
    chosen: list[Mutant] = []
    while len(chosen) < count:
        for line in filter(None, order):
            rule = lots.choice(sorted({mutant.rule for mutant in line}))
            taken = lots.choice([mutant for mutant in line if mutant.rule == rule])
            line.remove(taken)
            chosen.append(taken)
    return chosen[:count]


class Results:
    """The results file: written after each mutant, so that nothing is lost."""

    def __init__(self, file: Path, resume: bool):
        self._file = file
        known = json.loads(file.read_text()) if resume and file.is_file() else []
        self.all = {result.key(): result for result in (Result(**entry) for entry in known)}

    def add(self, result: Result) -> None:
        """Adds a result, and writes the file."""
        self.all[result.key()] = result
        entries = [asdict(result) for result in self.all.values()]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(entries, indent=1) + "\n")
        beside.replace(self._file)

    def of(self, mutant: Mutant) -> Result | None:
        """The result that a mutant had in an earlier run, or None."""
        return self.all.get(mutant.key())


def run_layer(trial: Trial, mutants: list[Mutant], results: Results, done: list[Result]) -> None:
    """Judges the mutants of a layer; writes each result to the file at once."""
    print(f"\n{mutants[0].layer}: {len(mutants)} mutants; first the tests without one", flush=True)
    print(f"{mutants[0].layer}: its tests take {trial.prepare():.1f} s", flush=True)
    for number, result in enumerate(trial.judge(mutants), 1):
        results.add(result)
        done.append(result)
        place = f"{result.path}:{result.line}"
        took = f"{result.verdict:8} {result.seconds:6.1f} s"
        print(f"{number:4}/{len(mutants)} {took}  {place}  {result.rule}", flush=True)


def print_summary(done: list[Result]) -> None:
    """Prints a row for each layer, and the diff of each mutant that lived."""
    lived = [result for result in done if result.verdict == "lived" and not result.equivalent]
    for result in lived:
        print(f"\nlived: {result.diff()}")
    columns = ("killed", "lived", "equivalent", "refused", "same")
    print(f"\n{'layer':12}" + "".join(f"{name:>11}" for name in columns) + f"{'killed %':>10}")
    names = sorted({result.layer for result in done})
    for name in [*names, "all"] if len(names) > 1 else names:
        counts = Counter(
            "equivalent" if result.equivalent else result.verdict
            for result in done
            if name in (result.layer, "all")
        )
        judged = counts["killed"] + counts["lived"]
        share = f"{100 * counts['killed'] / judged:10.1f}" if judged else f"{'-':>10}"
        print(f"{name:12}" + "".join(f"{counts[each]:11}" for each in columns) + share)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutants.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--changed",
        metavar="COMMIT",
        help="lines changed since the merge base with it (default: main)",
    )
    parser.add_argument(
        "--layer",
        action="append",
        metavar="NAME",
        help="all lines of a layer; may be repeated; `all`: every layer",
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="at most N mutants of each layer (default: all)"
    )
    parser.add_argument("--seed", type=int, default=1, help="which N (default 1)")
    parser.add_argument("--list", action="store_true", help="list the mutants and plant none")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="default: build/mutants/results.json"
    )
    parser.add_argument("--resume", action="store_true", help="skip what the results file has")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="copies in use at once (default 1)"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parents[1],
        help="the tree (default: this one)",
    )
    chosen = parser.parse_args(arguments)
    if chosen.jobs < 1 or (chosen.sample is not None and chosen.sample < 1):
        parser.error("--jobs and --sample must be at least 1")
    if chosen.layer and chosen.changed:
        parser.error("--changed or --layer, not both")
    return chosen


def chosen_mutants(root: Path, chosen: argparse.Namespace) -> dict[str, list[Mutant]]:
    """The mutants that the command line asks for, by layer."""
    layers = layer_tests.Layers(root)
    wanted = layers.names if chosen.layer in (None, ["all"]) else chosen.layer
    if unknown := sorted(set(wanted) - set(layers.names)):
        raise Failed(f"no layer {', '.join(unknown)}; there are: {', '.join(layers.names)}")
    changed = None if chosen.layer else changed_lines(root, chosen.changed or "main")
    mutants = generate(root, layers, wanted, changed)
    return {name: choose(found, chosen.sample, chosen.seed) for name, found in mutants.items()}


def run(root: Path, chosen: argparse.Namespace, mutants: dict[str, list[Mutant]]) -> list[Result]:
    """Judges all mutants, layer by layer; after Ctrl-C, returns the results so far."""
    folder = root / "build" / "mutants"
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failed(f"another run is at work in {folder}; wait for it or stop it") from None
    results = Results(chosen.results or folder / "results.json", chosen.resume)
    done = [result for found in mutants.values() for each in found if (result := results.of(each))]
    shell = Shell()
    try:
        for layer, found in mutants.items():
            left = [mutant for mutant in found if results.of(mutant) is None]
            if left and (lack := layer_tests.lack(layer, root)):
                print(f"\n{layer}: SKIPPED, {len(left)} mutants: {lack}", flush=True)
            elif left:
                run_layer(Trial(root, layer, shell, chosen.jobs), left, results, done)
    except (KeyboardInterrupt, Stopped):
        print("\nstopped; --resume goes on", file=sys.stderr)
    return done


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    chosen = parse(arguments)
    root = chosen.root.resolve()
    try:
        mutants = chosen_mutants(root, chosen)
        if not mutants:
            print("no changed line has a mutant")
            return 0
        if chosen.list:
            print(*(mutant.diff() for found in mutants.values() for mutant in found), sep="\n")
            return 0
        done = run(root, chosen, mutants)
    except Failed as failed:
        print(f"scripts/mutants.py: {failed}", file=sys.stderr)
        return 2
    print_summary(done)
    judged = [each for each in done if each.verdict in ("killed", "lived") and not each.equivalent]
    return 1 if any(each.verdict == "lived" for each in judged) else 0 if done else 2


if __name__ == "__main__":
    os.nice(10)  # it can take hours, on machines where others work
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore SIGINT
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
