"""register(model, "auto"): what belongs to all ranks goes with the steps that they exchange,
whatever else a rank does; and whatever exchange is left, gradients in = means out + what waits.

The slow link and its times are those of test_auto.py.
"""

import deltawire.torch
import torch
from deltawire.torch.auto import codec_figures
from models import Net, batch, fingerprint, train_step, train_steps, wrapped
from ranks import results
from test_auto import TRIED, GivenTimes, measured, slow_link

SHAPES = {"a": (40, 50), "b": (3000,), "c": (64, 33)}


class Chosen(torch.nn.Module):
    """The gradient of each parameter is what its forward pass is given for it."""

    def __init__(self):
        super().__init__()
        self.all = torch.nn.ParameterDict(
            {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in SHAPES.items()}
        )

    def forward(self, gradients):
        return sum((self.all[name] * each).sum() for name, each in gradients.items())


class Balance:
    """What goes in and comes out of each parameter, in all."""

    def __init__(self, model):
        self.model = model
        self.given = {
            name: torch.zeros(shape, dtype=torch.double) for name, shape in SHAPES.items()
        }
        self.means = {name: torch.zeros_like(each) for name, each in self.given.items()}

    def step(self, rank, step, used, empty_on_1=()):
        """Gradients of the parameters in `used`; zeros of some on rank 1."""
        own = {}
        for name in used:
            for each in range(2):
                number = 1000 * step + 10 * each + ord(name)
                generator = torch.Generator().manual_seed(number)
                gradient = torch.randn(SHAPES[name], generator=generator)
                gradient *= not (each == 1 and name in empty_on_1)
                self.given[name] += gradient.double() / 2
                if each == rank:
                    own[name] = gradient
        self.model.zero_grad()
        self.model(own).backward()
        for name in used:
            self.means[name] += self.model.module.all[name].grad.double()

    def missing(self, name):
        """The share of what was given."""
        given = self.given[name]
        return float((self.means[name] - given).norm() / given.norm())


def leave(rank, world_size, report):
    """In the step that sends what waits no rank uses b, and rank 1 has zeros of c."""
    GivenTimes.coded = 3.5
    codec_figures.CANDIDATES.update({"near-lossless": (), "lossy": ("3lc",)})
    decided = measured("lossy") + TRIED
    balance = Balance(wrapped(Chosen(), find_unused_parameters=True))
    hook = slow_link(balance.model, "lossy")
    phases, waited = [], 0.0
    for step in range(decided + 10):
        late = decided <= step < decided + 4
        balance.step(rank, step, "ac" if late else "abc", "c" if late else "")
        phases.append(hook.metrics()["phase"])
        if step == decided + 3:
            waited = balance.missing("b")
    missing = {name: balance.missing(name) for name in SHAPES}
    hook.close()
    return phases[decided - 1 :], waited, missing


def test_an_exchange_is_left_once_nothing_waits():
    """The ranks look after 1, 3 and 7 steps."""
    for phases, waited, missing in results(leave, 2):
        assert waited > 1e-3, "nothing waited: nothing is tested"
        assert max(missing.values()) < 1e-6, missing
        assert phases == ["trying", *["leaving"] * 7, *["native"] * 3]


RULES = {
    "direct(step<4: 3lc, step<8: int8, rest fp32)": 1e-6,
    "direct(step<4: sbc:p=10%, step<8: 3lc:s=1.75, rest fp32)": 1e-6,
    "direct(step<4: 3lc, step<8: bf16, rest fp32)": 3e-3,  # which keeps nothing of what it rounds
    "direct(step<4: int8, step<8: gcomp, rest fp32)": 3e-3,
}


def follow_rules(rank, world_size, report):
    found = []
    for spec in RULES:
        balance = Balance(wrapped(Chosen(), find_unused_parameters=True))
        hook = deltawire.torch.register(balance.model, spec)
        for step in range(12):
            first = step in (4, 8)  # of a rule
            balance.step(rank, step, "ac" if first else "abc", "c" if first else "")
        found.append(max(map(balance.missing, SHAPES)))
        hook.close()
    return found


def test_a_rule_that_ends_takes_nothing_along():
    for missing in results(follow_rules, 2):
        for (spec, most), lost in zip(RULES.items(), missing, strict=True):
            assert lost < most, spec


def uneven(rank, world_size, report, steps):
    """Rank 0's data end first, wherever the ranks are then."""
    ends = []
    for first in steps:
        hook = slow_link(model := wrapped(Net()), "near-lossless")
        with model.join():
            train_steps(model, rank, range(first + (measured() + TRIED) * rank))
        ends.append((fingerprint(model), hook.last_error, hook.metrics()["phase"]))
        hook.close()
    return ends


def test_join_with_uneven_data_in_every_phase():
    measures = measured()
    steps = (5, measures - 3, measures + 3, measures + TRIED + 3)
    first, second = results(uneven, 2, steps)
    assert first == second
    assert [error for _, error, _ in first] == [None] * 4
    assert first[-1][2] == "compressing"


def look(rank, world_size, report):
    """One rank runs forward passes with gradients, and no backward pass of them."""
    hook = slow_link(model := wrapped(Net()), "near-lossless")
    for step in range(measured() + TRIED + 4):
        if rank == 0 and step % 3 == 0:
            model(batch(rank, step)[0])
        train_step(model, rank, step)
    spec, error = hook.spec, hook.last_error
    hook.close()
    return spec, error, fingerprint(model)


def test_a_forward_pass_of_one_rank_alone():
    first, second = results(look, 2)
    assert first == second
    assert first[:2] == ("direct(bf16)", None)
