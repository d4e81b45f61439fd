"""One method's training on a rank, with DistributedDataParallel or `LocalSteps`."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path

import deltawire.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from lab.models.networks import CharacterTransformer, WordLSTM
from lab.probes.local_rounds.methods import METHODS, Method, Size
from lab.ranks.rank import Line, Place, process_group

_BYTES = 256  # the vocabulary
_WARM_UP_SHARE = 0.05  # of the steps
_LAST_RATE = 0.1  # of the highest
_WEIGHT_DECAY = 0.1
_HELD_OUT_PIECE = 64
_SECONDS = 1800.0  # for a step of the others: the machine may be busy
_NAN = float("nan")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all methods have in common.

    Attributes:
        size: of the network and the batches.
        workers, rounds, steps: how many; steps are a worker's in a round.
        learning_rate: AdamW's highest.
        bf16: forward and backward passes are computed in bfloat16.
        pretraining: steps of DDP from which every method begins, with new moments.
    """

    size: Size
    workers: int
    rounds: int
    steps: int
    learning_rate: float
    bf16: bool = False
    pretraining: int = 0


class Text:
    """Bytes to train on, and bytes held out.

    Args:
        train, held_out: uint8 arrays.
        setting: of all methods.
    """

    def __init__(self, train: np.ndarray, held_out: np.ndarray, setting: Setting) -> None:
        size, self._setting = setting.size, setting
        self._train, self._reach = train, np.arange(size.length + 1)
        starts = np.linspace(0, len(held_out) - size.length - 1, size.held_out).astype(np.int64)
        lines = np.stack([held_out[start : start + size.length + 1] for start in starts])
        self._held_out = torch.from_numpy(lines).long()

    def batch(self, seed: int, worker: int, step: int) -> torch.Tensor:
        """int64 of shape (batch, length + 1), which depends only on the arguments."""
        chance, size = np.random.default_rng([seed, worker, step]), self._setting.size
        starts = chance.integers(0, len(self._train) - size.length - 1, size.batch)
        return torch.from_numpy(self._train[starts[:, None] + self._reach].astype(np.int64))

    @torch.no_grad()
    def held_out_loss(self, network: torch.nn.Module) -> float:
        """The mean cross-entropy of the next byte, in nats."""
        losses = [
            loss_of(network, piece, self._setting.bf16).item() * len(piece)
            for piece in self._held_out.split(_HELD_OUT_PIECE)
        ]
        return sum(losses) / len(self._held_out)


def loss_of(network: torch.nn.Module, lines: torch.Tensor, bf16: bool = False) -> torch.Tensor:
    """The mean cross-entropy of the next byte; with `bf16` of a forward pass in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = network(lines[:, :-1])
    return cross_entropy(logits.float().flatten(0, 1), lines[:, 1:].flatten())


def new_network(setting: Setting, seed: int) -> CharacterTransformer | WordLSTM:
    """The same for the same seed."""
    torch.manual_seed(seed)
    size = setting.size
    if size.is_lstm:
        lstm = WordLSTM(_BYTES, size.width, 2 * size.width, size.layers)
        lstm.lstm.batch_first = True
        return lstm
    network = CharacterTransformer(_BYTES, size.width, size.layers, size.length)
    if size.embedding is not None:
        torch.nn.init.normal_(network.embedding.weight, std=size.embedding)
    return network


class Worker:
    """A network with its inner optimizers, whose rate rises in a warm-up and falls in half a
    cosine. Muon's is scaled so that AdamW's rates fit it.

    Attributes:
        network: its own.
        optimizers: AdamW, and with `muon` also Muon.
    """

    def __init__(self, setting: Setting, seed: int, muon: bool = False) -> None:
        self.network, self._setting = new_network(setting, seed), setting
        inside = list(self.network.blocks.parameters()) if muon else []
        matrices = [p for p in inside if p.dim() == 2]
        known = set(map(id, matrices))
        others = [p for p in self.network.parameters() if id(p) not in known]
        settings = {"lr": setting.learning_rate, "weight_decay": _WEIGHT_DECAY}
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(others, fused=setting.bf16, **settings)
        ]
        if muon:
            scaled = torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw", **settings)
            self.optimizers.append(scaled)

    def step(self, step: int, batch: torch.Tensor, model: torch.nn.Module | None = None) -> None:
        """Trains on a batch, through a `model` that wraps the network; `step` is the number of the
        step, for the learning rate."""
        self.network.zero_grad()
        loss_of(model or self.network, batch, self._setting.bf16).backward()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._setting.learning_rate * self._rate_at(step)
            optimizer.step()

    def _rate_at(self, step: int) -> float:
        steps = self._setting.rounds * self._setting.steps
        rising = (step + 1) / max(1.0, _WARM_UP_SHARE * steps)
        falling = 0.5 * (1 + math.cos(math.pi * step / steps))
        return min(1.0, rising) * (_LAST_RATE + (1 - _LAST_RATE) * falling)


def pretrained(setting: Setting, seed: int, text: Text) -> dict[str, torch.Tensor]:
    """Weights after the setting's steps of pretraining at the size's rate, each on the batches of
    all workers. These are not the batches on which a method trains."""
    rate, first = setting.size.learning_rate, setting.rounds * setting.steps
    whole = dataclasses.replace(setting, rounds=1, steps=setting.pretraining, learning_rate=rate)
    worker = Worker(whole, seed)
    for step in range(setting.pretraining):
        own = [text.batch(seed, index, first + step) for index in range(setting.workers)]
        worker.step(step, torch.cat(own))
    return worker.network.state_dict()


def exchange_of(method: Method, worker: Worker, setting: Setting):
    """(what steps go through, what exchanges, what is called after a step); a collective."""
    adamw = worker.optimizers[0]
    if method.every_step:
        model = DistributedDataParallel(worker.network)
        seen = adamw if method.rule else None
        hook = deltawire.torch.register(model, method.spec, optimizer=seen, timeout=_SECONDS)
        return model, hook, lambda: None
    trainer = deltawire.torch.LocalSteps(
        worker.network,
        adamw,
        method.spec,
        steps=setting.steps,
        outer=method.outer,
        fragments=method.fragments,
        overlap=method.overlap,
        mixing=method.mixing,
        mask_momentum=False,
        timeout=_SECONDS,
    )
    return worker.network, trainer, trainer.stepped


def train(
    name: str,
    seed: int,
    setting: Setting,
    text: Text,
    start: dict[str, torch.Tensor] | None,
    every: int,
    progress: Callable[[int, float], None],
) -> dict:
    """One row of the table, a method's whole training; a collective. Losses are those of the first
    rank's weights, and only there.

    Args:
        name: of the method.
        seed: of the first weights and the batches.
        setting: of all methods.
        text: what it is trained on.
        start: the first weights; None: the seed's.
        every: rounds from one held-out loss to the next.
        progress: called with the rounds done and the loss.
    """
    method, rank = METHODS[name], dist.get_rank()
    worker = Worker(setting, seed, method.muon)
    if start is not None:
        worker.network.load_state_dict(start)
    model, exchange, stepped = exchange_of(method, worker, setting)
    curve: list[tuple[int, float, float]] = []  # rounds, bytes of a worker, loss
    seconds, sent = 0.0, _sent(exchange)
    try:
        for number in range(setting.rounds):
            began = time.monotonic()
            for step in range(number * setting.steps, (number + 1) * setting.steps):
                worker.step(step, text.batch(seed, rank, step), model)
                stepped()
            done = number + 1
            if done == setting.rounds and not method.every_step:
                exchange.exchange()
            seconds += time.monotonic() - began
            if done % every == 0 or done == setting.rounds:
                sent = _sent(exchange)
                dist.all_reduce(sent)
                sent /= setting.workers
                loss = text.held_out_loss(worker.network) if rank == 0 else _NAN
                curve.append((done, sent[0].item(), loss))
                progress(done, loss)
    except (deltawire.DeltawireError, RuntimeError):
        if getattr(exchange.last_error, "code", "") != "NotFinite":
            raise
        curve.append((number + 1, sent[0].item(), _NAN))
    finally:
        with contextlib.suppress(deltawire.DeltawireError):
            exchange.close()
    traffic, messages, raw = sent.tolist()
    return {
        "method": name,
        "seed": seed,
        "spec": method.spec,
        "parameters": sum(p.numel() for p in worker.network.parameters()),
        "loss": curve[-1][2],
        "bytes": traffic,
        "bits": 32 * messages / raw if raw else _NAN,
        "seconds": seconds,
        "curve": curve,
    }


def _sent(exchange) -> torch.Tensor:
    """Bytes that this rank has sent: on the links; of messages; and of these as float32."""
    metrics = exchange.metrics()
    keys = ("traffic_bytes_sent", "total_bytes_sent", "total_raw_bytes")
    return torch.tensor([metrics[key] for key in keys], dtype=torch.float64)


@dataclasses.dataclass(frozen=True)
class Job:
    """What all ranks do.

    Attributes:
        rows: methods and seeds.
        setting: of all rows.
        texts: to train on, and held out.
        starts: a file with the first weights of each seed that has one.
        every: rounds from one held-out loss to the next.
        threads: of PyTorch.
    """

    rows: list[tuple[str, int]]
    setting: Setting
    texts: tuple[np.ndarray, np.ndarray]
    starts: dict[int, Path]
    every: int
    threads: int


def run(place: Place, line: Line, job: Job) -> None:
    """A rank's program: rank 0 sends (rounds done, loss) of a row, and the row."""
    torch.set_num_threads(job.threads)
    torch.set_float32_matmul_precision("high")
    text = Text(*job.texts, job.setting)

    def progress(done: int, loss: float) -> None:
        if place.rank == 0:
            line.send((done, loss))

    with process_group(place, _SECONDS):
        for name, seed in job.rows:
            start = torch.load(job.starts[seed]) if seed in job.starts else None
            row = train(name, seed, job.setting, text, start, job.every, progress)
            if place.rank == 0:
                line.send(row)
        dist.barrier()
