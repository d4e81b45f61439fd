"""`LocalSteps(..., "auto")` on a link, against the mildest and the thinnest of what it may choose.

    DELTAWIRE_DATA=... python -m lab.probes.auto_rounds --link 1mbit

Ranks are processes of this machine, and train the character-level transformer of
`lab.papers.diloco` over links that deltawire shapes, with AdamW. "auto" is given each batch's loss;
"auto, no loss" goes by how much waits. The loss is that of held-out text after the last step; MB
are a rank's, headers included; "waited" is the share of rank 0's seconds in which training stood
still for an exchange.
"""

import argparse
import json
import sys
import time

import deltawire
import deltawire.torch
import numpy as np
import torch
import torch.distributed as dist

from lab.command.program import main_of
from lab.data.images import DataError
from lab.models.networks import CharacterTransformer
from lab.papers.diloco import arguments
from lab.papers.diloco.training import LENGTH, Settings, batch_of, held_out_loss, loss_of
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.rank import Line, Place, process_group

_GROUP_SECONDS = 1800.0
# A packet: what a line lets pass at once. With more a link saves up for whole messages while the
# ranks compute, and their time says nothing about the next ones.
_BURST_BYTES = 1500
# By name: spec, length of a round in shortest rounds, whether it is given losses.
_METHODS = {
    "mildest": ("sbc:p=10%", 1, False),
    "thinnest": ("sbc:p=0.3%", 16, False),
    "auto": ("auto", 1, True),
    "auto, no loss": ("auto", 1, False),
}


def train(name: str, settings: Settings, text: torch.Tensor, kinds: int) -> dict:
    """Trains on this rank; a collective. Returns a row of the table."""
    spec, times, tells = _METHODS[name]
    rate = settings.link.bytes_per_second
    link = None if rate is None else deltawire.LinkShape(rate, burst_bytes=_BURST_BYTES)
    torch.manual_seed(settings.seed)
    model = CharacterTransformer(kinds, settings.width, settings.layers, LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    cut, chance = len(text) * 9 // 10, np.random.default_rng([settings.seed, dist.get_rank()])
    with deltawire.torch.LocalSteps(
        model, optimizer, spec, steps=times * settings.every, link=link
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


def on_a_rank(
    place: Place,
    line: Line,
    settings: Settings,
    methods: list[str],
    text: tuple[np.ndarray, int],
) -> None:
    """The methods, one after another; rank 0 sends the rows."""
    characters, kinds = torch.from_numpy(text[0]).long(), text[1]
    with process_group(place, _GROUP_SECONDS):
        for method in methods:
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


def parse(given: list[str]) -> argparse.Namespace:
    """The command line."""
    defaults = {"ranks": 2, "steps": 800, "every": 5, "link": "1mbit"}
    return arguments.parse("lab.probes.auto_rounds", __doc__, given, list(_METHODS), **defaults)


def run(given: argparse.Namespace) -> None:
    """Trains, and prints the table."""
    text = arguments.read_text()
    with Launcher(on_a_rank, given.settings.ranks) as ranks:
        ranks.start(given.settings, given.methods, text)
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
