"""Late tensors under SGD with momentum: no velocity, and a higher rate; all others as ever."""

import contextlib
import copy
import functools
import logging
import sys
import warnings

import deltawire.torch
import pytest
import torch
from deltawire import _core
from models import Net, backward, fingerprint, steps_by, whole_and_in_pieces, wrapped
from ranks import attempted, results
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.nn.utils import clip_grad_norm_
from watched import logged

SPEC = "gather(layers.0*: fp32, rest topk:k=5%)"
ALWAYS = range(8)
LATE = [f"layers.{i}.0.weight" for i in range(1, 6)]  # biases are below min_elements


def model_and_sgd(**settings):
    """A model of several buckets, and SGD with two groups of different momentum."""
    model = wrapped(Net())
    parameters = list(model.parameters())
    groups = [{"params": parameters[:6]}, {"params": parameters[6:], "momentum": 0.6}]
    defaults = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    return model, torch.optim.SGD(groups, **(defaults | settings))


def change_settings(optimizer, step):
    """What schedulers do."""
    first, _ = optimizer.param_groups
    first["lr"] = 0.05 * 0.9**step
    first["momentum"] = 0.9 - 0.1 * (step >= 4)


class Reference:
    """SGD as written down in the guide, on a copy of the model's parameters."""

    def __init__(self, model, late):
        self.values = {n: p.detach().clone() for n, p in model.module.named_parameters()}
        self.velocity = {}
        self.late = late

    def step(self, step, gradients, settings_of):
        for name, value in self.values.items():
            lr, m, dampening, decay, nesterov = settings_of(name)
            g = gradients[name] + decay * value
            if name in self.late(step):
                self.velocity.pop(name, None)
                share = 0.5 + 0.25 * min(1.0, step * (1 - m) / 20)
                lr *= (1 - dampening) * max(1.0, share * (1 - m ** (step + 1)) / (1 - m))
            elif m:
                before = self.velocity.get(name)
                v = g.clone() if before is None else m * before + (1 - dampening) * g
                self.velocity[name] = v
                g = g + m * v if nesterov else v
            value -= lr * g


def trained(rank, world_size, report, spec, late_steps, settings):
    """Eight steps beside the reference; the largest difference, and what is left behind."""
    model, optimizer = model_and_sgd(**settings)
    groups = optimizer.param_groups
    names = {id(p): n for n, p in model.module.named_parameters()}
    reference = Reference(model, lambda step: LATE if step in late_steps else [])
    with contextlib.closing(deltawire.torch.register(model, spec, optimizer=optimizer)) as hook:
        for step in range(8):
            backward(model, rank, step)
            clip_grad_norm_(model.parameters(), 0.05)
            change_settings(optimizer, step)
            by_name = {names[id(p)]: group for group in groups for p in group["params"]}

            def settings_of(name, by_name=by_name):
                keys = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
                return [by_name[name][key] for key in keys]

            gradients = {names[id(p)]: p.grad.clone() for p in model.parameters()}
            reference.step(step, gradients, settings_of)
            before = copy.deepcopy([{**g, "params": None} for g in groups])
            optimizer.step()
            assert optimizer.param_groups is groups, "the user's groups are the user's"
            assert [{**g, "params": None} for g in groups] == before
        assert hook.metrics()["buckets"] > 2
    ours = dict(model.module.named_parameters())
    worst = max((ours[n] - v).abs().max().item() for n, v in reference.values.items())
    moving = {names[id(p)] for p, s in optimizer.state.items() if s["momentum_buffer"].any()}
    complete = len(optimizer.state) == len(ours)
    return worst, complete and moving == set(reference.velocity), fingerprint(model)


@pytest.mark.parametrize(
    ("spec", "late_steps", "settings"),
    [
        (SPEC, ALWAYS, {}),
        (SPEC, ALWAYS, {"nesterov": True, "foreach": True}),
        (SPEC, ALWAYS, {"dampening": 0.5, "fused": False, "foreach": False}),
        (SPEC, ALWAYS, {"fused": True}),
        # the velocity of what becomes late is forgotten
        ("gather(layers.0*: fp32, step<3: bf16, rest topk:k=5%)", range(3, 8), {}),
        (
            "gather(layers.0*: fp32, step<2: topk:k=5%, step<5: bf16, rest topk:k=5%)",
            (0, 1, 5, 6, 7),
            {},
        ),
        # bits that the optimizer can't see are cut elsewhere
        ("gather(layers.0*: gcomp, rest topk:k=5%)", ALWAYS, {}),
    ],
)
def test_the_equations_are_those_of_the_guide(spec, late_steps, settings):
    ranks = results(trained, 2, spec, late_steps, settings)
    for worst, same_velocities, digest in ranks:
        assert worst <= 1e-6
        assert same_velocities, "each tensor has a velocity, which for late ones is 0"
        assert digest == ranks[0][2], "the replicas differ"


def test_the_rate_rises_and_then_stays():
    risen = [_core.MomentumRate(0.9, 0.0).times(step) for step in (0, 3, 100, 200, sys.maxsize)]
    assert risen == pytest.approx([1.0, 1.732, 6.25, 7.5, 7.5], abs=1e-3)
    assert _core.MomentumRate(0.2, 0.0).times(99) == 1.0, "never a lower one"
    assert _core.MomentumRate(0.99, 0.5).times(sys.maxsize) == pytest.approx(37.5)


class ByName:
    """An optimizer whose state is saved and loaded as distributed checkpoints have it."""

    def __init__(self, model, optimizer):
        self.step = optimizer.step
        self.state_dict = functools.partial(get_optimizer_state_dict, model, optimizer)
        self.load_state_dict = functools.partial(set_optimizer_state_dict, model, optimizer)


def resumed(rank, world_size, report, by_name):
    def make():
        model, optimizer = model_and_sgd()
        hook = deltawire.torch.register(model, SPEC, optimizer=optimizer)
        return model, ByName(model, optimizer) if by_name else optimizer, hook

    digests, _, (_, moments, state) = whole_and_in_pieces(rank, make, 8, 4)
    return digests, sorted(state), [g["momentum"] for g in moments["param_groups"]]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_training_that_goes_on_from_a_checkpoint_is_the_same(by_name):
    for (whole, in_pieces), keys, momentum in results(resumed, 2, by_name):
        assert whole == in_pieces
        assert keys == ["residuals", "spec", "steps", "version", "world_size"], "no new state"
        assert momentum == [0.9, 0.6]


def closed(rank, world_size, report):
    """After close the optimizer is a plain one. An old checkpoint's velocities are forgotten."""
    model, optimizer = model_and_sgd()
    names = {id(p): n for n, p in model.module.named_parameters()}

    def moving():
        return {names[id(p)] for p, s in optimizer.state.items() if s["momentum_buffer"].any()}

    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    everything = moving()
    hook = deltawire.torch.register(model, SPEC, optimizer=optimizer)
    optimizer.load_state_dict(state)
    backward(model, rank, 0)
    optimizer.step()
    late = everything - moving()
    hook.close()
    optimizer.step()
    return (late == set(LATE), moving() == everything, len(optimizer._optimizer_step_pre_hooks))


def test_a_closed_hook_leaves_a_plain_optimizer():
    assert results(closed, 2) == [(True, True, 0)] * 2


def scaled(rank, world_size, report):
    """A GradScaler that skips the third step."""
    model, optimizer = model_and_sgd(weight_decay=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=10**6)
    hook = deltawire.torch.register(model, SPEC, optimizer=optimizer, scaler=scaler)
    moved = []
    for step in range(5):
        before = fingerprint(model)
        model.zero_grad()
        x = torch.full((2, 64), 1.0 + step + rank)
        loss = model(x).square().mean() * (float("inf") if step == 2 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        moved.append(fingerprint(model) != before)
    finite = all(p.isfinite().all() for p in model.parameters())
    hook.close()
    return moved, finite, fingerprint(model)


def test_a_step_that_the_scaler_skips_is_skipped():
    (moved, finite, one), (_, _, other) = results(scaled, 2)
    assert moved == [True, True, False, True, True] and finite and one == other


def said(rank, world_size, report):
    """What registration logs, explain() shows, and nobody warns of."""
    texts = logged()
    model, optimizer = model_and_sgd()
    with warnings.catch_warnings():
        warnings.simplefilter("error", deltawire.torch.MomentumWarning)
        hook = deltawire.torch.register(model, SPEC, optimizer=optimizer)
        steps_by(optimizer, model, rank, range(2))
    explained = hook.explain()
    hook.close()
    rates = {row.name: row.rate_times for row in explained.rows}
    return [text for text in texts if "momentum" in text], rates, str(explained)


def test_registration_and_explain_say_what_is_done():
    (texts, rates, table), (silent, *_) = results(said, 2)
    assert silent == []
    (text,) = texts
    assert "\n" not in text
    assert "exchanges 12 tensors, 99,840 bytes a step; SGD steps 5 of 12 tensors" in text
    assert "without momentum, because 'topk:k=0.05" in text
    assert "momentum=0.9 becomes a learning rate up to 7.5 times as high, after 200 steps" in text
    assert "momentum=0.6 becomes a learning rate up to 1.88 times as high, after 50 steps" in text
    assert {name for name, times in rates.items() if times is not None} == set(LATE)
    assert rates["layers.1.0.weight"] == pytest.approx(_core.MomentumRate(0.9, 0.0).times(2))
    assert rates["layers.5.0.weight"] == pytest.approx(_core.MomentumRate(0.6, 0.0).times(2))
    assert "; rate x 1.36" in table and "rate x: times the optimizer's learning rate" in table


def refused(rank, world_size, report):
    model = wrapped(Net())
    own = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    others = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1, momentum=0.9)

    class Derived(torch.optim.SGD):
        """Whose step may be another."""

    caught = [
        attempted(lambda given=given: deltawire.torch.register(model, "topk", **given))
        for given in (
            {"optimizer": torch.optim.Adagrad(model.parameters())},
            {"optimizer": Derived(model.parameters(), lr=0.1)},
            {"optimizer": others},
            {"optimizer": own, "momentum": "codec"},
            {"optimizer": own} if rank == 0 else {},
        )
    ]
    return caught, len(own._optimizer_step_pre_hooks)


def test_what_is_refused_is_refused_in_words():
    (caught, left), (_, _) = results(refused, 2)
    assert left == 0, "a failed registration leaves nothing in the optimizer"
    kinds = [kind for kind, *_ in caught]
    assert kinds == ["InvalidArgumentError"] * 4 + ["DeltawireError"]
    adagrad, derived, others, bad, differs = (text for _, text, _ in caught)
    assert "not for Adagrad" in adagrad and "LocalSteps" in adagrad and "3lc" in adagrad
    assert "not for Derived" in derived
    assert "holds none of the model's parameters" in others
    assert "momentum='codec' is neither" in bad
    assert "optimizer=SGD, momentum as rate" in differs and "optimizer=none" in differs


def mixed_with_rmsprop(rank, world_size, report):
    """RMSprop is of use to gcomp; that it isn't to topk is said aloud."""
    model = wrapped(Net())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)
    texts = logged(logging.WARNING)
    spec = "gather(layers.0*: gcomp, rest topk:k=5%)"
    with contextlib.closing(deltawire.torch.register(model, spec, optimizer=optimizer)):
        backward(model, rank, 0)
        optimizer.step()
    return [text for text in texts if "momentum" in text]


def test_an_optimizer_without_the_rule_is_warned_of():
    first, second = results(mixed_with_rmsprop, 2)
    assert len(first) == 1 and "not for RMSprop" in first[0] and not second
