"""MuLoCo by its name, in rounds of steps by Muon and AdamW: written out, bit for bit."""

import functools

import deltawire.torch
import numpy as np
import pytest
import torch
import torch.distributed as dist
from local_rounds import mean_of
from models import fingerprint
from ranks import results

STEPS, ROUNDS, DECAY = 3, 5, np.float32(0.9)
NESTEROV = functools.partial(torch.optim.SGD, lr=0.8, momentum=0.8, nesterov=True)


def sent_of(x: np.ndarray) -> np.ndarray:
    """All values of a tensor in four bins over six standard deviations, as each bin's mean."""
    wide = x.astype(np.float64)
    center = sum(wide.tolist()) / x.size
    squares = sum(((wide - center) ** 2).tolist())
    width = 6 * np.sqrt(squares / (x.size - 1)) / 4
    bins = np.clip(np.round((wide - center) / width + 2), 0, 3)
    decoded = np.empty_like(x)
    for number in set(bins.tolist()):
        inside = bins == number
        decoded[inside] = np.float32(sum(wide[inside].tolist()) / np.count_nonzero(inside))
    return decoded


class WrittenOut:
    """A rank, exchanging by all_gather: e = decay e + change; e -= sent; then the outer step."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.common = [torch.nn.Parameter(p.detach().clone()) for p in self.parameters]
        self.outer = NESTEROV(self.common)
        self.waits = [np.zeros(p.numel(), np.float32) for p in self.parameters]

    @torch.no_grad()
    def exchange(self):
        for i, parameter in enumerate(self.parameters):
            summed = DECAY * self.waits[i] + (parameter - self.common[i]).numpy().ravel()
            sent = sent_of(summed)
            self.waits[i] = summed - sent
            self.common[i].grad = -mean_of(torch.from_numpy(sent)).view_as(parameter)
        self.outer.step()
        for parameter, common in zip(self.parameters, self.common, strict=True):
            parameter.copy_(common)


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 200), torch.nn.Tanh(), torch.nn.Linear(200, 50, bias=False)
    )


def inner_of(model):
    """Muon for the hidden matrix, AdamW for the others."""
    muon = torch.optim.Muon([model[0].weight], lr=0.02)
    return muon, torch.optim.AdamW([model[0].bias, model[2].weight], lr=2e-3)


def trained(model, optimizers, rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x, y = torch.randn(8, 64, generator=generator), torch.randn(8, 50, generator=generator)
    model.zero_grad()
    (model(x) - y).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()


def rounds(rank, world_size, report):
    model, twin = network(), network()
    inner, theirs = inner_of(model), inner_of(twin)
    trainer = deltawire.torch.LocalSteps(
        model, inner[0], "muloco", steps=STEPS, outer=NESTEROV, min_elements=1
    )
    by_hand = WrittenOut(twin)
    for step in range(ROUNDS * STEPS):
        trained(model, inner, rank, step)
        trainer.stepped()
        trained(twin, theirs, rank, step)
        if step % STEPS == STEPS - 1:
            by_hand.exchange()
            assert fingerprint(model) == fingerprint(twin), f"after step {step}"
    momentum = inner[0].state[model[0].weight]["momentum_buffer"]
    assert momentum.count_nonzero() == momentum.numel(), "what was sent has no momentum any more"
    elements = (world_size - 1) * sum(p.numel() for p in model.parameters())
    bits = 8 * trainer.metrics()["bytes_sent"] / elements
    trainer.close()
    dist.barrier()
    return trainer.spec, bits, fingerprint(model)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")
def test_it_is_the_published_algorithm_bit_for_bit():
    """With the mean of 2 bits from each rank in an outer SGD; the inner momenta are not touched."""
    values = results(rounds, 4)
    assert len({weights for _, _, weights in values}) == 1
    for spec, bits, _ in values:
        codec = "topk:k=0.999999,values=2bit,positions=auto,chunk=4096 with decay=0.9"
        assert spec == f"gather({codec})"
        assert 2 < bits < 2.2  # headers, and four means a tensor
