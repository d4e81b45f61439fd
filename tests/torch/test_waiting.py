"""Metrics of what error feedback holds back, in real training."""

import math

import deltawire
import deltawire.torch
import numpy as np
import pytest
from models import Net, backward, wrapped
from ranks import results

KEYS = ("measured_step", "residual_to_gradient", "waiting_steps", "sent_share")


def measured(rank, world_size, report, codec):
    """The metrics of 17 steps with the same weights, and what a channel of its own says of this
    rank's gradients in the sixteenth."""
    net, model = Net(), wrapped(Net())
    hook = deltawire.torch.register(model, f"gather({codec})", min_elements=0)
    own = deltawire.Channel(codec, rank=rank, world_size=world_size, min_elements=0)
    seen, expected = [], None
    for step in range(17):
        backward(model, rank, step)
        seen.append([hook.metrics()[key] for key in KEYS])
        backward(net, rank, step)
        given = {name: each.grad.numpy() for name, each in net.named_parameters()}
        message = own.encode(given, step=step)
        if step == 15:
            sent = {name: np.zeros_like(values) for name, values in given.items()}
            own.decode(message, sent)
            g, s, e = (
                np.concatenate([of(name).ravel() for name in given]).astype(np.float64)
                for of in (given.get, sent.get, own.residual)
            )
            if not e.size:
                continue
            x = s + e
            norm = np.linalg.norm
            expected = [15, norm(e) / norm(g), norm(e) / norm(s), (s @ x) / (x @ x)]
    scalars = hook.scalars()
    hook.close()
    return seen, expected, scalars


@pytest.mark.parametrize("codec", ["topk:k=5%", "signsgd", "3lc"])
def test_what_waits_is_as_the_page_defines_it(codec):
    for seen, expected, scalars in results(measured, 2, codec):
        assert seen[:15] == [[None] * 4] * 15, "nothing is known before"
        assert seen[15] == seen[16] == pytest.approx(expected, rel=1e-4)
        assert 0.1 < seen[15][3] < 1
        assert scalars["deltawire/waiting_steps"] == seen[15][2]


def test_nothing_waits_without_residuals():
    for seen, _, scalars in results(measured, 2, "fp32"):
        assert seen == [[None] * 4] * 17
        assert "deltawire/sent_share" not in scalars and math.isfinite(scalars["deltawire/ratio"])
