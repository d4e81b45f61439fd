"""`LocalSteps(..., "auto")` on a link, against the mildest and the thinnest of what it may choose.

    DELTAWIRE_DATA=... python -m lab.probes.auto_rounds --link 1mbit

Ranks are processes of this machine, and train the character-level transformer of
`lab.papers.diloco` over links that deltawire shapes, with AdamW. "auto" is given each batch's loss;
"auto, no loss" goes by how much waits. The loss is that of held-out text after the last step; MB
are a rank's, headers included; "waited" is the share of rank 0's seconds in which training stood
still for an exchange.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

import deltawire.torch
import numpy as np
import torch
import torch.distributed as dist

from lab.command.program import main_of, make_parser
from lab.data import texts
from lab.data.images import DataError, data_folder
from lab.models.networks import CharacterTransformer
from lab.papers.diloco.training import Settings, batch_of, held_out_loss, loss_of
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.links import parse_link
from lab.ranks.rank import Line, Place, process_group

_LENGTH = 64  # of the transformer's window, as in lab.papers.diloco
_GROUP_SECONDS = 1800.0
# Name, spec, length of a round in shortest rounds, whether it is given losses.
_METHODS = (
    ("mildest", "sbc:p=10%", 1, False),
    ("thinnest", "sbc:p=0.3%", 16, False),
    ("auto", "auto", 1, True),
    ("auto, no loss", "auto", 1, False),
)


def train(method: tuple, settings: Settings, text: torch.Tensor, kinds: int) -> dict:
    """Trains on this rank; a collective. Returns a row of the table."""
    name, spec, times, tells = method
    torch.manual_seed(settings.seed)
    model = CharacterTransformer(kinds, settings.width, settings.layers, _LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    cut, chance = len(text) * 9 // 10, np.random.default_rng([settings.seed, dist.get_rank()])
    with deltawire.torch.LocalSteps(
        model, optimizer, spec, steps=times * settings.every, link=settings.shape
    ) as trainer:
        dist.barrier()
        began, chosen = time.monotonic(), []
        for step in range(settings.steps):
            optimizer.zero_grad()
            loss = loss_of(model, batch_of(text[:cut], chance))
            loss.backward()
            if tells:
                trainer.observe(loss)
            trainer.step()
            metrics = trainer.metrics()
            choice = f"{100 * metrics['auto_share']:g} %, {trainer.steps}" if spec == "auto" else ""
            if choice and choice not in [words for _, words in chosen[-1:]]:
                chosen.append((step + 1, choice))
        trainer.exchange()
        seconds, metrics = time.monotonic() - began, trainer.metrics()
    return {
        "method": name,
        "loss": held_out_loss(model, text[cut:]),
        "mb": metrics["traffic_bytes_sent"] / 1e6,
        "seconds": seconds,
        "waited": metrics["total_waited_ms"] / 1e3 / seconds,
        "chosen": chosen,
    }


def on_a_rank(place: Place, line: Line, settings: Settings, text: tuple[np.ndarray, int]) -> None:
    """All methods, one after another; rank 0 sends the rows."""
    characters, kinds = torch.from_numpy(text[0]).long(), text[1]
    with process_group(place, _GROUP_SECONDS):
        for method in _METHODS:
            row = train(method, settings, characters, kinds)
            if place.rank == 0:
                line.send(row)
        dist.barrier()


def table_of(rows: list[dict]) -> str:
    """Markdown."""
    lines = ["| method | loss | MB sent | seconds | waited | p and steps chosen, after step |"]
    lines.append("|---|---:|---:|---:|---:|---|")
    for row in rows:
        chosen = "; ".join(f"{words} ({step})" for step, words in row["chosen"])
        lines.append(
            f"| {row['method']} | {row['loss']:.3f} | {row['mb']:.3g} | {row['seconds']:.1f} | "
            f"{100 * row['waited']:.0f} % | {chosen} |"
        )
    return "\n".join(lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.auto_rounds", __doc__)
    parser.add_argument("--ranks", type=int, default=2, help="default 2")
    parser.add_argument("--steps", type=int, default=800, help="of each rank; default 800")
    parser.add_argument("--every", type=int, default=5, help="fewest steps a round; default 5")
    parser.add_argument("--lr", type=float, default=0.002, help="AdamW's rate; default 0.002")
    parser.add_argument("--width", type=int, default=64, help="default 64")
    parser.add_argument("--layers", type=int, default=2, help="default 2")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--link", type=parse_link, default="1mbit", help="e.g. 10mbit, or none")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    return parser.parse_args(arguments)


def run(given: argparse.Namespace) -> None:
    """Trains, and prints the table."""
    fields = {each.name for each in dataclasses.fields(Settings)}
    settings = Settings(**{name: each for name, each in vars(given).items() if name in fields})
    characters, kinds = texts.read_characters(data_folder())
    with Launcher(on_a_rank, settings.ranks) as ranks:
        ranks.start(settings, (characters.astype(np.uint8), kinds))
        rows = []
        for row in ranks.messages():
            rows.append(row)
            print(f"{row['method']}: loss {row['loss']:.3f}", file=sys.stderr, flush=True)
    print(table_of(rows))
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


main = main_of("lab.probes.auto_rounds", parse, run, DataError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
