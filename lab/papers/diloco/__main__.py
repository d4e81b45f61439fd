"""DiLoCo beside data-parallel training at equal tokens: loss against bytes and seconds.

    DELTAWIRE_DATA=... python -m lab.papers.diloco [--steps 300] [--every 20] [--link 100mbit]

Ranks are processes of this machine. Each method trains the same character-level transformer on
Shakespeare from the same start, with AdamW, each rank on its own batches, which are the same for
every method. The methods:
- "DDP": gradients averaged in every step, through `register`;
- "local steps": weight changes averaged every so many steps (`LocalSteps`);
- "DiLoCo": the same with the outer optimizer, Nesterov's momentum at DiLoCo's settings;
- "delayed": with the exchange during the next local steps; "in 2 fragments": of half the layers.

The loss is the mean over fixed batches of the last tenth of the text, which no rank trains on, of
the weights that all ranks have in common at the end. Bytes are what a rank's links sent in the
mean, headers included; seconds are rank 0's for all steps, over links shaped by deltawire itself (a
token bucket for each rank in both directions), and "waited" is the part in which its training
stood still for an exchange (known for local steps alone).
"""

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import deltawire
import deltawire.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from lab.command.program import exit_status, make_parser
from lab.data import texts
from lab.data.images import DataError, data_folder
from lab.models.networks import CharacterTransformer
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.links import Link, parse_link
from lab.ranks.rank import Line, Place, process_group

_LENGTH = 64
_BATCH = 16
_HELD_OUT_BATCHES = 40
_GROUP_SECONDS = 1800.0
_SHORTEST_TEXT = 20 * _LENGTH  # so that a tenth of it has a batch


@dataclasses.dataclass(frozen=True)
class Method:
    """One row of the table: a spec, and how LocalSteps uses it (None: DDP)."""

    name: str
    spec: str
    local: dict | None = None


METHODS = (
    Method("DDP", "direct(fp32)"),
    Method("DDP", "3lc"),
    Method("local steps", "direct(fp32)", {}),
    Method("DiLoCo", "direct(fp32)", {"outer": "nesterov"}),
    Method("DiLoCo", "3lc", {"outer": "nesterov"}),
    Method("DiLoCo, delayed", "3lc", {"outer": "nesterov", "delay": 1}),
    Method(
        "DiLoCo, delayed, in 2 fragments", "3lc", {"outer": "nesterov", "delay": 1, "fragments": 2}
    ),
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of all methods alike."""

    ranks: int
    steps: int
    every: int
    lr: float
    width: int
    layers: int
    seed: int
    link: Link

    @property
    def shape(self) -> deltawire.LinkShape | None:
        """What the sessions take."""
        rate = self.link.bytes_per_second
        return None if rate is None else deltawire.LinkShape(rate)


@dataclasses.dataclass
class Row:
    """What a method did on one rank: validation loss, megabytes sent, seconds, of these waiting,
    and the share of the exchanges' time that was hidden."""

    method: str
    spec: str
    loss: float
    sent_mb: float
    seconds: float
    waited_seconds: float | None
    hidden: float | None


def batch_of(text: torch.Tensor, chance: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Characters, and those that follow each."""
    starts = chance.integers(0, len(text) - _LENGTH - 1, _BATCH)
    chosen = torch.stack([text[start : start + _LENGTH + 1] for start in starts])
    return chosen[:, :-1], chosen[:, 1:]


def loss_of(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy of the next character, in nats."""
    return cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


@torch.no_grad()
def held_out_loss(model: torch.nn.Module, text: torch.Tensor) -> float:
    """Over the same batches each time."""
    chance = np.random.default_rng(0)
    losses = [loss_of(model, batch_of(text, chance)).item() for _ in range(_HELD_OUT_BATCHES)]
    return sum(losses) / len(losses)


def train(method: Method, settings: Settings, text: torch.Tensor, kinds: int) -> Row:
    """On this rank, together with the others."""
    torch.manual_seed(settings.seed)
    model = CharacterTransformer(kinds, settings.width, settings.layers, _LENGTH)
    cut = len(text) * 9 // 10
    chance = np.random.default_rng([settings.seed, dist.get_rank()])
    network = model if method.local is not None else DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    with contextlib.ExitStack() as stack:
        if method.local is None:
            exchange = deltawire.torch.register(network, method.spec, link=settings.shape)
            stack.callback(exchange.close)
            step, last = optimizer.step, lambda: None
        else:
            exchange = stack.enter_context(
                deltawire.torch.LocalSteps(
                    model,
                    optimizer,
                    method.spec,
                    steps=settings.every,
                    link=settings.shape,
                    **method.local,
                )
            )
            step, last = exchange.step, exchange.exchange
        dist.barrier()
        began = time.monotonic()
        for _ in range(settings.steps):
            optimizer.zero_grad()
            loss_of(network, batch_of(text[:cut], chance)).backward()
            step()
        last()
        seconds = time.monotonic() - began
        metrics = exchange.metrics()
    waited = metrics.get("total_waited_ms")
    return Row(
        method.name,
        exchange.spec,
        held_out_loss(model, text[cut:]),
        metrics["traffic_bytes_sent"] / 1e6,
        seconds,
        None if waited is None else waited / 1e3,
        metrics.get("hidden"),
    )


def _rank(place: Place, line: Line, settings: Settings, text: tuple[np.ndarray, int]) -> None:
    """All methods, one after another; rank 0 sends the rows."""
    characters, kinds = torch.from_numpy(text[0]).long(), text[1]
    with process_group(place, _GROUP_SECONDS):
        for method in METHODS:
            row = train(method, settings, characters, kinds)
            sent = torch.tensor(row.sent_mb, dtype=torch.float64)
            dist.all_reduce(sent)
            row.sent_mb = sent.item() / settings.ranks
            if place.rank == 0:
                line.send(row)
        dist.barrier()


def rows_of(settings: Settings, text: tuple[np.ndarray, int]) -> Iterator[Row]:
    """The rows, as they come.

    Args:
        settings: of all methods.
        text: numbers of its characters, and how many different ones.

    Raises:
        RanksFailed: a rank ended early.
    """
    with Launcher(_rank, settings.ranks) as ranks:
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


def _settings(arguments: list[str]) -> tuple[Settings, Path | None]:
    parser = make_parser("lab.papers.diloco", __doc__)
    parser.add_argument("--ranks", type=int, default=4, help="default 4")
    parser.add_argument("--steps", type=int, default=300, help="of each rank; default 300")
    parser.add_argument("--every", type=int, default=20, help="local steps a round; default 20")
    parser.add_argument("--lr", type=float, default=0.002, help="AdamW's rate; default 0.002")
    parser.add_argument("--width", type=int, default=64, help="default 64")
    parser.add_argument("--layers", type=int, default=2, help="default 2")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--link", type=parse_link, default="100mbit", help="e.g. 10mbit, or none")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    given = vars(parser.parse_args(arguments))
    file = given.pop("json")
    return Settings(**given), file


def run(settings: Settings, file: Path | None) -> None:
    """Trains, and prints the table."""
    rows = []
    characters, kinds = texts.read_characters(data_folder())
    if len(characters) < _SHORTEST_TEXT:
        raise DataError(
            f"shakespeare/input.txt has {len(characters)} characters, too few for "
            "batches of 64 in a tenth of it; get it again"
        )
    for row in rows_of(settings, (characters.astype(np.uint8), kinds)):
        rows.append(row)
        print(f"{row.method} {row.spec}: loss {row.loss:.3f}", file=sys.stderr, flush=True)
    print(table_of(rows))
    if file is not None:
        file.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """The program; its exit status."""
    settings, file = _settings(sys.argv[1:] if arguments is None else arguments)
    return exit_status("lab.papers.diloco", lambda: run(settings, file), DataError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
