"""One method's training on a rank, with DistributedDataParallel or `LocalSteps`."""

import contextlib
import dataclasses
import functools
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
_MUON_MOMENTUM = 0.95
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
        device: of networks and batches, as PyTorch names it; all workers share it.
    """

    size: Size
    workers: int
    rounds: int
    steps: int
    learning_rate: float
    bf16: bool = False
    pretraining: int = 0
    device: str = "cpu"


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
        """int64 of shape (batch, length + 1) on the setting's device; its values depend only on the
        arguments."""
        chance, size = np.random.default_rng([seed, worker, step]), self._setting.size
        starts = chance.integers(0, len(self._train) - size.length - 1, size.batch)
        lines = self._train[starts[:, None] + self._reach].astype(np.int64)
        return torch.from_numpy(lines).to(self._setting.device)

    @torch.no_grad()
    def held_out_loss(self, network: torch.nn.Module) -> float:
        """The mean cross-entropy of the next byte, in nats."""
        losses = [
            loss_of(network, piece.to(self._setting.device), self._setting.bf16).item() * len(piece)
            for piece in self._held_out.split(_HELD_OUT_PIECE)
        ]
        return sum(losses) / len(self._held_out)


def loss_of(network: torch.nn.Module, lines: torch.Tensor, bf16: bool = False) -> torch.Tensor:
    """The mean cross-entropy of the next byte; with `bf16` of a forward pass in bfloat16."""
    with torch.autocast(lines.device.type, torch.bfloat16, enabled=bf16):
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
    cosine. Muon's is scaled so that AdamW's rates fit it. With `ef21` its momentum is a worker's
    own, by whose changes gradients are replaced until they are averaged; their sum, of all steps,
    is what it steps by (Gruntkowska et al.: EF21-Muon, 2025; feedback makes what all have of a
    worker's momentum the estimate that EF21 corrects).

    Attributes:
        network: its own.
        optimizers: AdamW, and with `muon` also Muon.
    """

    def __init__(self, setting: Setting, seed: int, muon: bool = False, ef21: bool = False) -> None:
        self.network, self._setting = new_network(setting, seed).to(setting.device), setting
        inside = list(self.network.blocks.parameters()) if muon else []
        matrices = [p for p in inside if p.dim() == 2]
        known = set(map(id, matrices))
        others = [p for p in self.network.parameters() if id(p) not in known]
        settings = {"lr": setting.learning_rate, "weight_decay": _WEIGHT_DECAY}
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(others, fused=setting.bf16, **settings)
        ]
        if muon:
            settings |= {"adjust_lr_fn": "match_rms_adamw"} | ({"momentum": 0.0} if ef21 else {})
            self.optimizers.append(torch.optim.Muon(matrices, **settings))
        self._sums = {each: torch.zeros_like(each) for each in matrices} if ef21 else {}
        momenta = list(map(torch.zeros_like, self._sums))
        self._ef21 = [*self._sums.values(), *momenta]
        for each, momentum in zip(self._sums, momenta, strict=True):
            each.register_hook(functools.partial(_change_of, momentum))

    def step(self, step: int, batch: torch.Tensor, model: torch.nn.Module | None = None) -> None:
        """Trains on a batch, through a `model` that wraps the network; `step` is the number of the
        step, for the learning rate."""
        self.network.zero_grad()
        loss_of(model or self.network, batch, self._setting.bf16).backward()
        for each, whole in self._sums.items():
            each.grad.copy_(whole.add_(each.grad))
        self.set_rate(step)
        for optimizer in self.optimizers:
            optimizer.step()

    def set_rate(self, step: int) -> None:
        """Sets the optimizers' learning rates to those of a step."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._setting.learning_rate * self._rate_at(step)

    def state(self) -> dict:
        """For `load`: the weights, the optimizers' states and those of EF21."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        return {"network": self.network.state_dict(), "optimizers": optimizers, "ef21": self._ef21}

    def load(self, state: dict) -> None:
        """Restores what `state` returned."""
        self.network.load_state_dict(state["network"])
        for optimizer, own in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)
        for tensor, kept in zip(self._ef21, state["ef21"], strict=True):
            tensor.copy_(kept)

    def _rate_at(self, step: int) -> float:
        steps = self._setting.rounds * self._setting.steps
        rising = (step + 1) / max(1.0, _WARM_UP_SHARE * steps)
        falling = 0.5 * (1 + math.cos(math.pi * step / steps))
        return min(1.0, rising) * (_LAST_RATE + (1 - _LAST_RATE) * falling)


def _change_of(momentum: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    change = (1 - _MUON_MOMENTUM) * (gradient - momentum)
    momentum.add_(change)
    return change


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


@dataclasses.dataclass
class Course:
    """How far a row is.

    Attributes:
        rounds: that are done.
        seconds: of training.
        sent: see `_sent`; as a sum of all runs of a row that was cut.
        curve: (rounds, bytes of a worker, loss) wherever the loss was taken.
    """

    rounds: int = 0
    seconds: float = 0.0
    sent: torch.Tensor = dataclasses.field(default_factory=lambda: torch.zeros(3).double())
    curve: list[tuple[int, float, float]] = dataclasses.field(default_factory=list)


def train(
    name: str,
    seed: int,
    job: "Job",
    text: Text,
    progress: Callable[[int, float], None],
) -> dict | None:
    """One row of the table, a method's whole training; None if it was cut: the next call goes on
    from there. A collective. Losses are those of the first rank's weights, and only there.

    Args:
        name: of the method.
        seed: of the first weights and the batches.
        job: of all rows.
        text: what it is trained on.
        progress: called with the rounds done and the loss.
    """
    method, rank, setting = METHODS[name], dist.get_rank(), job.setting
    worker, course = Worker(setting, seed, method.muon, method.ef21), Course()
    state = job.states / f"{name}-{seed}-rank-{rank}.state"
    if seed in job.starts and not state.exists():
        worker.network.load_state_dict(torch.load(job.starts[seed], map_location=setting.device))
    model, exchange, stepped = exchange_of(method, worker, setting)
    if state.exists():
        kept = torch.load(state, map_location=setting.device, weights_only=False)
        worker.load(kept["worker"])
        exchange.load_state_dict(kept["exchange"])
        course = kept["course"]
    earlier = course.sent - _sent(exchange)
    try:
        for number in range(course.rounds, setting.rounds):
            began = time.monotonic()
            for step in range(number * setting.steps, (number + 1) * setting.steps):
                worker.step(step, text.batch(seed, rank, step), model)
                stepped()
            course.rounds, is_last = number + 1, number + 1 == setting.rounds
            if is_last and not method.every_step:
                exchange.exchange()
            course.seconds += time.monotonic() - began
            course.sent = earlier + _sent(exchange)
            if course.rounds % job.every == 0 or is_last:
                loss = text.held_out_loss(worker.network) if rank == 0 else _NAN
                course.curve.append((course.rounds, _mean_of_workers(course.sent)[0], loss))
                progress(course.rounds, loss)
            is_due = torch.tensor([float(time.monotonic() > job.until)])
            if not is_last and _mean_of_workers(is_due)[0] > 0:
                parts = {"worker": worker.state(), "exchange": exchange.state_dict()}
                return _keep({**parts, "course": course}, state)
    except (deltawire.DeltawireError, RuntimeError):
        if getattr(exchange.last_error, "code", "") != "NotFinite":
            raise
        course.curve.append((number + 1, _mean_of_workers(course.sent)[0], _NAN))
    finally:
        with contextlib.suppress(deltawire.DeltawireError):
            exchange.close()
    state.unlink(missing_ok=True)
    traffic, messages, raw = _mean_of_workers(course.sent)
    return {
        "method": name,
        "seed": seed,
        "spec": method.spec,
        "parameters": sum(p.numel() for p in worker.network.parameters()),
        "loss": course.curve[-1][2],
        "bytes": traffic,
        "bits": 32 * messages / raw if raw else _NAN,
        "seconds": course.seconds,
        "curve": course.curve,
    }


def _keep(parts: dict, path: Path) -> None:
    torch.save(parts, path.with_suffix(".part"))
    dist.barrier()  # all are written, or none counts
    path.with_suffix(".part").replace(path)
    dist.barrier()  # of which rank 0 tells: ranks end then


def _mean_of_workers(own: torch.Tensor) -> list[float]:
    total = own.clone()
    dist.all_reduce(total)
    return (total / dist.get_world_size()).tolist()


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
        states: a folder for rows that are cut.
        until: when a row is cut, by time.monotonic().
    """

    rows: list[tuple[str, int]]
    setting: Setting
    texts: tuple[np.ndarray, np.ndarray]
    starts: dict[int, Path]
    every: int
    threads: int
    states: Path
    until: float


def run(place: Place, line: Line, job: Job) -> None:
    """A rank's program: rank 0 sends (rounds done, loss) of a row, and the row; None ends it."""
    torch.set_num_threads(job.threads)
    torch.set_float32_matmul_precision("high")
    text = Text(*job.texts, job.setting)

    def progress(done: int, loss: float) -> None:
        if place.rank == 0:
            line.send((done, loss))

    with process_group(place, _SECONDS):
        for name, seed in job.rows:
            row = train(name, seed, job, text, progress)
            if place.rank == 0:
                line.send(row)
            if row is None:
                break
        dist.barrier()
