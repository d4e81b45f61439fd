"""LocalSteps in torch's post-local SGD, and ranks that differ in their local steps."""

import re
from pathlib import Path

import deltawire
import deltawire.torch
import torch
import torch.distributed as dist
from local_rounds import mean_of
from models import Net, backward, fingerprint, steps_by
from ranks import attempted, results
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "local-steps.md").read_text()
(DILOCO,) = re.findall(r"```python\n(trainer = deltawire.torch.LocalSteps\(\n.*?)```", PAGE, re.S)
(POST_LOCAL_SGD,) = re.findall(
    r"^## From torch's post-local SGD$.*?```python\n(.*?)```", PAGE, re.S | re.M
)
WARMUP, PERIOD = 2, 3


def post_local_sgd(rank, world_size, report):
    """Two nodes of two ranks: DDP over all for two steps, then over those of a node, as torch's
    documentation has it, with its averager over all ranks or with our page's lines."""
    from torch.distributed.optim import PostLocalSGDOptimizer

    nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])]

    def trained(averager_of):
        model = DistributedDataParallel(Net())
        state = PostLocalSGDState(None, nodes[rank // 2], start_localSGD_iter=WARMUP)
        model.register_comm_hook(state, post_localSGD_hook)
        local = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        averager, optimizer = averager_of(model, local)
        seen = []
        for step in range(WARMUP + 2 * PERIOD):
            backward(model, rank, step)
            optimizer.step()
            seen.append([p.detach().clone() for p in model.parameters()])
        assert optimizer.state_dict()["step"] == len(seen)
        return seen, averager

    def ours(model, local):
        # The first local step is averaged at once, as PeriodicModelAverager does it.
        rounds = f"steps=lambda number: {PERIOD} if number else 1"
        code = POST_LOCAL_SGD.replace("steps=4", rounds).replace("100", str(WARMUP))
        names = {"deltawire": deltawire, "model": model, "local_optim": local}
        names |= {"across": across[rank % 2], "PostLocalSGDOptimizer": PostLocalSGDOptimizer}
        exec(code.replace('"3lc"', '"fp32"'), names)
        return names["averager"], names["opt"]

    def torchs(model, local):
        averager = PeriodicModelAverager(PERIOD, WARMUP)
        return averager, PostLocalSGDOptimizer(optim=local, averager=averager)

    theirs, _ = trained(torchs)
    own, averager = trained(ours)
    rounds = averager.trainer.round
    averager.trainer.close()
    gaps = [
        max((a - b).abs().max().item() for a, b in zip(*both, strict=True))
        for both in zip(own, theirs, strict=True)
    ]
    return gaps, rounds, [w[0].sum().item() for w in own]


def test_averager_does_what_torchs_does():
    values = results(post_local_sgd, 4)
    for gaps, rounds, sums in values:
        assert max(gaps) < 1e-6 and rounds == 2
        assert sums[WARMUP - 1] == values[0][2][WARMUP - 1], "the warm-up is over all ranks"
        assert sums[WARMUP] == values[0][2][WARMUP], "averaged after the first local step"
    assert values[0][2][WARMUP + 1] != values[2][2][WARMUP + 1], "the nodes are on their own"
    assert values[0][2][WARMUP + 1] == values[1][2][WARMUP + 1], "a node's ranks are not"


def differ_in_the_warm_up(rank, world_size, report):
    """A warm-up in which nothing has averaged: the first round finds the ranks' weights unequal."""
    model = Net()
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    trainer = deltawire.torch.LocalSteps(model, inner, "3lc", steps=1)
    averager = deltawire.torch.Averager(trainer, warmup_steps=1)
    assert "warmup_steps=-1" in attempted(lambda: deltawire.torch.Averager(trainer, -1))[1]
    assert "not SGD" in attempted(lambda: deltawire.torch.Averager(inner))[1]
    backward(model, rank, 0)
    inner.step()
    averager.average_parameters(model.parameters())
    return attempted(lambda: averager.average_parameters(model.parameters()))


def test_a_warm_up_without_averaging_is_noticed():
    for kind, text, suspect in results(differ_in_the_warm_up, 2):
        assert kind == "DeltawireError" and suspect == 1 and "other weights" in text


def uneven_steps(rank, world_size, report):
    """Rank 0 takes three steps a round, rank 1 one and rank 2 two; then rank 2 has no batches left.
    Each rank's change counts alike, and its momentum is its own."""
    model, twin = Net(), Net()
    inner, theirs = (torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, twin))
    trainer = deltawire.torch.LocalSteps(
        model, inner, "direct(fp32)", steps=lambda _: (3, 1, 2)[rank]
    )
    batches = iter(range(100))

    def train(steps):
        for step in [next(batches) for _ in range(steps)]:
            for net in (model, twin):
                backward(net, rank, step)
            trainer.step()
            theirs.step()

    def round_of(steps, start, always):
        train(steps)
        if always:
            trainer.exchange(always=True)
        for before, parameter in zip(start, twin.parameters(), strict=True):
            parameter.data.copy_(before + mean_of(parameter.detach() - before))
        assert fingerprint(model) == fingerprint(twin)
        mine, others = (
            [state["momentum_buffer"] for state in optimizer.state.values()]
            for optimizer in (inner, theirs)
        )
        assert all(map(torch.equal, mine, others))
        return [p.detach().clone() for p in twin.parameters()]

    start = [p.detach().clone() for p in twin.parameters()]
    for _ in range(2):
        start = round_of((3, 1, 2)[rank], start, always=False)
    before = fingerprint(model)
    round_of((2, 0, 0)[rank], start, always=True)
    assert fingerprint(model) != before
    taken = [record["local_steps"] for record in trainer.step_records]
    trainer.close()
    return taken, trainer.round, fingerprint(model)


def test_ranks_that_differ_in_steps_have_equal_shares():
    values = results(uneven_steps, 3)
    assert [taken for taken, _, _ in values] == [[3, 3, 2], [1, 1, 0], [2, 2, 0]]
    assert len({value[1:] for value in values}) == 1 and values[0][1] == 3


def code_of_the_page(rank, world_size, report):
    model = Net()
    names = {"deltawire": deltawire, "torch": torch, "model": model}
    exec(DILOCO.replace("steps=500", "steps=4"), names)
    with names["trainer"] as trainer:
        steps_by(trainer, model, rank, range(6))
        trainer.exchange()
        return fingerprint(model), trainer.metrics()["steps"]


def test_diloco_as_the_page_has_it():
    first, second = results(code_of_the_page, 2)
    assert first == second and first[1] == 6 + 3  # all but the one whose turn was the last step's
