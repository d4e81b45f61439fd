"""Exchanging in every n-th step only, as docs/guides/local-steps.md shows it."""

import contextlib
import re
from pathlib import Path

import deltawire.torch
import pytest
import torch
from models import Net, batch, fingerprint, wrapped
from ranks import results

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "local-steps.md").read_text()
(CODE,) = re.findall(
    r"^## Accumulated gradients in every n-th step$.*?```python\n(.*?)```", PAGE, re.S | re.M
)
BATCHES = 7  # two exchanges of three batches each, and one batch that is left


def loss_of(outputs, targets):
    return (outputs - targets).square().mean()


def train(model, rank, n, momentum):
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum)
    names = {
        "batches": [batch(rank, number) for number in range(BATCHES)],
        "contextlib": contextlib,
        "loss_of": loss_of,
        "model": model,
        "n": n,
        "optimizer": optimizer,
    }
    exec(CODE, names)


def every_nth(rank, world_size, report, spec):
    """The code of the page through the hook, and the same by hand: all ranks' batches on one."""
    model = wrapped(Net())
    hook = deltawire.torch.register(model, spec)
    train(model, rank, 3, 0.9)
    records = hook.step_records
    hook.close()
    alone = Net()
    optimizer = torch.optim.SGD(alone.parameters(), 0.05, 0.9)
    for step in range(2):
        optimizer.zero_grad()
        for number in range(3 * step, 3 * step + 3):
            for each in range(world_size):
                x, y = batch(each, number)
                (loss_of(alone(x), y) / (3 * world_size)).backward()
        optimizer.step()
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    furthest = max(float((ours - theirs).detach().abs().max()) for ours, theirs in pairs)
    return fingerprint(model), records, furthest


@pytest.mark.parametrize("spec", ["fp32", "3lc:s=1.75", "sbc:p=1%"])
def test_an_exchange_for_every_three_batches(spec):
    outcomes = results(every_nth, 2, spec)
    assert outcomes[0][0] == outcomes[1][0], "the replicas differ"
    for _, records, furthest in outcomes:
        assert len(records) == BATCHES // 3
        assert spec != "fp32" or furthest < 1e-6
