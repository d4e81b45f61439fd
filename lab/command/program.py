"""Command-line programs: arguments and exit status."""

import argparse
import sys
from collections.abc import Callable
from typing import Any


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
    interrupted: str = "interrupted",
) -> Callable[[list[str] | None], int]:
    """The `main` of `python -m PROGRAM`: it parses the arguments (None: the command line's), runs,
    and returns what `run` returned, or 0 for None. If that raises one of `failures`, returns 1;
    after Ctrl-C, 130. A line on standard error says why."""

    def main(arguments: list[str] | None = None) -> int:
        given = parse(sys.argv[1:] if arguments is None else arguments)
        try:
            return run(given) or 0
        except failures as cause:
            print(f"{program}: {cause}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print(f"{program}: {interrupted}", file=sys.stderr)
            return 130

    return main
