"""What the programs here have in common: how they read their command line, and how they end."""

import argparse
import sys
from collections.abc import Callable


def make_parser(program: str, text: str) -> argparse.ArgumentParser:
    """For `python -m PROGRAM`; its help begins with `text`, line by line as it stands."""
    return argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def exit_status(
    program: str,
    work: Callable[[], int | None],
    *failures: type[Exception],
    interrupted: str = "interrupted",
) -> int:
    """Runs `work`: what it gives, or 0. Where it raises one of `failures` 1, after Ctrl-C 130, and
    a line on standard error that says why."""
    try:
        return work() or 0
    except failures as cause:
        print(f"{program}: {cause}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: {interrupted}", file=sys.stderr)
        return 130
