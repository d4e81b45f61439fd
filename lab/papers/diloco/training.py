"""One method on one rank, and a rank's part of the whole comparison."""

import contextlib
import dataclasses
import time

import deltawire
import deltawire.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from lab.models.networks import CharacterTransformer
from lab.ranks.links import Link
from lab.ranks.rank import Line, Place, process_group

LENGTH = 64  # of the window, in characters
_BATCH = 16
_HELD_OUT_BATCHES = 40
_GROUP_SECONDS = 1800.0
SHORTEST_TEXT = 20 * LENGTH  # so that a tenth of it has a batch


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
    """The settings of all methods."""

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
        """The shape that sessions give to their links."""
        rate = self.link.bytes_per_second
        return None if rate is None else deltawire.LinkShape(rate)


@dataclasses.dataclass
class Row:
    """A method's figures on one rank: held-out loss, megabytes sent, seconds, seconds of waiting,
    and the share of the exchanges' time that was hidden."""

    method: str
    spec: str
    loss: float
    sent_mb: float
    seconds: float
    waited_seconds: float | None
    hidden: float | None


def batch_of(text: torch.Tensor, chance: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Characters, and the one that follows each of them."""
    starts = chance.integers(0, len(text) - LENGTH - 1, _BATCH)
    chosen = torch.stack([text[start : start + LENGTH + 1] for start in starts])
    return chosen[:, :-1], chosen[:, 1:]


def loss_of(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mean cross-entropy of the next character, in nats."""
    return cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


@torch.no_grad()
def held_out_loss(model: torch.nn.Module, text: torch.Tensor) -> float:
    """The mean loss over held-out batches, the same ones for every model."""
    chance = np.random.default_rng(0)
    losses = [loss_of(model, batch_of(text, chance)).item() for _ in range(_HELD_OUT_BATCHES)]
    return sum(losses) / len(losses)


def train(method: Method, settings: Settings, text: torch.Tensor, kinds: int) -> Row:
    """Trains on this rank; a collective."""
    torch.manual_seed(settings.seed)
    model = CharacterTransformer(kinds, settings.width, settings.layers, LENGTH)
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


def run(place: Place, line: Line, settings: Settings, text: tuple[np.ndarray, int]) -> None:
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
