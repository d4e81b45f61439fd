"""torch.compile of an optimizer's step, beside a rule for gradients that arrive late."""

import deltawire.torch
import torch
from ranks import results
from torch.nn.parallel import DistributedDataParallel


def compiled_step(rank, world_size, report):
    """How far weights are from those of steps that torch.compile has not seen, and how often it had
    compiled after the third step, and after the last one."""
    graphs, ends, seen = [], [], []

    def backend(module, _):
        graphs.append(module)
        return module.forward

    for compiles in (True, False):
        torch.manual_seed(1)
        model = DistributedDataParallel(torch.nn.Linear(16, 32))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        hook = deltawire.torch.register(model, "topk:k=5%", optimizer=optimizer)
        take_step = torch.compile(optimizer.step, backend=backend) if compiles else optimizer.step
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 16)).square().mean().backward()
            take_step()
            seen.append(len(graphs))
        hook.close()
        ends.append(model.module.weight.detach())
    return (ends[0] - ends[1]).abs().max().item(), seen[2], seen[-1]


def test_a_compiled_step_is_the_same_step():
    ((apart, by_then, in_all),) = results(compiled_step, 1)
    assert apart < 1e-6
    assert 0 < by_then == in_all, "it is compiled again in each step"
