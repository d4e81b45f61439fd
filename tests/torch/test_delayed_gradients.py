"""register(delay=1): each step gets the means of the step before, of gradients taken ahead."""

import copy
import functools

import deltawire.torch
import pytest
import torch
from models import Net, backward, fingerprint, wrapped
from ranks import attempted, results

RATE = 0.05
SETTINGS = {"lr": RATE, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}


class Late:
    """A model whose exchange is delayed, and its optimizer."""

    def __init__(self):
        self.model = wrapped(Net())
        self.optimizer = torch.optim.SGD(self.model.parameters(), **SETTINGS)
        options = {"delay": 1, "optimizer": self.optimizer}
        self.hook = deltawire.torch.register(self.model, "fp32", **options)

    def go_on(self, rank, steps):
        for step in steps:
            backward(self.model, rank, step)
            self.optimizer.step()

    def parts(self):
        return {"model": self.model, "optimizer": self.optimizer, "hook": self.hook}

    def state(self):
        return copy.deepcopy({name: part.state_dict() for name, part in self.parts().items()})

    def load(self, state):
        for name, part in self.parts().items():
            part.load_state_dict(state[name])


def gradients_of(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def own_means(rank, world_size, report):
    """Next to the delayed model two others: the means of one without a delay, and the gradient of
    this rank alone, both at weights that torch's own optimizer has taken ahead."""
    late, plain, alone = Late(), wrapped(Net()), Net()
    other = deltawire.torch.register(plain, "fp32")
    ahead = torch.optim.SGD(alone.parameters(), **SETTINGS)
    assert not late.hook.finish_delayed()
    means = []
    for step in range(4):
        weights = late.model.module.state_dict()
        own = gradients_of(alone) if step else None
        alone.load_state_dict(weights)
        if step:
            ahead.load_state_dict(copy.deepcopy(late.optimizer.state_dict()))
            for parameter, gradient in zip(alone.parameters(), own, strict=True):
                parameter.grad = gradient
            ahead.step()
        plain.module.load_state_dict(alone.state_dict())
        backward(alone, rank, step)
        backward(plain, rank, step)
        means.append(gradients_of(plain))
        before = fingerprint(late.model)
        backward(late.model, rank, step)
        assert fingerprint(late.model) == before, "the weights are back"
        got = gradients_of(late.model)
        due = means[step - 1] if step else [torch.zeros_like(each) for each in got]
        for have, wanted in zip(got, due, strict=True):
            torch.testing.assert_close(have, wanted)
        late.optimizer.step()
    late.model.zero_grad()
    assert late.hook.finish_delayed()
    for have, wanted in zip(gradients_of(late.model), means[-1], strict=True):
        torch.testing.assert_close(have, wanted)
    assert not late.hook.finish_delayed(), "it gives them once"
    backward(late.model, rank, 4)
    assert all(not each.any() for each in gradients_of(late.model))
    late.hook.close()
    other.close()
    return fingerprint(late.model)


def test_a_step_gets_the_means_of_the_step_before():
    first, second = results(own_means, 2)
    assert first == second, "replicas are equal, bit for bit"


def saved_and_loaded(rank, world_size, report):
    """Goes on after a checkpoint as if there had been none."""
    late = Late()
    late.go_on(rank, range(3))
    state = late.state()
    late.go_on(rank, range(3, 5))
    late.hook.close()
    again = Late()
    again.load(state)
    again.go_on(rank, range(3, 5))
    found = deltawire.torch.AllRanks(again.hook).state_dict()
    deltawire.torch.AllRanks(again.hook).load_state_dict(found)
    means = found["ranks"][0]["delayed"]["rank 0"][0]["means"]
    assert again.hook.finish_delayed()
    named = again.model.module.named_parameters()
    assert all(torch.equal(parameter.grad, means[name]) for name, parameter in named)
    again.hook.close()
    plain = deltawire.torch.register(wrapped(Net()), "fp32")
    with pytest.raises(deltawire.InvalidArgumentError, match="register with delay=1"):
        plain.load_state_dict(state["hook"])
    with pytest.raises(deltawire.DeltawireError, match="nothing is delayed"):
        plain.finish_delayed()
    plain.close()
    return fingerprint(late.model), fingerprint(again.model)


def test_what_is_in_flight_is_in_a_checkpoint():
    (first, again), second = results(saved_and_loaded, 2)
    assert first == again and second == (first, again)


def failing(rank, world_size, report):
    """An exchange fails on one rank, between two steps."""
    late = Late()
    late.go_on(rank, range(3))
    late.hook.state_dict()  # the step is over here
    if rank == 1:
        late.hook._session.abort("a fault")
    done = 0
    with pytest.raises(deltawire.DeltawireError, match="a fault"):
        for step in range(3, 6):
            late.go_on(rank, [step])
            done += 1
    assert late.hook.last_error is not None
    assert not late.hook.state_dict()["delayed"][f"rank {rank}"][0]["means"]
    late.hook.close()
    return done, fingerprint(late.model)


def test_a_fault_leaves_replicas_equal():
    first, second = results(failing, 2)
    assert first == second and first[0] <= 1


def refused(rank, world_size, report):
    model = wrapped(Net())
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    adam = torch.optim.Adam(model.parameters())
    own = type("Own", (torch.optim.SGD,), {})(model.parameters(), lr=RATE)  # its step may differ
    other = torch.optim.SGD(Net().parameters(), lr=RATE)
    for spec, options, text in (
        ("3lc", {"delay": 2, "optimizer": sgd}, "delay=2 must be 0"),
        ("3lc", {"delay": True, "optimizer": sgd}, "delay=True must be 0"),
        ("3lc", {"delay": 1}, "delay=1 needs optimizer="),
        ("3lc", {"delay": 1, "optimizer": adam}, "delay=1 needs optimizer="),
        ("fp32", {"delay": 1, "optimizer": own}, "delay=1 needs optimizer="),
        ("auto", {"delay": 1}, 'not for "auto"'),
        ("topk", {"delay": 1, "optimizer": sgd}, "sends most of a gradient in later steps"),
        ("fp32", {"delay": 1, "optimizer": sgd, "nonfinite": "pass"}, 'with nonfinite="pass"'),
        ("fp32", {"delay": 1, "optimizer": other}, "does not hold parameter 'layers.0.0.weight'"),
        ("fp32", {"delay": 1, "optimizer": sgd} if rank else {}, "delay"),
    ):
        caught = attempted(functools.partial(deltawire.torch.register, model, spec, **options))
        assert caught is not None and text in caught[1], (options, caught)


def test_what_does_not_go_with_a_delay_is_refused():
    results(refused, 2)
