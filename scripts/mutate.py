#!/usr/bin/env python3
"""Tests of the tests: plants one small fault at a time and asks whether the layer's tests see it.

Each mutant in scripts/mutants/<layer>.txt changes one line. It is planted in a copy of your
working tree (build/mutants/copy-*; your own files are only read), the layer's test targets are
built and its tests run:

  killed    a test failed: good
  time      the tests hung until the time limit, some five times what they take unspoilt: good too
  lived     all tests passed: a test is missing. Or the mutant changes nothing that can be seen:
            then give it a `= reason` line in its list, and it is not run again
  no-build  the compiler refused it, so that it says nothing: write it otherwise
  stale     its line is not in the file any more: mend the list (tests/scripts finds these too)

A layer for which the machine lacks something (neon: an aarch64 sysroot) is skipped, and named.

Exit status 0 when all were killed, 1 when some were not, or none ran, 2 for wrong usage; with
--no-skip 1 also when a layer was skipped. Ctrl-C stops it at any time and keeps what it knows.

examples:
  scripts/mutate.py --layer wire                 all mutants of src/wire
  scripts/mutate.py --layer wire --only 3        the third of its list, with the tests' output
  scripts/mutate.py --layer wire --lived         all but those that were killed last time
  scripts/mutate.py --jobs 4                     every layer, four copies at work
"""

import argparse
import fcntl
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutant_list import Layer, ListError, Mutant, read_layers
from mutant_trial import Laboratory, Outcome, Shell, Stopped, tail

GOOD = ("killed", "time")


def in_words(mutant: Mutant) -> str:
    """A mutant on one line."""
    change = f"{mutant.old} -> {mutant.new or '(nothing)'}"
    return f"{mutant.layer} {mutant.number}  {mutant.path}: {change}"


def print_outcome(outcome: Outcome, done: int, total: int, verbose: bool) -> None:
    """One line of progress; all of it for what needs a look."""
    took = f"{outcome.verdict:8} {outcome.seconds:6.1f} s"
    print(f"{done:4}/{total} {took}  {in_words(outcome.mutant)}", flush=True)
    if outcome.verdict in ("stale", "no-build") or verbose:
        print(tail(outcome.output), flush=True)


def run_layer(
    laboratory: Laboratory, layer: Layer, chosen: list[Mutant], verbose: bool
) -> Iterator[Outcome]:
    """Runs the chosen mutants of a layer. After Ctrl-C nothing of it runs any more."""
    print(f"\n{layer.name}: {len(chosen)} mutants; first the tests without one", flush=True)
    base = laboratory.prepare(layer)
    if isinstance(base, str):
        raise ListError(f"{layer.name}: {base}")
    limit = layer.grace + 5 * base
    print(f"{layer.name}: pass in {base:.1f} s; limit {limit:.0f} s", flush=True)
    with ThreadPoolExecutor(laboratory.jobs) as pool:
        waiting = [pool.submit(laboratory.try_one, layer, mutant, limit) for mutant in chosen]
        try:
            for done, future in enumerate(waiting, 1):
                print_outcome(future.result(), done, len(chosen), verbose)
                yield future.result()
        except BaseException:
            laboratory.shell.stop()
            pool.shutdown(cancel_futures=True)
            raise


def identity(mutant: Mutant) -> list[str]:
    """What a mutant is known by from run to run."""
    return [mutant.path, mutant.after, mutant.old, mutant.new]


def numbers(text: str) -> set[int]:
    """The numbers in `3`, `3,5` or `3-7`."""
    found = set()
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise argparse.ArgumentTypeError(f"{text!r}: write 3 or 3,5 or 3-7")
        found.update(range(int(first), int(last or first) + 1))
    return found


def choose(layer: Layer, arguments: argparse.Namespace, results: Path) -> list[Mutant]:
    """The mutants of a layer that the command line asks for."""
    chosen = [mutant for mutant in layer.mutants if not mutant.equivalent]
    if arguments.only:
        chosen = [mutant for mutant in layer.mutants if mutant.number in arguments.only]
    if arguments.lived:
        known = json.loads(results.read_text()) if results.is_file() else []
        killed = [row["mutant"] for row in known if row["verdict"] in GOOD]
        chosen = [mutant for mutant in chosen if identity(mutant) not in killed]
    return chosen


def record(results: Path, outcomes: list[Outcome]) -> None:
    """Keeps the last verdict on each mutant for --lived."""
    known = json.loads(results.read_text()) if results.is_file() else []
    new = [{"mutant": identity(each.mutant), "verdict": each.verdict} for each in outcomes]
    seen = [row["mutant"] for row in new]
    results.write_text(
        json.dumps([row for row in known if row["mutant"] not in seen] + new, indent=1)
    )


def print_summary(
    layers: dict[str, Layer], outcomes: list[Outcome], skipped: dict[str, str]
) -> None:
    """A row for each layer, and what needs a look."""
    verdicts = ("killed", "time", "lived", "no-build", "stale")
    print(
        f"\n{'layer':12}"
        + "".join(f"{verdict:>10}" for verdict in verdicts)
        + f"{'equivalent':>12}"
    )
    for name, layer in layers.items():
        counts = Counter(each.verdict for each in outcomes if each.mutant.layer == name)
        equivalent = sum(1 for mutant in layer.mutants if mutant.equivalent)
        print(f"{name:12}" + "".join(f"{counts[v]:10}" for v in verdicts) + f"{equivalent:12}")
    killed = sum(1 for each in outcomes if each.verdict in GOOD)
    rest = [each for each in outcomes if each.verdict not in GOOD]
    print(f"{killed} of {len(outcomes)} killed ({100 * killed / max(1, len(outcomes)):.1f} %)")
    for each in rest:
        print(f"  {each.verdict}: {in_words(each.mutant)}")
    for name, reason in skipped.items():
        print(f"  skipped: {name}, {len(layers[name].mutants)} mutants: {reason}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/mutate.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--layer", action="append", help="a list's name; may be given again (default: all)"
    )
    parser.add_argument(
        "--only",
        type=numbers,
        metavar="N",
        help="these of the list: 3 or 3,5 or 3-7; equivalent ones too",
    )
    parser.add_argument(
        "--lived", action="store_true", help="leave out those that were killed last time"
    )
    parser.add_argument(
        "--no-skip", action="store_true", help="exit status 1 when a layer was skipped"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="copies at work at once (default 1)"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parents[1],
        help="the tree to copy (default: this one)",
    )
    chosen = parser.parse_args(arguments)
    if chosen.jobs < 1:
        parser.error("--jobs must be at least 1")
    if chosen.only and (not chosen.layer or len(chosen.layer) != 1):
        parser.error("--only counts in one list: name it with --layer")
    return chosen


def run_layers(
    laboratory: Laboratory,
    layers: dict[str, Layer],
    arguments: argparse.Namespace,
    skipped: dict[str, str],
) -> list[Outcome]:
    """All layers asked for, one after another; what was done until Ctrl-C is kept. `skipped` gets
    the names of those that can't run here, with what is lacking."""
    outcomes: list[Outcome] = []
    folder = laboratory.root / "build" / "mutants"
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ListError(f"another run is at work in {folder}; wait for it or stop it") from None
    for name, layer in layers.items():
        results = folder / f"{name}.json"
        chosen = choose(layer, arguments, results)
        if not chosen:
            continue
        if lack := laboratory.lack(layer):
            print(f"\n{name}: SKIPPED, {len(chosen)} mutants: {lack}", flush=True)
            skipped[name] = lack
            continue
        done: list[Outcome] = []
        try:
            for outcome in run_layer(laboratory, layer, chosen, bool(arguments.only)):
                done.append(outcome)
        except (KeyboardInterrupt, Stopped):
            print("\nstopped", file=sys.stderr)
            return outcomes + done
        finally:
            record(results, done)
        outcomes += done
    return outcomes


def main(arguments: list[str] | None = None) -> int:
    """The program."""
    chosen = parse(arguments)
    os.nice(10)  # hours of it, beside other work
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root = chosen.root.resolve()
    try:
        layers = read_layers(root)
        unknown = [name for name in chosen.layer or [] if name not in layers]
        if unknown:
            print(
                f"no list of mutants for {', '.join(unknown)}; there are: {', '.join(layers)}",
                file=sys.stderr,
            )
            return 2
        if chosen.layer:
            layers = {name: layer for name, layer in layers.items() if name in chosen.layer}
        skipped: dict[str, str] = {}
        outcomes = run_layers(Laboratory(root, Shell(), chosen.jobs), layers, chosen, skipped)
    except ListError as error:
        print(f"scripts/mutate.py: {error}", file=sys.stderr)
        return 1
    print_summary(layers, outcomes, skipped)
    if skipped and chosen.no_skip:
        return 1
    return 0 if outcomes and all(each.verdict in GOOD for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
