"""Rows that arrive late in a sharded model are stepped as DDP's late tensors are."""

import contextlib
import warnings

import deltawire.torch
import pytest
import torch
from deltawire import _core
from ranks import results
from sharded import Uneven, cut, fingerprint, loss_of, mesh_of, needs_fsdp2, one_after_another

pytestmark = needs_fsdp2
SPEC = "gather(odd*: fp32, step<99: topk:k=10%, rest fp32)"


def of_local_rows(model):
    return {name: p.to_local() for name, p in model.named_parameters() if p.requires_grad}


class Reference:
    """The equations of the guide, on copies of this rank's rows."""

    def __init__(self, model):
        self.rows = {name: rows.detach().clone() for name, rows in of_local_rows(model).items()}
        self.moments = {name: [torch.zeros_like(rows)] * 2 for name, rows in self.rows.items()}

    def sgd(self, step, name, g, late):
        v = self.moments[name][0] * (0.0 if late else 0.9) + g
        self.moments[name][0] = v
        self.rows[name] -= 0.05 * (_core.MomentumRate(0.9, 0.0).times(step) if late else 1.0) * v

    def adamw(self, step, name, g, late):
        b1, b2, lr = (0.0, 0.999, 0.0075) if late else (0.9, 0.999, 0.01)
        m, v = self.moments[name]
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        self.moments[name] = [m, v]
        unbiased = (v / (1 - b2 ** (step + 1))).sqrt() + 1e-8
        self.rows[name] -= lr * (m / (1 - b1 ** (step + 1))) / unbiased


def trained(rank, make_optimizer, kind):
    model = cut(Uneven(), mesh_of(2, 2))
    optimizer = make_optimizer(model.parameters())
    reference = Reference(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", deltawire.torch.MomentumWarning)
        hook = deltawire.torch.register(model, SPEC, min_elements=3, optimizer=optimizer)
        with contextlib.closing(hook):
            for step in range(5):
                shown = hook.explain().rows
                late = {row.name for row in shown if row.codec.startswith("topk") and not row.raw}
                assert {row.name for row in shown if row.rate_times is not None} == late
                optimizer.zero_grad()
                loss_of(model, rank, step).backward()
                for name, rows in model.named_parameters():
                    if rows.requires_grad:
                        gradient = rows.grad.to_local().clone()
                        getattr(reference, kind)(step, name, gradient, name in late)
                optimizer.step()
    rows = of_local_rows(model)
    differences = [(rows[name] - reference.rows[name]).abs().flatten() for name in rows]
    left = len(optimizer._optimizer_step_pre_hooks)
    return torch.cat(differences).max().item(), sorted(late), left, fingerprint(model)


def with_sgd(rank, world_size, report):
    return trained(rank, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), "sgd")


def with_adamw(rank, world_size, report):
    return trained(rank, lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.0), "adamw")


@pytest.fixture(scope="module")
def of_four():
    return results(one_after_another, 4, [with_sgd, with_adamw])


@pytest.mark.parametrize("worker", ["with_sgd", "with_adamw"])
def test_late_rows_follow_the_rule_and_others_do_not(of_four, worker):
    ranks = [rank[worker] for rank in of_four]
    for worst, late, left, _ in ranks:
        assert worst <= 2e-6 and left == 0
        assert "wide.weight" in late and "odd.weight" not in late
    # A row alone: rank 1 of a node has none of it.
    assert "one.weight" in ranks[0][1] and "one.weight" not in ranks[1][1]
    digests = [digest for *_, digest in ranks]
    assert digests[:2] == digests[2:] and digests[0] != digests[1]
