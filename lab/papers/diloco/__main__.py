"""DiLoCo compared with data-parallel training at equal tokens: loss against bytes and seconds.

    DELTAWIRE_DATA=... python -m lab.papers.diloco [--steps 300] [--every 20] [--link 100mbit]

Ranks are processes of this machine. Each method trains the same character-level transformer on
Shakespeare from the same start, with AdamW, each rank on its own batches, which are the same for
every method. The methods:
- "DDP": gradients averaged in every step, through `register`;
- "local steps": weight changes averaged every so many steps (`LocalSteps`);
- "DiLoCo": the same with the outer optimizer, Nesterov's momentum at DiLoCo's settings;
- "delayed": with the exchange during the next local steps; "in 2 fragments": of half the layers.

The loss is that of the final common weights, the mean over fixed batches of the last tenth of the
text, which no rank trains on. Bytes are the mean of what a rank sent, headers included. Seconds are
rank 0's for all steps, over links shaped by deltawire itself (a token bucket for each rank in both
directions); "waited" is the part in which its training waited for an exchange (only known for local
steps).
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator

import numpy as np

from lab.command.program import main_of
from lab.data.images import DataError
from lab.papers.diloco import arguments, training
from lab.papers.diloco.training import Row, Settings
from lab.ranks.launcher import Launcher, RanksFailed


def rows_of(settings: Settings, text: tuple[np.ndarray, int]) -> Iterator[Row]:
    """The rows, as they come.

    Args:
        settings: of all methods.
        text: numbers of its characters, and how many different ones.

    Raises:
        RanksFailed: a rank ended early.
    """
    with Launcher(training.run, settings.ranks) as ranks:
        ranks.start(settings, text)
        yield from ranks.messages()


_HEAD = ("method", "codec", "loss", "MB sent", "times fewer", "seconds", "waited", "hidden")


def table_of(rows: list[Row]) -> str:
    """Markdown; "times fewer" compares the bytes with the first row's."""
    lines = ["| " + " | ".join(_HEAD) + " |", "|---|---|" + "---:|" * (len(_HEAD) - 2)]
    for row in rows:
        cells = (
            row.method,
            f"`{row.spec.partition(':')[0].rstrip(')')})`",
            f"{row.loss:.3f}",
            f"{row.sent_mb:.2f}",
            f"{rows[0].sent_mb / row.sent_mb:,.1f}" if row.sent_mb else "-",
            f"{row.seconds:.1f}",
            "-" if row.waited_seconds is None else f"{row.waited_seconds:.2f}",
            "-" if row.hidden is None else f"{100 * row.hidden:.0f} %",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse(given: list[str]) -> argparse.Namespace:
    """The command line."""
    return arguments.parse(
        "lab.papers.diloco", __doc__, given, ranks=4, steps=300, every=20, link="100mbit"
    )


def run(given: argparse.Namespace) -> None:
    """Trains, and prints the table."""
    rows = []
    for row in rows_of(given.settings, arguments.read_text()):
        rows.append(row)
        print(f"{row.method} {row.spec}: loss {row.loss:.3f}", file=sys.stderr, flush=True)
    print(table_of(rows))
    if given.json is not None:
        given.json.write_text(
            json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n"
        )


main = main_of("lab.papers.diloco", parse, run, DataError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
