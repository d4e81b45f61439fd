"""One method's training: all workers by turns in one process, on a CPU or a GPU."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from deltawire.torch.local.visible import Held, codec_of
from deltawire.torch.local.weights import fragments_of
from torch.nn.functional import cross_entropy

from lab.models.networks import CharacterTransformer
from lab.probes.local_rounds.captured_step import CapturedStep
from lab.probes.local_rounds.methods import Method, Size
from lab.probes.local_rounds.sessions import Arrays, Sessions
from lab.probes.register_rule import make_rule

_BYTES = 256  # the vocabulary
_WARM_UP_SHARE = 0.05  # of the steps
_LAST_RATE = 0.1  # of the highest
_WEIGHT_DECAY = 0.1
_HELD_OUT_PIECE = 64
_EXACT = "direct(fp32)"  # sends as many bytes in every step


class Diverged(Exception):
    """Weights that aren't finite any more."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all methods have in common.

    Attributes:
        size: of the network and the batches.
        workers, rounds, steps: how many; steps are a worker's in a round.
        learning_rate: AdamW's highest.
        device: "cpu" or "cuda".
        bf16: forward and backward passes are computed in bfloat16; on a CPU only.
        pretraining: steps of DDP from which every method begins, with new moments.
    """

    size: Size
    workers: int
    rounds: int
    steps: int
    learning_rate: float
    device: str
    bf16: bool = False
    pretraining: int = 0


class Text:
    """Bytes to train on, on the host, and bytes held out, on the device.

    Args:
        train, held_out: uint8 arrays.
        setting: of all methods.
    """

    def __init__(self, train: np.ndarray, held_out: np.ndarray, setting: Setting) -> None:
        size, self._setting = setting.size, setting
        self._train, self._reach = train, np.arange(size.length + 1)
        starts = np.linspace(0, len(held_out) - size.length - 1, size.held_out).astype(np.int64)
        lines = np.stack([held_out[start : start + size.length + 1] for start in starts])
        self._held_out = torch.from_numpy(lines).long().to(setting.device)

    def batch(self, seed: int, worker: int, step: int) -> torch.Tensor:
        """int64 of shape (batch, length + 1), which depends only on the arguments. A GPU gets it by
        one copy: each call of CUDA may take as long as a step of the network."""
        chance, size = np.random.default_rng([seed, worker, step]), self._setting.size
        starts = chance.integers(0, len(self._train) - size.length - 1, size.batch)
        lines = torch.from_numpy(self._train[starts[:, None] + self._reach].astype(np.int64))
        if self._setting.device == "cuda":
            return lines.pin_memory().to(self._setting.device, non_blocking=True)
        return lines

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
    with torch.autocast(lines.device.type, torch.bfloat16, enabled=bf16):
        logits = network(lines[:, :-1])
    return cross_entropy(logits.float().flatten(0, 1), lines[:, 1:].flatten())


def new_network(setting: Setting, seed: int) -> CharacterTransformer:
    """The same for the same seed."""
    torch.manual_seed(seed)
    size = setting.size
    network = CharacterTransformer(_BYTES, size.width, size.layers, size.length)
    if size.embedding is not None:
        torch.nn.init.normal_(network.embedding.weight, std=size.embedding)
    return network.to(setting.device)


class Worker:
    """A network with its inner optimizers, whose rate rises in a warm-up and falls in half a
    cosine. Muon's is scaled so that AdamW's rates fit it.

    Attributes:
        network, parameters: its own.
        optimizers: AdamW, and with `muon` also Muon.
    """

    def __init__(self, setting: Setting, seed: int, muon: bool = False) -> None:
        self.network = new_network(setting, seed)
        self.parameters = list(self.network.parameters())
        inside = list(self.network.blocks.parameters()) if muon else []
        matrices = [p for p in inside if p.dim() == 2]
        known = set(map(id, matrices))
        others = [p for p in self.parameters if id(p) not in known]
        settings = {"lr": setting.learning_rate, "weight_decay": _WEIGHT_DECAY}
        on_gpu = setting.device == "cuda"
        capturable = on_gpu and not muon  # Muon's step can't be captured
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                others, fused=on_gpu or setting.bf16, capturable=capturable, **settings
            )
        ]
        if muon:
            scaled = torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw", **settings)
            self.optimizers.append(scaled)
        self._setting, self._capturable = setting, capturable
        self._captured: CapturedStep | None = None

    def step(self, step: int, batch: torch.Tensor) -> None:
        """Trains on a batch; `step` is the number of the step, for the learning rate."""
        rate = self._setting.learning_rate * self._rate_at(step)
        if self._capturable:
            if self._captured is None:
                (adamw,) = self.optimizers
                self._captured = CapturedStep(self.network, adamw, loss_of, batch)
            self._captured(batch, rate)
            return
        self.network.zero_grad()
        loss_of(self.network, batch, self._setting.bf16).backward()
        self._optimize(rate)

    def step_with(self, step: int, gradients: list[torch.Tensor]) -> None:
        """Trains with gradients, in the order of `parameters`."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimize(self._setting.learning_rate * self._rate_at(step))

    def _optimize(self, rate: float) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

    def _rate_at(self, step: int) -> float:
        steps = self._setting.rounds * self._setting.steps
        rising = (step + 1) / max(1.0, _WARM_UP_SHARE * steps)
        falling = 0.5 * (1 + math.cos(math.pi * step / steps))
        return min(1.0, rising) * (_LAST_RATE + (1 - _LAST_RATE) * falling)

    def state(self) -> dict:
        """Weights and moments."""
        inner = [optimizer.state_dict() for optimizer in self.optimizers]
        return {"network": self.network.state_dict(), "optimizers": inner}

    def load(self, state: dict) -> None:
        """Restores what `state` returned."""
        self._captured = None
        self.network.load_state_dict(state["network"])
        for optimizer, own in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)


class EveryStep:
    """DDP: one network steps with the mean of all workers' gradients, as the codec leaves it. What
    fp32 sends doesn't depend on the values, so one exchange is made, and its bytes are counted for
    all."""

    def __init__(self, method: Method, setting: Setting, seed: int, sessions: Sessions) -> None:
        self._setting, self._seed, self._sessions = setting, seed, sessions
        self._worker = Worker(setting, seed)
        self._steps = 0
        self._is_exact = method.spec == _EXACT
        if method.rule:
            (adamw,) = self._worker.optimizers
            make_rule(method.spec, self._worker.network, adamw).attach()  # the same in every step
        if self._is_exact:
            sessions.average([self._ones() for _ in range(setting.workers)])

    @property
    def network(self) -> torch.nn.Module:
        """The network that all workers have."""
        return self._worker.network

    def start_from(self, weights: dict[str, torch.Tensor]) -> None:
        """Before the first step."""
        self.network.load_state_dict(weights)

    @property
    def sent(self) -> tuple[int, int, int]:
        """As `Sessions.sent`."""
        exchanges = self._steps if self._is_exact else 1
        traffic, messages, raw = (exchanges * count for count in self._sessions.sent)
        return traffic, messages, raw

    def train_round(self, number: int, text: Text) -> None:
        """As many steps as a round of local steps has."""
        for step in _steps_of(number, self._setting):
            if self._is_exact:
                self._worker.step(step, torch.cat(self._batches(step, text)))
            else:
                self._worker.step_with(step, self._mean_of(self._batches(step, text)))
            self._steps += 1

    def _batches(self, step: int, text: Text) -> list[torch.Tensor]:
        return [text.batch(self._seed, worker, step) for worker in range(self._setting.workers)]

    def finish(self) -> None:
        """Nothing is under way."""

    def state(self) -> dict:
        """All that a later run needs."""
        kept = {"worker": self._worker.state(), "steps": self._steps}
        return kept if self._is_exact else {**kept, "sessions": self._sessions.save()}

    def load(self, state: dict) -> None:
        """Restores what `state` returned."""
        self._worker.load(state["worker"])
        self._steps = state["steps"]
        if not self._is_exact:
            self._sessions.load(state["sessions"])

    def _ones(self) -> Arrays:
        named = self.network.named_parameters()
        return {name: np.ones(p.shape, np.float32) for name, p in named}

    def _mean_of(self, batches: list[torch.Tensor]) -> list[torch.Tensor]:
        own = []
        for batch in batches:
            self.network.zero_grad()
            loss_of(self.network, batch, self._setting.bf16).backward()
            gradients = {name: p.grad for name, p in self.network.named_parameters()}
            own.append({name: g.cpu().numpy().copy() for name, g in gradients.items()})
        _check_finite(own)
        means = self._sessions.average(own)
        return [torch.from_numpy(mean).to(self._setting.device) for mean in means.values()]


class LocalRounds:
    """Rounds of local steps, as `deltawire.torch.LocalSteps` makes them: exchanges of fragments,
    whose results an outer optimizer may step, and which may be applied some steps later."""

    def __init__(self, method: Method, setting: Setting, seed: int, sessions: Sessions) -> None:
        self._method, self._setting, self._seed = method, setting, seed
        self._sessions = sessions
        self._workers = [Worker(setting, seed, method.muon) for _ in range(setting.workers)]
        self.network = new_network(setting, seed)  # the common weights
        named = dict(self.network.named_parameters())
        self._names, self._common = list(named), list(named.values())
        sizes = [p.numel() for p in self._common]
        self._parts = fragments_of(self._names, sizes, method.fragments)
        self._outer = method.outer(self._common) if method.outer else None
        self._held = [Held(self._common) for _ in self._workers] if codec_of(method.spec)[1] else []
        self._since = [0] * len(self._parts)  # local steps since each fragment's last exchange
        self._under_way: tuple[int, list[torch.Tensor], list[list[torch.Tensor]]] | None = None
        self._age = 0

    def start_from(self, weights: dict[str, torch.Tensor]) -> None:
        """Before the first step."""
        for network in (self.network, *(worker.network for worker in self._workers)):
            network.load_state_dict(weights)

    @property
    def sent(self) -> tuple[int, int, int]:
        """As `Sessions.sent`."""
        return self._sessions.sent

    def train_round(self, number: int, text: Text) -> None:
        """The local steps of all workers, and the exchanges that are due between them."""
        count, due = len(self._parts), 0
        for taken, step in enumerate(_steps_of(number, self._setting), start=1):
            for index, worker in enumerate(self._workers):
                worker.step(step, text.batch(self._seed, index, step))
            self._since = [since + 1 for since in self._since]
            self._age += 1
            if self._under_way and self._age == self._method.overlap:
                self._apply()
            while due < count and taken * count >= (due + 1) * self._setting.steps:
                self._exchange(due)
                due += 1

    def finish(self) -> None:
        """Exchanges what has changed since; all workers then have the common weights."""
        for fragment, since in enumerate(self._since):
            if since:
                self._exchange(fragment)
        self._apply()

    @torch.no_grad()
    def _exchange(self, fragment: int) -> None:
        self._apply()
        part = self._parts[fragment]
        names = self._names[part]
        own = [[p.detach().clone() for p in worker.parameters[part]] for worker in self._workers]
        moved = [torch._foreach_sub(weights, self._common[part]) for weights in own]
        for held, change in zip(self._held, moved, strict=False):
            held.cut(part, self._common[part], change)
            held.apply(part)  # a row has no exchange that fails
        changes = [arrays_of(names, change) for change in moved]
        _check_finite(changes)
        means = self._sessions.average(changes)
        on_device = [torch.from_numpy(means[name]).to(self._setting.device) for name in names]
        self._under_way, self._age, self._since[fragment] = (fragment, on_device, own), 0, 0
        if not self._method.overlap:
            self._apply()

    @torch.no_grad()
    def _apply(self) -> None:
        """Algorithm 1 of DiLoCo, lines 12 to 14, and Streaming DiLoCo's mixing."""
        if self._under_way is None:
            return
        fragment, means, began = self._under_way
        self._under_way = None
        part = self._parts[fragment]
        common, mixing = self._common[part], self._method.mixing
        if self._outer:
            for weight, mean in zip(common, means, strict=True):
                weight.grad = mean.neg_()
            self._outer.step()
            self._outer.zero_grad()
        else:
            torch._foreach_add_(common, means)
        for worker, start in zip(self._workers, began, strict=True):
            for parameter, weight, before in zip(
                worker.parameters[part], common, start, strict=True
            ):
                if self._age == 0:
                    parameter.copy_(weight)
                elif mixing is None:
                    parameter.copy_(weight + (parameter - before))
                else:
                    parameter.copy_(weight + mixing * (parameter - weight))

    def state(self) -> dict:
        """All that a later run needs."""
        return {
            "workers": [worker.state() for worker in self._workers],
            "common": self.network.state_dict(),
            "outer": self._outer.state_dict() if self._outer else None,
            "held": [held.values(None) for held in self._held],
            "since": self._since,
            "under_way": self._under_way,
            "age": self._age,
            "sessions": self._sessions.save(),
        }

    def load(self, state: dict) -> None:
        """Restores what `state` returned."""
        for worker, own in zip(self._workers, state["workers"], strict=True):
            worker.load(own)
        self.network.load_state_dict(state["common"])
        if self._outer:
            self._outer.load_state_dict(state["outer"])
        for held, values in zip(self._held, state["held"], strict=True):
            held.load(values)
        self._since, self._under_way = state["since"], state["under_way"]
        self._age = state["age"]
        self._sessions.load(state["sessions"])


def _steps_of(number: int, setting: Setting) -> range:
    return range(number * setting.steps, (number + 1) * setting.steps)


def arrays_of(names: Sequence[str], tensors: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
    """The tensors' values by name, copied to pinned memory if they are on a GPU."""
    if not tensors[0].is_cuda:
        return {name: each.numpy() for name, each in zip(names, tensors, strict=True)}
    hosts = [torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in tensors]
    for host, each in zip(hosts, tensors, strict=True):
        host.copy_(each, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return {name: host.numpy() for name, host in zip(names, hosts, strict=True)}


def _check_finite(changes: Iterable[dict[str, np.ndarray]]) -> None:
    for each in changes:
        for name, change in each.items():
            if not np.isfinite(change).all():
                raise Diverged(f"the change of {name} is not finite")
