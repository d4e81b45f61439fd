"""A small network with several buckets, and steps on data that differs by rank."""

import copy
import hashlib
import os

import torch
from torch.nn.parallel import DistributedDataParallel

# Where networks live; their inputs and outputs are on the CPU. `make check-gpu` says "cuda".
DEVICE = torch.device(os.environ.get("DELTAWIRE_TEST_DEVICE", "cpu"))

WIDTH = 64
BUCKET_CAP_MB = 0.03  # two layers of 64 x 64 a bucket


class Net(torch.nn.Module):
    """Six layers, and one that is only used where the step's number is even."""

    def __init__(self, sometimes: bool = False, dtype: torch.dtype = torch.float32):
        super().__init__()
        torch.manual_seed(7)
        self.layers = torch.nn.Sequential(
            *(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(6))
        )
        self.extra = torch.nn.Linear(WIDTH, WIDTH) if sometimes else None
        self.calls = 0
        self.to(DEVICE, dtype)

    def forward(self, x):
        x = x.to(DEVICE, next(self.parameters()).dtype)
        y = self.layers(x)
        if self.extra is not None and self.calls % 2 == 0:
            y = y + self.extra(x)
        self.calls += 1
        return y.float().cpu()


def wrapped(module, **ddp_options):
    return DistributedDataParallel(module, bucket_cap_mb=BUCKET_CAP_MB, **ddp_options)


def batch(rank: int, step: int):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(8, WIDTH, generator=generator), torch.randn(8, WIDTH, generator=generator)


def backward(model, rank: int, step: int) -> float:
    """Gradients of one batch; the loss."""
    x, y = batch(rank, step)
    model.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    return loss.item()


@torch.no_grad()
def descend(model, rate: float = 0.05) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter -= rate * parameter.grad


def train_step(model, rank: int, step: int, rate: float = 0.05) -> float:
    loss = backward(model, rank, step)
    descend(model, rate)
    return loss


def train_steps(model, rank: int, steps) -> None:
    """Steps of these numbers, by plain descent."""
    for step in steps:
        train_step(model, rank, step)


def steps_by(optimizer, model, rank: int, steps) -> None:
    """Steps of these numbers, by an optimizer, a trainer or a worker."""
    for step in steps:
        backward(model, rank, step)
        optimizer.step()


def whole_and_in_pieces(rank: int, make, steps: int, at: int, states_of=lambda parts: parts):
    """Fingerprints of a training in one piece, and in two: after `at` steps model, optimizer and
    hook are made anew, with the states of `states_of`, by default their own. And the last three."""
    digests = []
    for pieces in ((range(steps),), (range(at), range(at, steps))):
        states = None
        for numbers in pieces:
            parts = model, optimizer, hook = make()
            for each, own in zip(parts, states or (), strict=states is not None):
                each.load_state_dict(own)
            steps_by(optimizer, model, rank, numbers)
            states = copy.deepcopy([each.state_dict() for each in states_of(parts)])
            hook.close()
        digests.append(fingerprint(model))
    return digests, parts, states


def fingerprint(model) -> str:
    """Of every bit of every parameter."""
    state = hashlib.sha256()
    for parameter in model.parameters():
        state.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
