"""Late tensors under Adam and AdamW: no first moment; all others as ever."""

import contextlib
import copy
import logging
import warnings

import deltawire.torch
import pytest
import torch
from models import Net, backward, fingerprint, steps_by, whole_and_in_pieces, wrapped
from ranks import attempted, results
from watched import logged

SPEC = "gather(layers.0*: fp32, step<99: topk:k=5%, rest fp32)"
RATE_TIMES = 0.75
LATE = [f"layers.{i}.0.weight" for i in range(1, 6)]  # biases are below min_elements


def model_and_adam(kind, **settings):
    """A model of several buckets, and an optimizer with two groups of different betas."""
    model = wrapped(Net())
    parameters = list(model.parameters())
    groups = [{"params": parameters[:6]}, {"params": parameters[6:], "betas": (0.6, 0.9)}]
    return model, kind(groups, **({"lr": 0.01, "weight_decay": 0.02} | settings))


class Reference:
    """Adam as in its paper, with the decay of `kind`, on a copy of the model's parameters."""

    def __init__(self, model, kind):
        self.values = {n: p.detach().clone() for n, p in model.module.named_parameters()}
        self.moments = {n: [torch.zeros_like(v)] * 2 for n, v in self.values.items()}
        self.decoupled = kind is torch.optim.AdamW

    def step(self, t, gradients, betas_of):
        for name, value in self.values.items():
            b1, b2 = betas_of[name]
            lr, g = 0.01, gradients[name]
            if name in LATE:
                b1, lr = 0.0, 0.01 * RATE_TIMES
            if self.decoupled:
                value *= 1 - lr * 0.02
            else:
                g = g + 0.02 * value
            m, v = self.moments[name]
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            self.moments[name] = [m, v]
            value -= lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + 1e-8)


def trained(rank, world_size, report, kind, settings):
    """Six steps beside the reference; the largest difference."""
    model, optimizer = model_and_adam(kind, **settings)
    names = {id(p): n for n, p in model.module.named_parameters()}
    betas_of = {names[id(p)]: g["betas"] for g in optimizer.param_groups for p in g["params"]}
    reference = Reference(model, kind)
    with contextlib.closing(deltawire.torch.register(model, SPEC, optimizer=optimizer)):
        for step in range(6):
            backward(model, rank, step)
            gradients = {names[id(p)]: p.grad.clone() for p in model.parameters()}
            reference.step(step + 1, gradients, betas_of)
            before = [{**g, "params": None} for g in copy.deepcopy(optimizer.param_groups)]
            optimizer.step()
            assert [{**g, "params": None} for g in optimizer.param_groups] == before
    ours = dict(model.module.named_parameters())
    worst = max((ours[n] - v).abs().max().item() for n, v in reference.values.items())
    return worst, fingerprint(model)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.Adam, {}),
    ],
)
def test_late_tensors_have_no_first_moment(kind, settings):
    ranks = results(trained, 2, kind, settings)
    for worst, digest in ranks:
        assert worst <= 2e-6
        assert digest == ranks[0][1], "the replicas differ"


def said(rank, world_size, report):
    """What registration logs and explain() shows; nothing warns; close() leaves a plain AdamW."""
    texts = logged()
    model, optimizer = model_and_adam(torch.optim.AdamW)
    with warnings.catch_warnings():
        warnings.simplefilter("error", deltawire.torch.MomentumWarning)
        hook = deltawire.torch.register(model, SPEC, optimizer=optimizer)
        backward(model, rank, 0)
        optimizer.step()
    explained = hook.explain()
    hook.close()
    shown = {row.name for row in explained.rows if row.beta1 == 0 and row.rate_times == RATE_TIMES}
    said = [text for text in texts if "momentum" in text]
    return said, shown, str(explained), len(optimizer._optimizer_step_pre_hooks)


def test_registration_and_explain_say_what_is_done():
    (texts, shown, table, left), (silent, *_) = results(said, 2)
    assert silent == [] and left == 0
    (text,) = texts
    assert "AdamW steps 5 of 12 tensors without momentum, because 'topk:k=0.05" in text
    assert "beta1=0.9 becomes 0, at 0.75 times the learning rate" in text
    assert "beta1=0.6 becomes 0" in text
    assert shown == set(LATE)
    assert "; rate x 0.75; beta1 0" in table and "beta1: in place of the optimizer's" in table


def goes_on(rank, world_size, report):
    def make():
        model, optimizer = model_and_adam(torch.optim.AdamW)
        return model, optimizer, deltawire.torch.register(model, SPEC, optimizer=optimizer)

    return whole_and_in_pieces(rank, make, 6, 3)[0]


def test_a_training_that_goes_on_from_a_checkpoint_is_the_same():
    for whole, in_pieces in results(goes_on, 2):
        assert whole == in_pieces


class AdamW(torch.optim.AdamW):
    """Another one of that name, whose state may be anything."""


def refused(rank, world_size, report):
    model = wrapped(Net())
    kinds = (torch.optim.NAdam, torch.optim.RMSprop, AdamW)
    return [
        attempted(
            lambda kind=kind: deltawire.torch.register(
                model, "topk", optimizer=kind(model.parameters(), lr=0.1)
            )
        )
        for kind in kinds
    ]


def test_others_are_refused_in_words():
    (nadam, rmsprop, adamw), _ = results(refused, 2)
    assert nadam[0] == rmsprop[0] == adamw[0] == "InvalidArgumentError"
    assert "not for test_late_adam.AdamW" in adamw[1]
    assert "SGD, Adam and AdamW, not for NAdam" in nadam[1] and "3lc" in nadam[1]
    assert "not for RMSprop" in rmsprop[1]


def warned_of_loss(rank, world_size, report):
    """What registration warns of, with codecs that AdamW does not suit, and others."""
    texts = logged(logging.WARNING)
    found = {}
    for kind in (torch.optim.AdamW, torch.optim.SGD):
        for spec in ("twobit", "gather(layers.0*: twobit, rest topk)", "randomk:k=10%"):
            texts.clear()
            model = wrapped(Net())
            optimizer = kind(model.parameters(), lr=0.1)
            deltawire.torch.register(model, spec, optimizer=optimizer).close()
            found[kind.__name__, spec] = [text for text in texts if "LeNet-5" in text]
    return found


def test_codecs_that_lose_in_spite_of_the_rule_are_named():
    found, others = results(warned_of_loss, 2)
    (twobit, rules, randomk), of_sgd = list(found.values())[:3], list(found.values())[3:]
    assert "'twobit:t=" in twobit[0] and "lost 1 point under AdamW" in twobit[0]
    assert "topk:k=1% and sbc:p=1% lost none" in twobit[0] and rules == twobit
    assert randomk == [] and of_sgd == [[], [], []] and not any(others.values())


def stepped_factored(rank, world_size, report):
    tables = []
    for spec in ("step<9: twobit, rest fp32", "direct(layers.0* step<9: 3lc, rest twobit)"):
        model, optimizer = model_and_adam(torch.optim.AdamW)
        hook = deltawire.torch.register(model, spec, optimizer=optimizer)
        tables.append(str(hook.explain()))
        hook.close()
    return tables


def test_twobit_goes_by_rows_without_a_first_moment_and_3lc_beside_it_too():
    for tables in results(stepped_factored, 2):
        for table in tables:
            assert table.count("beta1 0; factored second moment") == 6 and "beta1 0.5" not in table


def warned(rank, world_size, report, spec):
    """What an AdamW that register was not given leads to."""
    model, optimizer = model_and_adam(torch.optim.AdamW)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.closing(deltawire.torch.register(model, spec)):
            steps_by(optimizer, model, rank, range(2))
    return [str(w.message) for w in caught if w.category is deltawire.torch.MomentumWarning]


def test_register_without_the_optimizer_warns_once():
    ((text,), silent) = results(warned, 2, SPEC)
    assert silent == []
    assert "beta1=0.9 of AdamW delays it further" in text and "\n" not in text
    assert "optimizer=optimizer); or give AdamW beta1=0" in text and "LocalSteps" in text
