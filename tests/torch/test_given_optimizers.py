"""What doors take as an optimizer: torch's own, alone or in a wrapper that is an optimizer, too;
and what they say of anything else."""

import contextlib
import warnings

import deltawire.torch
import pytest
import torch
from models import Net, backward, fingerprint, wrapped
from ranks import attempted, results


class Wrapper(torch.optim.Optimizer):
    """As Accelerate's, which has an optimizer and none of what Optimizer.__init__ makes."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)
    defaults = property(lambda self: self.optimizer.defaults)

    def step(self, closure=None):
        self.optimizer.step(closure)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)


def sgd_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def registered(rank, wrap, spec, **options):
    """Weights after some steps."""
    model = wrapped(Net())
    optimizer = wrap(sgd_of(model))
    with contextlib.closing(
        deltawire.torch.register(model, spec, optimizer=optimizer, **options)
    ) as hook:
        for step in range(4):
            backward(model, rank, step)
            optimizer.step()
        return fingerprint(model), hook.metrics()["total_bytes_sent"]


def served(rank, wrap):
    model = Net()
    optimizer = wrap(sgd_of(model))
    with deltawire.torch.ParameterServer(model, optimizer, "fp32", servers=1) as server:
        if server.serves:
            server.serve()
        else:
            for step in range(3):
                backward(model, rank, step)
                server.step()
    return fingerprint(model)


def local(rank, wrap):
    model = Net()
    optimizer = wrap(sgd_of(model))
    with deltawire.torch.LocalSteps(model, optimizer, "sbc:p=10%", steps=2) as trainer:
        for step in range(4):
            backward(model, rank, step)
            trainer.step()
    return fingerprint(model)


def with_and_without_a_wrapper(rank, world_size, report):
    return [
        [
            registered(rank, wrap, "topk:k=5%"),
            registered(rank, wrap, "gcomp"),
            served(rank, wrap),
            local(rank, wrap),
        ]
        for wrap in (lambda bare: bare, Wrapper, lambda bare: Wrapper(Wrapper(bare)))
    ]


def test_a_wrapper_changes_nothing():
    for bare, once, twice in results(with_and_without_a_wrapper, 2):
        assert bare == once == twice


def kept_momentum(rank, world_size, report):
    """Of the velocity after a step: the gradient, which a rule would not let it be."""
    found = []
    for given in (True, False):
        model = wrapped(Net())
        optimizer = sgd_of(model)
        options = {"optimizer": optimizer} if given else {}
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            hook = deltawire.torch.register(model, "topk:k=5%", momentum="optimizer", **options)
            backward(model, rank, 0)
            optimizer.step()
        weight = next(model.parameters())
        kept = torch.equal(optimizer.state[weight]["momentum_buffer"], weight.grad)
        told = [each for each in heard if each.category is deltawire.torch.MomentumWarning]
        found.append((kept, len(told), hook.optimizer_rules.held))
        hook.close()
    return found


def test_a_momentum_may_stay_in_the_optimizer():
    for found in results(kept_momentum, 2):
        assert found == [(True, 0, set())] * 2


def not_optimizers(model):
    from torch.distributed.optim import ZeroRedundancyOptimizer  # it takes a while

    sgd = sgd_of(model)
    return {
        "not the class SGD: make one": torch.optim.SGD,
        "not StepLR, which steps nothing itself": torch.optim.lr_scheduler.StepLR(sgd, 1),
        "not list of 2": [sgd, sgd],
        "not float": 0.1,
        "on each rank it steps a share": ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, lr=0.1
        ),
    }


def refused(rank, world_size, report):
    ddp, model = wrapped(Net()), Net()
    doors = {
        "topk": lambda given: deltawire.torch.register(ddp, "topk", optimizer=given),
        "gcomp": lambda given: deltawire.torch.register(ddp, "gcomp", optimizer=given),
        "kept": lambda given: deltawire.torch.register(
            ddp, "topk", optimizer=given, momentum="optimizer"
        ),
        "LocalSteps": lambda given: deltawire.torch.LocalSteps(model, given, "3lc", steps=2),
        "ParameterServer": lambda given: deltawire.torch.ParameterServer(
            model, given, "3lc", servers=1
        ),
    }
    return [
        (name, says, attempted(lambda door=door, given=given: door(given)))
        for says, given in not_optimizers(model).items()
        for name, door in doors.items()
    ]


def test_what_is_no_optimizer_is_said_to_be_none():
    for found in results(refused, 2):
        for name, says, caught in found:
            assert caught is not None, (name, says)
            kind, text, _ = caught
            assert kind == "DTypeError" and says in text and "\n" not in text, (name, caught)


def test_significance_of_takes_a_wrapper():
    parameter = torch.nn.Parameter(torch.ones(3))
    sgd = torch.optim.SGD([parameter], lr=0.1)
    bare, seen = (deltawire.torch.significance_of(each, parameter) for each in (sgd, Wrapper(sgd)))
    assert torch.equal(bare, seen) and bare.any()
    with pytest.raises(deltawire.DTypeError, match="the class SGD"):
        deltawire.torch.significance_of(torch.optim.SGD, parameter)
