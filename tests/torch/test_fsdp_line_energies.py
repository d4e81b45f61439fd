"""Mean squares of lines beside the gradients of a sharded model."""

import contextlib

import deltawire.torch
import pytest
import torch
from ranks import results
from sharded import Uneven, cut, fingerprint, loss_of, mesh_of, needs_fsdp2

pytestmark = needs_fsdp2
NODES, PER_NODE = 2, 2


def exact_squares(model, rank, step):
    """What the ranks with these rows must receive: of the mean gradients of two nodes."""
    whole = Uneven()
    whole.load_state_dict({name: p.full_tensor() for name, p in model.named_parameters()})
    trained = {name: p for name, p in whole.named_parameters() if p.requires_grad}
    sums = dict.fromkeys(trained, 0.0)
    for node in range(NODES):
        ranks = range(node * PER_NODE, (node + 1) * PER_NODE)
        losses = sum(loss_of(whole, each, step) for each in ranks) / PER_NODE
        found = torch.autograd.grad(losses, list(trained.values()))
        for name, gradient in zip(trained, found, strict=True):
            shards = gradient.double().chunk(PER_NODE)
            here = rank % PER_NODE
            squares = shards[here].square() if here < len(shards) else torch.zeros(0)
            if squares.dim() > 1 and len(squares) > 1:
                squares = torch.cat([squares.mean(1), squares.mean(0)])
            else:
                squares = squares.mean().view(1)
            sums[name] = sums[name] + squares / NODES**2
    return sums


def trained(rank, world_size, report, is_given):
    """How far the mean squares of this rank's rows are from the exact ones, in steps of which the
    third has two passes that are exchanged."""
    model = cut(Uneven(), mesh_of(NODES, PER_NODE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    given = {"optimizer": optimizer} if is_given else {}
    hook = deltawire.torch.register(model, "step<99: 3lc, rest fp32", min_elements=16, **given)
    worst = 0.0
    with contextlib.closing(hook):
        for step in range(4):
            optimizer.zero_grad()
            passes = (2, 12) if step == 2 else (step,)
            of_passes = [exact_squares(model, rank, each) for each in passes]
            for each in passes:
                loss_of(model, rank, each).backward()
            received = hook.optimizer_rules.received
            for name, parameter in model.named_parameters():
                if id(parameter) in received:
                    exact = sum(squares[name] for squares in of_passes)
                    found = received[id(parameter)].squares
                    worst = max(worst, (found / exact - 1).abs().max().item())
            optimizer.step()
        rows = {row.name for row in hook.explain().rows if row.factored_second_moment}
        kept = optimizer.state[model.wide.weight]
        shapes = {kept[name].to_local().shape for name in ("exp_avg", "exp_avg_sq")}
    return worst, rows, shapes, len(received), fingerprint(model)


@pytest.mark.parametrize("is_given", [True, False])
def test_each_replica_gets_the_exact_mean_squares_of_its_rows(is_given):
    ranks = results(trained, NODES * PER_NODE, is_given)
    for worst, rows, shapes, count, _ in ranks:
        assert worst < 2.0**-7  # they travel as bfloat16
        assert {"wide.weight", "odd.weight"} <= rows
        assert count == len(rows - {"wide.bias"})  # it is frozen
        assert len(shapes) == 1
    digests = [digest for *_, digest in ranks]
    assert digests[:2] == digests[2:] and digests[0] != digests[1]
