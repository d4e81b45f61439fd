"""A small network that fully_shard cuts unevenly, and steps of it on data that differs by rank."""

import hashlib

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

IS_SUPPORTED = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
needs_fsdp2 = pytest.mark.skipif(
    not IS_SUPPORTED, reason=f"register takes fully_shard from PyTorch 2.13 on: {torch.__version__}"
)


class Uneven(torch.nn.Module):
    """Rows that 2 ranks can't share alike, one row alone, a frozen parameter, one of the root."""

    def __init__(self, width: int = 16):
        super().__init__()
        torch.manual_seed(7)
        self.wide = torch.nn.Linear(width, 33)
        self.odd = torch.nn.Linear(33, 5)
        self.one = torch.nn.Linear(5, 1)
        self.factor = torch.nn.Parameter(torch.ones(3))
        self.wide.bias.requires_grad_(False)
        self.leave_out = ""  # of a forward pass: "factor" or "root"

    def forward(self, x):
        y = torch.tanh(self.odd(torch.tanh(self.wide(x))))
        if self.leave_out == "root":
            return y.sum(1, keepdim=True)
        return self.one(y) * (1.0 if self.leave_out == "factor" else self.factor.sum())


def one_after_another(rank, world_size, report, workers):
    """A worker that is several: to start four ranks costs more than most of them."""
    return {worker.__name__: worker(rank, world_size, report) for worker in workers}


def mesh_of(nodes: int, ranks_per_node: int, kind: str = "cpu"):
    return init_device_mesh(kind, (nodes, ranks_per_node), mesh_dim_names=("replicate", "shard"))


def cut(module, mesh, shard=fully_shard, **options):
    """Two groups of parameters, and the root's own."""
    shard(module.wide, mesh=mesh, **options)
    shard(module.odd, mesh=mesh, **options)
    return shard(module, mesh=mesh, **options)


def batch(rank: int, step: int, width: int = 16):
    return torch.randn(4, width, generator=torch.Generator().manual_seed(100 * rank + step))


def loss_of(model, rank: int, step: int):
    return model(batch(rank, step)).square().mean()


def gradients(model) -> list[torch.Tensor]:
    """What this rank has of them."""
    return [p.grad.to_local().clone() for p in model.parameters() if p.grad is not None]


def descend(model, rate: float = 0.05) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.to_local().sub_(rate * parameter.grad.to_local())


def train_step(model, rank: int, step: int) -> None:
    model.zero_grad()
    loss_of(model, rank, step).backward()
    descend(model)


def fingerprint(model) -> str:
    """Of every bit of the rows here."""
    state = hashlib.sha256()
    for parameter in model.parameters():
        state.update(parameter.detach().to_local().numpy().tobytes())
    return state.hexdigest()
