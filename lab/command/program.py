"""Command-line programs: arguments, exit status, and long measurements that keep their results."""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

Case = TypeVar("Case")


def make_parser(program: str, text: str) -> argparse.ArgumentParser:
    """For `python -m PROGRAM`; its help begins with `text`, whose lines stay as they are."""
    return argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def main_of(
    program: str,
    parse: Callable[[list[str]], Any],
    run: Callable[[Any], int | None],
    *failures: type[Exception],
) -> Callable[[list[str] | None], int]:
    """The `main` of `python -m PROGRAM`: it parses the arguments (None: the command line's), runs,
    and returns the exit status, see `exit_status`."""

    def main(arguments: list[str] | None = None) -> int:
        given = parse(sys.argv[1:] if arguments is None else arguments)
        return exit_status(program, lambda: run(given), *failures)

    return main


def exit_status(
    program: str,
    work: Callable[[], int | None],
    *failures: type[Exception],
    interrupted: str = "interrupted",
) -> int:
    """Does the work and returns its result, or 0 for None. If it raises one of `failures`, returns
    1; after Ctrl-C, 130. A line on standard error says why."""
    try:
        return work() or 0
    except failures as cause:
        print(f"{program}: {cause}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: {interrupted}", file=sys.stderr)
        return 130


def measure_and_show(
    program: str,
    measure: Callable[[list], int | None],
    show: Callable[[list], str],
    *failures: type[Exception],
) -> int:
    """Like `exit_status`, for hours of work: `measure` appends its results to a list, which is
    shown at the end, even after a failure, SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found: list = []
    status = exit_status(
        program,
        lambda: measure(found),
        *failures,
        interrupted="interrupted; finished results are kept",
    )
    if found:
        print(show(found))
    return status


def measure_each(
    cases: Iterable[Case],
    measure: Callable[[Case], list],
    found: list,
    out: Path,
    failure: type[Exception],
) -> int:
    """Appends each case's results to `found`, and rewrites `out` after each, so that a long run
    that is interrupted keeps what it has. Returns 1 if a case raised `failure`, else 0."""
    out.parent.mkdir(parents=True, exist_ok=True)
    status = 0
    for case in cases:
        try:
            found.extend(measure(case))
        except failure as cause:
            print(f"{case}: {cause}", file=sys.stderr)
            status = 1
        out.write_text(json.dumps(found, indent=1) + "\n")
    return status
