"""Adam and AdamW by a factored second moment: the step, beside float64 in NumPy."""

import copy
import itertools

import numpy as np
import pytest
import torch
from deltawire import _core
from deltawire.torch.core.optimizer_rules.factored_second_moment import (
    FactoredSecondMoment,
    Received,
)
from deltawire.torch.core.optimizer_rules.lines import lines_of
from deltawire.torch.core.optimizer_rules.tensors import CodedTensors

SHAPES = {"matrix": (8, 40), "filters": (6, 4, 3, 3), "vector": (300,)}
KINDS = (torch.optim.Adam, torch.optim.AdamW)
PATHS = ({"foreach": False}, {"foreach": True}, {"fused": True})
STEPS = 12
ADVICE = _core.optimizer_rule(_core.Spec("3lc").rules[0], _core.OptimizerTraits("AdamW"))


def made(dtype, memory_format):
    """Parameters, of which the last is too small to be coded."""
    torch.manual_seed(1)
    parameters = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    parameters["filters"] = parameters["filters"].to(memory_format=memory_format)
    parameters["small"] = torch.randn(5)
    return {name: torch.nn.Parameter(each.to(dtype)) for name, each in parameters.items()}


def coded(parameters):
    names = {id(each): name for name, each in parameters.items()}
    tensors = [(name, tuple(each.shape), "float32") for name, each in parameters.items()]
    spec = _core.Spec("direct(3lc)")
    return CodedTensors(spec, 16, names, tensors, 2, [spec.rules[0].codec])


def gradient_of(shape, generator):
    """(exact, decoded): of rows of unlike size, and a few values far larger than these."""
    exact = torch.randn(shape, generator=generator)
    if len(shape) > 1:
        exact *= torch.logspace(-4, 0, shape[0]).view(-1, *[1] * (len(shape) - 1))
    spikes = torch.rand(shape, generator=generator) < 0.03
    return exact, torch.where(spikes, exact.sign() * 3.0, 0.0)


def means_of(values):
    """Of rows and of columns, to be broadcast, in float64; of a vector its mean."""
    if values.ndim == 1:
        return values.mean(keepdims=True), np.ones(1)
    of_rows, of_columns = tuple(range(1, values.ndim)), (0, *range(2, values.ndim))
    return values.mean(of_rows, keepdims=True), values.mean(of_columns, keepdims=True)


class Reference:
    """The equations of the guide in float64, for one tensor."""

    def __init__(self, parameter, setting):
        self.weights = parameter.detach().double().numpy().copy()
        self.first, self.means = np.zeros_like(self.weights), (0.0, 0.0)
        self.decoupled = setting["kind"] is torch.optim.AdamW
        self.beta1, self.beta2 = min(setting["betas"][0], 0.5), setting["betas"][1]
        self.decay, self.sign = setting["decay"], -1.0 if setting["maximize"] else 1.0
        self.steps = 0

    @property
    def second(self):
        rows, columns = self.means
        return rows * columns / columns.mean()

    def step(self, gradient, exact, lr):
        self.steps += 1
        gradient, squares = self.sign * gradient, means_of(exact**2)
        if self.decoupled:
            self.weights *= 1 - lr * self.decay
        else:
            decay = self.decay * self.weights
            gradient = gradient + decay
            squares = [a + b for a, b in zip(squares, means_of(decay**2), strict=True)]
        self.first = self.beta1 * self.first + (1 - self.beta1) * gradient
        self.means = [
            self.beta2 * old + (1 - self.beta2) * new
            for old, new in zip(self.means, squares, strict=True)
        ]
        root = np.sqrt(self.second / (1 - self.beta2**self.steps)) + 1e-8
        step = self.first / (1 - self.beta1**self.steps) / root
        most = max(1, 0.1 * np.sqrt(np.mean(self.weights**2)) / lr)
        rms = np.sqrt(means_of(step**2)[0])
        self.weights -= lr * np.clip(step / np.maximum(rms / most, 1), -3 * most, 3 * most)

    def follow(self, parameter, state):
        """Goes on from values in bfloat16, whose rounding is not what is compared."""
        now = parameter.detach().double().numpy()
        assert (np.abs(now - self.weights) / (1e-2 + np.abs(self.weights))).max() < 3e-2
        self.weights, self.first = now.copy(), state["exp_avg"].double().numpy().copy()


PLAIN = {
    "scaled": 1.0,
    "decay": 0.0,
    "betas": (0.9, 0.999),
    "dtype": torch.float32,
    "maximize": False,
    "memory": torch.contiguous_format,
}
SETTINGS = (
    [
        {**PLAIN, "kind": kind, "path": path, "scaled": scaled, "decay": decay, "dtype": dtype}
        for kind, path, scaled, decay, dtype in itertools.product(
            KINDS, PATHS, (1.0, 0.25), (0.0, 0.1), (torch.float32, torch.bfloat16)
        )
    ]
    + [
        {**PLAIN, "kind": kind, "path": path, **more}
        for kind, path in itertools.product(KINDS, PATHS)
        for more in (
            {"betas": (0.3, 0.9)},
            {"betas": (0.9, 0.95), "scaled": 1e-3},
            {"maximize": True, "decay": 0.1},
            {"memory": torch.channels_last},
        )
    ]
    + [{**PLAIN, "kind": torch.optim.AdamW, "path": {}, "betas": (0.9, 0.0)}]
)


def give_gradients(parameters, rule, setting, generator):
    """Of one step, to the rule and the parameters; (decoded, exact) by name, both scaled."""
    given = {}
    for name, shape in SHAPES.items():
        exact, decoded = gradient_of(shape, generator)
        parameter = parameters[name]
        squares = lines_of(parameter).means(exact.double().square())
        parameter.grad = torch.empty_like(parameter).copy_(decoded)
        flat = parameter.grad.as_strided((decoded.numel(),), (1,))
        index = flat.abs().argmax().view(1)
        rule.received[id(parameter)] = Received(squares, index, flat.take(index))
        parameter.grad *= setting["scaled"]
        given[name] = (
            parameter.grad.double().numpy().copy(),
            exact.double().numpy() * setting["scaled"],
        )
    return given


def check(parameters, model, optimizer, dtype):
    states = optimizer.state_dict()["state"]
    for (name, parameter), state in zip(
        list(parameters.items())[:-1], states.values(), strict=False
    ):
        assert float(state["step"]) == STEPS
        second = np.broadcast_to(model[name].second, SHAPES[name])
        exact = dtype is torch.float32
        kept = state["exp_avg_sq"].double().numpy()
        np.testing.assert_allclose(kept, second, 1e-5 if exact else 1e-2)
        if exact:
            weights = parameter.detach().double().numpy()
            np.testing.assert_allclose(weights, model[name].weights, 1e-5, 2e-5)


@pytest.mark.parametrize("setting", SETTINGS, ids=range(len(SETTINGS)))
def test_a_step_is_that_of_the_equations(setting):
    parameters = made(setting["dtype"], setting["memory"])
    *ours, small = parameters.values()
    twin = torch.nn.Parameter(small.detach().clone())
    more = {
        "betas": setting["betas"],
        "weight_decay": setting["decay"],
        "maximize": setting["maximize"],
        **setting["path"],
    }
    groups = [{"params": ours[:1], "lr": 0.02}, {"params": [*ours[1:], small]}]
    optimizer, stock = setting["kind"](groups, 0.01, **more), setting["kind"]([twin], 0.01, **more)
    rule = FactoredSecondMoment(optimizer, coded(parameters), ADVICE)
    rule.attach()
    model = {name: Reference(parameters[name], setting) for name in SHAPES}
    generator = torch.Generator().manual_seed(2)
    for step in range(STEPS):
        rates = dict.fromkeys(SHAPES, 0.01) | {"matrix": 0.02 / (1 + step)}  # by a scheduler
        optimizer.param_groups[0]["lr"] = rates["matrix"]
        given = give_gradients(parameters, rule, setting, generator)
        small.grad = torch.randn(5, generator=generator).to(small.dtype)
        twin.grad = small.grad.clone()
        optimizer.step()
        stock.step()
        for name, (gradient, exact) in given.items():
            model[name].step(gradient, exact, rates[name])
            if setting["dtype"] is torch.bfloat16:
                model[name].follow(parameters[name], optimizer.state[parameters[name]])
    assert torch.equal(small, twin), "a tensor that the rule is not for"
    check(parameters, model, optimizer, setting["dtype"])


def test_a_loaded_state_by_elements_goes_on_with_the_means_of_its_lines():
    """Also one that is loaded in place, as torch.distributed.checkpoint does."""
    setting = {**PLAIN, "kind": torch.optim.AdamW}
    for in_place in (False, True):
        parameters = made(torch.float32, torch.contiguous_format)
        optimizer = torch.optim.AdamW(parameters.values(), lr=0.01, weight_decay=0.0)
        rule = FactoredSecondMoment(optimizer, coded(parameters), ADVICE)
        rule.attach()
        generator = torch.Generator().manual_seed(3)
        give_gradients(parameters, rule, setting, generator)
        optimizer.step()
        state = optimizer.state_dict()
        if not in_place:
            state = copy.deepcopy(state)
        for each in state["state"].values():
            each["step"].fill_(9)
            for moment in ("exp_avg", "exp_avg_sq"):
                each[moment].copy_(torch.rand(each[moment].shape, generator=generator))
        optimizer.load_state_dict(state)
        model = {name: Reference(parameters[name], setting) for name in SHAPES}
        for name, each in zip(SHAPES, state["state"].values(), strict=False):
            model[name].steps, model[name].first = 9, each["exp_avg"].double().numpy().copy()
            model[name].means = means_of(each["exp_avg_sq"].double().numpy())
        given = give_gradients(parameters, rule, setting, generator)
        optimizer.step()
        for name, (gradient, exact) in given.items():
            model[name].step(gradient, exact, 0.01)
            weights = parameters[name].detach().double().numpy()
            np.testing.assert_allclose(weights, model[name].weights, 1e-5, 2e-5)


@pytest.mark.parametrize("shape", [(50, 70), (70, 50, 3, 3), (4, 1, 2), (300,), (), (1, 9)])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_a_factored_moment_is_found_again_to_the_bit(shape, memory):
    """As a checkpoint must, whatever was in it; rows and columns of zeros too."""
    torch.manual_seed(4)
    tensor = torch.rand(shape).square()
    if memory is torch.channels_last and len(shape) == 4:
        tensor = tensor.to(memory_format=memory)
    lines = lines_of(tensor)
    for zeros in (False, True):
        if zeros and lines.columns:
            tensor[0], tensor[:, -1] = 0, 0
        crossing = lines.crossing(lines.means(tensor))
        out = lines.spread(crossing, torch.empty_like(tensor))
        assert torch.equal(lines.found_in(out), crossing)
        np.testing.assert_allclose(lines.means(out), lines.means(tensor), 1e-5)
        np.testing.assert_allclose(lines.means_of(crossing), lines.means(tensor), 1e-5)
