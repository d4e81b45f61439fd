"""What doors take as an optimizer: torch's own, alone, in a wrapper that is an optimizer, too, or,
at register, several; and what they say of anything else."""

import contextlib
import functools
import warnings

import deltawire.torch
import pytest
import torch
from deltawire import _core
from deltawire.torch.core.optimizer_rules import momentum_choice
from deltawire.torch.core.optimizer_rules.factored_second_moment import FactoredSecondMoment
from models import Net, backward, fingerprint, steps_by, wrapped
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
        steps_by(optimizer, model, rank, range(4))
        return fingerprint(model), hook.metrics()["total_bytes_sent"]


def served(rank, wrap):
    model = Net()
    optimizer = wrap(sgd_of(model))
    with deltawire.torch.ParameterServer(model, optimizer, "fp32", servers=1) as server:
        if server.serves:
            server.serve()
        else:
            steps_by(server, model, rank, range(3))
    return fingerprint(model)


def local(rank, wrap):
    model = Net()
    optimizer = wrap(sgd_of(model))
    with deltawire.torch.LocalSteps(model, optimizer, "sbc:p=10%", steps=2) as trainer:
        steps_by(trainer, model, rank, range(4))
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
        "not list of 0": [],
        "not float": 0.1,
        "on each rank it steps a share": ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, lr=0.1
        ),
    }


def refused(rank, world_size, report):
    ddp, model = wrapped(Net()), Net()
    doors = {
        "topk": lambda given: deltawire.torch.register(ddp, "topk", optimizer=given),
        "kept": lambda given: deltawire.torch.register(
            ddp, "topk", optimizer=given, momentum="optimizer"
        ),
        "gcomp": lambda given: deltawire.torch.register(ddp, "gcomp", optimizer=given),
        "LocalSteps": lambda given: deltawire.torch.LocalSteps(model, given, "3lc", steps=2),
        "ParameterServer": lambda given: deltawire.torch.ParameterServer(
            model, given, "3lc", servers=1
        ),
    }
    return [
        (name, says, attempted(lambda door=door, given=given: door(given)))
        for says, given in not_optimizers(model).items()
        for name, door in doors.items()
        if "share" not in says or name not in ("topk", "kept")  # which take it
    ]


def test_what_is_no_optimizer_is_said_to_be_none():
    for found in results(refused, 2):
        for name, says, caught in found:
            assert caught is not None, (name, says)
            kind, text, _ = caught
            assert kind == "DTypeError" and says in text and "\n" not in text, (name, caught)


def shared_out(rank, world_size, report):
    """Weights by ZeRO and without it, and what is shown of their tensors. Rows are not scaled where
    a rank has not all second moments."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # it takes a while

    makers = {
        "topk:k=5%": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
        "sbc:p=10%": (torch.optim.Adam, {"lr": 0.01}),
        "step<1: fp32, rest 3lc": (torch.optim.AdamW, {"lr": 0.01}),
    }
    ends = []
    for spec, (kind, settings) in makers.items():
        for is_shared in (True, False):
            model = wrapped(Net())
            parameters = model.parameters()
            if is_shared:
                optimizer = ZeroRedundancyOptimizer(parameters, kind, **settings)
            else:
                optimizer = kind(parameters, **settings)
            with (
                pytest.MonkeyPatch.context() as patch,
                contextlib.closing(
                    deltawire.torch.register(model, spec, optimizer=optimizer)
                ) as hook,
            ):
                if not is_shared:
                    patch.setattr(FactoredSecondMoment, "scales_of", lambda *_: None)
                steps_by(optimizer, model, rank, range(4))
                ends.append((fingerprint(model), str(hook.explain())))
    return ends


def test_shares_of_zero_are_stepped_as_the_whole_is():
    one, other = results(shared_out, 2)
    assert [weights for weights, _ in one] == [weights for weights, _ in other]
    assert one[::2] == one[1::2]


def masked(rank, world_size, report):
    """Whether there are zeros in momenta of two optimizers, after a round."""
    model = Net()
    parameters = list(model.parameters())
    sgd = torch.optim.SGD(parameters[:6], lr=0.01, momentum=0.9)
    optimizers = [sgd, torch.optim.AdamW(parameters[6:], lr=0.01)]
    with deltawire.torch.LocalSteps(
        model, optimizers, "sbc:p=10%", steps=2, min_elements=2
    ) as trainer:
        steps_by(trainer, model, rank, range(2))
    return [
        [(state[key] == 0).any().item() for state in optimizer.state.values() if key in state]
        for optimizer, key in zip(optimizers, ("momentum_buffer", "exp_avg"), strict=True)
    ]


def test_the_momenta_of_all_optimizers_are_masked():
    for of_sgd, of_adamw in results(masked, 2):
        assert of_sgd and all(of_sgd) and of_adamw and all(of_adamw)


def by_several(rank, world_size, report, spec):
    """By one AdamW, by two, and by one and another optimizer for some tensors: weights, and how
    many tensors are stepped without their whole first moment."""
    found, make = [], functools.partial(torch.optim.AdamW, lr=0.01)
    for cut, others in ((0, None), (4, make), (4, functools.partial(torch.optim.SGD, lr=0.01))):
        model = wrapped(Net())
        parameters = list(model.parameters())
        optimizers = [make(parameters[cut:]), *([others(parameters[:cut])] if cut else [])]
        given = [Wrapper(each) for each in optimizers] if cut else optimizers[0]
        with contextlib.closing(
            deltawire.torch.register(model, spec, optimizer=given, min_elements=2)
        ) as hook:
            for step in range(4):
                backward(model, rank, step)
                for each in optimizers:
                    each.step()
            ruled = [row for row in hook.explain().rows if row.beta1 is not None]
            found.append((fingerprint(model), len(ruled)))
    return found


@pytest.mark.parametrize("codec", ["3lc", "topk:k=5%"])
def test_several_optimizers_step_as_one_does(codec):
    ranks = results(by_several, 2, f"gather(step<99: {codec}, rest fp32)")
    assert ranks[0] == ranks[1]
    (one, all_tensors), (two, in_two), (_, half) = ranks[0]
    assert one == two and all_tensors == in_two == 12 and half == 8


def test_a_spec_is_fitted_to_each_unless_momentum_stays():
    weights = torch.nn.Linear(3, 3)
    sgd = torch.optim.SGD([weights.weight], lr=0.1)
    both = sgd, torch.optim.AdamW([weights.bias], lr=0.1)
    spec = _core.Spec("direct(3lc)")
    fitted = momentum_choice.fitted_to(both, momentum_choice.AS_RATE, spec, 2)
    assert fitted == _core.Spec("direct(step<25: fp4, rest 3lc:pull=0.5)")
    assert momentum_choice.fitted_to(both, momentum_choice.IN_OPTIMIZER, spec, 2) == spec
    assert momentum_choice.fitted_to((sgd,), momentum_choice.AS_RATE, spec, 2) == spec


def refused_lists(rank, world_size, report):
    model = wrapped(Net())
    parameters = list(model.parameters())
    makers = torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop
    sgd, adamw, rmsprop = (make(parameters[:4], lr=0.1) for make in makers)
    rest = torch.optim.SGD(parameters[4:], lr=0.1)
    ways = {
        "two of the optimizers hold the same tensor": ("topk", [sgd, adamw]),
        "not for RMSprop": ("topk", [rest, rmsprop]),
        "optimizer= has 2 of torch.optim.SGD": ("gcomp", [sgd, rest]),
    }
    found = {
        words: attempted(lambda way=way: deltawire.torch.register(model, way[0], optimizer=way[1]))
        for words, way in ways.items()
    }
    nadam = torch.optim.NAdam(parameters[:4], lr=0.1)  # whose significance nobody knows
    deltawire.torch.register(model, "gcomp", optimizer=[nadam, rest]).close()
    return found


def test_a_list_that_can_not_be_stepped_is_refused():
    for found in results(refused_lists, 2):
        for words, (kind, text, _) in found.items():
            assert kind == "InvalidArgumentError" and words in text and "\n" not in text, text


def test_significance_of_takes_a_wrapper():
    parameter = torch.nn.Parameter(torch.ones(3))
    sgd = torch.optim.SGD([parameter], lr=0.1)
    bare, seen = (deltawire.torch.significance_of(each, parameter) for each in (sgd, Wrapper(sgd)))
    assert torch.equal(bare, seen) and bare.any()
    with pytest.raises(deltawire.DTypeError, match="the class SGD"):
        deltawire.torch.significance_of(torch.optim.SGD, parameter)
