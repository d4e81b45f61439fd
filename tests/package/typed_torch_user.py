"""The same with PyTorch. Its own backward() and step() have no types, so they are left out."""

from pathlib import Path

import deltawire
import deltawire.torch
import torch
from deltawire import patches
from deltawire.weight_store import Store
from torch.nn.parallel import DistributedDataParallel


def train(model: DistributedDataParallel, batches: list[torch.Tensor]) -> float:
    hook = deltawire.torch.register(model, "3lc", revert="fold", encryption="required", tier=None)
    for batch in batches:
        print(model(batch))
    ratio = hook.metrics()["total_ratio"]
    sent: int = hook.metrics()["bytes_sent"]
    print(f"{sent} bytes", hook.explain())
    hook.close()
    return ratio or 1.0


def train_locally(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    rules = "gather(dims=2: sbc:p=1%, rest bf16)"
    trainer = deltawire.torch.LocalSteps(network, optimizer, reducer=rules, steps=10)
    trainer.step()
    hidden: float | None = trainer.metrics()["hidden"]
    print(hidden, trainer.round)
    return trainer.round


def publish(folder: Path, model: torch.nn.Module, old: torch.Tensor, new: torch.Tensor) -> bytes:
    Store(folder).publish(model.state_dict(), version=1)
    for step in deltawire.read_trace(folder):
        print(step)
    return patches.make(old, new)
