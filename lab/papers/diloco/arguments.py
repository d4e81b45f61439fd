"""What programs that train the transformer on Shakespeare take from their command line, and the
text."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lab.command.program import make_parser
from lab.data import texts
from lab.data.images import DataError, data_folder
from lab.papers.diloco.training import LENGTH, SHORTEST_TEXT, Settings
from lab.ranks.links import parse_link


def parse(
    program: str,
    text: str,
    arguments: list[str],
    methods: Sequence[str] = (),
    **defaults: object,
) -> argparse.Namespace:
    """The command line of `python -m PROGRAM`, whose help begins with `text`: `settings`, the file
    `json` for the rows, or None, and `methods`, those chosen of `methods`, by default all.
    `defaults`: of `ranks`, `steps`, `every` and `link`."""
    parser = make_parser(program, text)
    add = parser.add_argument
    if methods:
        add("--methods", nargs="+", choices=methods, metavar="NAME", help="default all")
    add("--ranks", type=int, help="default %(default)s")
    add("--steps", type=int, help="of each rank; default %(default)s")
    add("--every", type=int, help="local steps a round, the fewest with auto; default %(default)s")
    add("--lr", type=float, default=0.002, help="AdamW's rate; default %(default)s")
    add("--width", type=int, default=64, help="default %(default)s")
    add("--layers", type=int, default=2, help="default %(default)s")
    add("--seed", type=int, default=1, help="default %(default)s")
    add("--link", type=parse_link, help="e.g. 10mbit, or none; default %(default)s")
    add("--json", type=Path, help="a file for the rows")
    parser.set_defaults(methods=methods, **defaults)
    given = vars(parser.parse_args(arguments))
    other = {name: given.pop(name) for name in ("json", "methods")}
    return argparse.Namespace(settings=Settings(**given), **other)


def read_text() -> tuple[np.ndarray, int]:
    """(numbers of Shakespeare's characters, uint8; how many different ones). Raises DataError, also
    if a tenth of the text has no batch."""
    characters, kinds = texts.read_characters(data_folder())
    if len(characters) < SHORTEST_TEXT:
        raise DataError(
            f"shakespeare/input.txt has {len(characters)} characters, too few for "
            f"sequences of {LENGTH} in a tenth of it; get it again"
        )
    return characters.astype(np.uint8), kinds
