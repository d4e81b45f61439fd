"""Parameters that no rank uses in a step: DDP throws the result away, and nothing may be spent."""

import deltawire.torch
import pytest
import torch
from models import WIDTH
from ranks import results
from torch.nn.parallel import DistributedDataParallel

FLUSHES = 12


class Branches(torch.nn.Module):
    """Two layers of which a forward pass uses one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.second = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, use_first):
        return (self.first if use_first else self.second)(x)


def gradients_of_first(rank, spec, unused_steps):
    """The means that `first.weight` gets: of a gradient, and then of tiny ones, which bring out
    what waits. In between come steps in which no rank uses it."""
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    hook = deltawire.torch.register(model, spec)
    generator = torch.Generator().manual_seed(rank)
    given = torch.randn(WIDTH, WIDTH, generator=generator)
    x = torch.zeros(1, WIDTH)
    means = []

    def backward(use_first, gradient):
        model.zero_grad()
        loss = model(x, use_first).sum() * 0
        if use_first:
            loss = loss + (model.module.first.weight * gradient).sum()
        loss.backward()

    backward(True, given)
    means.append(model.module.first.weight.grad.clone())
    for _ in range(unused_steps):
        backward(False, None)
        assert model.module.first.weight.grad is None
    for _ in range(FLUSHES):
        backward(True, torch.full_like(given, 1e-30))
        means.append(model.module.first.weight.grad.clone())
    hook.close()
    return means


def with_and_without(rank, world_size, report, spec):
    plain = gradients_of_first(rank, spec, 0)
    interrupted = gradients_of_first(rank, spec, 3)
    return all(torch.equal(a, b) for a, b in zip(plain, interrupted, strict=True))


@pytest.mark.parametrize("spec", ["3lc", "gather(sbc:p=1%)", "ring(onebit)", "powersgd:rank=2"])
def test_steps_without_a_parameter_change_nothing_of_it(spec):
    assert results(with_and_without, 2, spec) == [True, True]


def used_by_one(rank, world_size, report, spec):
    """What arrives in all of a gradient that rank 0 alone has, and what it was."""
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    hook = deltawire.torch.register(model, spec)
    generator = torch.Generator().manual_seed(1)
    given = torch.randn(WIDTH, WIDTH, generator=generator)
    x = torch.zeros(1, WIDTH)
    total = torch.zeros(WIDTH, WIDTH)
    for step in range(40):
        model.zero_grad()
        gradient = given if step == 0 else torch.full_like(given, 1e-30)
        loss = model(x, rank == 0).sum() * 0
        if rank == 0:
            loss = loss + (model.module.first.weight * gradient).sum()
        loss.backward()
        total += model.module.first.weight.grad
    hook.close()
    return ((total - given / 2).norm() / given.norm()).item()


@pytest.mark.parametrize("spec", ["3lc", "int8", "powersgd:rank=4"])
def test_what_one_rank_uses_arrives(spec):
    for missing in results(used_by_one, 2, spec):
        assert missing < 1e-3
