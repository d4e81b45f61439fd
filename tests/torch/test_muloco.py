"""MuLoCo by its name, in rounds of steps by Muon and AdamW: written out, bit for bit."""

import functools

import deltawire.torch
import numpy as np
import pytest
import torch
import torch.distributed as dist
from local_rounds import Waiting, follow, network
from models import fingerprint
from ranks import results

STEPS, ROUNDS = 3, 5
NESTEROV = functools.partial(torch.optim.SGD, lr=0.8, momentum=0.8, nesterov=True)


def sent_of(x: np.ndarray, _) -> np.ndarray:
    """All values of a tensor in four bins over six standard deviations, as each bin's mean."""
    wide = x.ravel().astype(np.float64)
    center = sum(wide.tolist()) / x.size
    squares = sum(((wide - center) ** 2).tolist())
    width = 6 * np.sqrt(squares / (x.size - 1)) / 4
    bins = np.clip(np.round((wide - center) / width + 2), 0, 3)
    decoded = np.empty(x.size, np.float32)
    for number in set(bins.tolist()):
        inside = bins == number
        decoded[inside] = np.float32(sum(wide[inside].tolist()) / np.count_nonzero(inside))
    return decoded.reshape(x.shape)


def inner_of(model):
    """Muon for the hidden matrix, AdamW for the others."""
    muon = torch.optim.Muon([model[0].weight], lr=0.02)
    return muon, torch.optim.AdamW([model[0].bias, model[2].weight], lr=2e-3)


def rounds(rank, world_size, report):
    model, twin = network(), network()
    inner, theirs = inner_of(model), inner_of(twin)
    trainer = deltawire.torch.LocalSteps(
        model, inner, "muloco", steps=STEPS, outer=NESTEROV, min_elements=1
    )
    by_hand = Waiting(twin, sent_of, 0.9, NESTEROV)
    follow(trainer, by_hand, model, twin, inner, theirs, rank, STEPS, ROUNDS)
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
        codec = "topk:k=0.999999,values=2bit,positions=auto,chunk=4096 with decay=0.9,pull_decay=0"
        assert spec == f"gather({codec})"
        assert 2 < bits < 2.2  # headers, and four means a tensor
