"""The effect of codecs on models after equal steps: loss and accuracy on held-out data.

    DELTAWIRE_DATA=... python -m lab.probes.equal_steps lstm --seeds 1 2 3
    DELTAWIRE_DATA=... python -m lab.probes.equal_steps transformer --methods plain 3lc int8

Ranks are processes of this machine that train with DDP, each on its own batches, which are the same
for every method. "plain" is DDP's own exchange, and anything else a spec. LeNet5 and ResNet-20
train with SGD and momentum 0.9, the LSTM and the transformer with Adam. Accuracy is the share of
held-out images, or of next words or characters, that the model predicts correctly.
"""

import argparse
import contextlib
import dataclasses
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import deltawire
import deltawire.torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab.command.program import main_of, make_parser
from lab.models.evaluate import held_out
from lab.models.trainings import TRAININGS, make_optimizer, make_training
from lab.probes.ceilings.contestants import PLAIN
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.rank import Line, Place, process_group

_METHODS = (PLAIN, "3lc:s=1.75", "ring(gcomp)", "gather(sbc:p=1%)", "powersgd:rank=4", "int8")
_SIZE = "large"  # the only size with held-out data
_GROUP_SECONDS = 1800.0  # the others wait while rank 0 evaluates
_OPTIMIZERS = {"lstm": "adam", "transformer": "adam"}  # others: sgd


@dataclasses.dataclass
class Row:
    """The result of a method with one seed. Loss and accuracy are NaN where it diverged."""

    method: str
    seed: int
    loss: float
    accuracy: float
    sent_mb: float


def train(name: str, method: str, seed: int, given: argparse.Namespace) -> Row:
    """Trains on this rank; a collective."""
    training = make_training(name, _SIZE, seed * given.ranks + dist.get_rank())
    optimizer = make_optimizer(training, _OPTIMIZERS.get(name, "sgd"))
    model = DistributedDataParallel(training.network)
    sent = float("nan")
    with contextlib.ExitStack() as stack:
        hook = None
        if method != PLAIN:
            seen = optimizer if deltawire.uses_significance(method) else None
            hook = deltawire.torch.register(model, method, optimizer=seen)
            stack.callback(hook.close)
        for step in range(given.steps):
            optimizer.zero_grad()
            training.loss_at(step, model).backward()
            optimizer.step()
        if hook is not None:
            sent = hook.metrics()["traffic_bytes_sent"] / 1e6
    loss, accuracy = 0.0, 0.0
    if dist.get_rank() == 0:
        loss, accuracy = held_out(training.network, training.held_out, training.criterion)
    return Row(method, seed, loss, accuracy, sent)


def _rank(place: Place, line: Line, given: argparse.Namespace) -> None:
    """All seeds and methods; rank 0 sends the rows."""
    with process_group(place, _GROUP_SECONDS):
        for seed in given.seeds:
            for method in given.methods:
                row = train(given.network, method, seed, given)
                if place.rank == 0:
                    line.send(row)
        dist.barrier()


def rows_of(given: argparse.Namespace) -> Iterator[Row]:
    """The rows, as they come. Raises RanksFailed."""
    with Launcher(_rank, given.ranks) as ranks:
        ranks.start(given)
        yield from ranks.messages()


def table_of(rows: list[Row]) -> str:
    """Markdown: medians over the seeds, and all accuracies; points are against plain's median."""
    lines = [
        "| method | loss | accuracy % (seeds) | points | MB sent |",
        "|---|---:|---:|---:|---:|",
    ]
    methods = dict.fromkeys(row.method for row in rows)
    medians = {}
    for method in methods:
        own = [row for row in rows if row.method == method]
        medians[method] = 100 * statistics.median(row.accuracy for row in own)
        points = medians[method] - medians.get(PLAIN, float("nan"))
        seeds = ", ".join(f"{100 * row.accuracy:.1f}" for row in own)
        lines.append(
            f"| `{method}` | {statistics.median(row.loss for row in own):.3f} "
            f"| {medians[method]:.1f} ({seeds}) | {points:+.1f} | {own[0].sent_mb:.2f} |"
        )
    return "\n".join(lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.equal_steps", __doc__)
    networks = [name for name in TRAININGS if name != "logistic"]
    parser.add_argument("network", choices=networks)
    parser.add_argument("--methods", nargs="+", default=list(_METHODS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="default 1")
    parser.add_argument("--steps", type=int, default=200, help="default 200")
    parser.add_argument("--ranks", type=int, default=4, help="default 4")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    given = parser.parse_args(arguments)
    for name in given.methods:
        try:
            if name != PLAIN:
                deltawire.canonical_spec(name)
        except deltawire.InvalidArgumentError as cause:
            parser.error(f"method '{name}': {cause}; or {PLAIN}")
    return given


def run(given: argparse.Namespace) -> None:
    """Trains, and prints the table."""
    rows: list[Row] = []
    for row in rows_of(given):
        rows.append(row)
        print(
            f"{row.method}, seed {row.seed}: loss {row.loss:.3f}, {100 * row.accuracy:.1f} %",
            file=sys.stderr,
            flush=True,
        )
    print(table_of(rows))
    if given.json is not None:
        given.json.write_text(
            json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n"
        )


main = main_of("lab.probes.equal_steps", parse, run, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
