"""A small network with several buckets, and steps on data that differs by rank."""

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


def train_step(model, rank: int, step: int, rate: float = 0.05) -> float:
    loss = backward(model, rank, step)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad
    return loss


def fingerprint(model) -> str:
    """Of every bit of every parameter."""
    state = hashlib.sha256()
    for parameter in model.parameters():
        state.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
