"""One row: a network trained with one server, on a rank."""

import contextlib
import dataclasses

import deltawire.torch
import numpy as np
import torch
import torch.distributed as dist

from lab.probes.local_rounds.training import Setting, Text, Worker, loss_of
from lab.ranks.rank import Line, Place, process_group

_SECONDS = 1800.0  # for a step of the others: the machine may be busy


@dataclasses.dataclass(frozen=True)
class Row:
    """A training. `momentum`: as of `ParameterServer`."""

    spec: str
    momentum: str
    seed: int


def train(row: Row, setting: Setting, text: Text) -> dict:
    """Returns, on a worker, the loss of the weights and the bytes of its messages. A collective:
    rank 0 serves, the others work."""
    worker = Worker(setting, row.seed)
    (optimizer,) = worker.optimizers
    worker.set_rate(0)
    with contextlib.closing(
        deltawire.torch.ParameterServer(
            worker.network, optimizer, row.spec, momentum=row.momentum, timeout=_SECONDS
        )
    ) as server:
        if server.serves:
            server.serve(after_step=lambda: worker.set_rate(server.steps))
            return {}
        for step in range(setting.rounds * setting.steps):
            worker.network.zero_grad()
            batch = text.batch(row.seed, server.rank - 1, step)
            loss_of(worker.network, batch, setting.bf16).backward()
            server.step()
        metrics = server.metrics()
    loss, sent = text.held_out_loss(worker.network), ("push_bytes", "pull_bytes")
    return {"loss": loss, **{name: metrics[name] for name in sent}}


def run(
    place: Place, line: Line, rows: list[Row], setting: Setting, texts: tuple[np.ndarray, ...]
) -> None:
    """A rank's program: rank 0 sends what the first worker has of each row."""
    torch.set_num_threads(1)
    text = Text(*texts, setting)
    with process_group(place, _SECONDS):
        for row in rows:
            found: list[dict] = [{}] * place.ranks
            dist.all_gather_object(found, train(row, setting, text))
            if place.rank == 0:
                line.send(found[1])
