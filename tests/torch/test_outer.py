"""DiLoCo's outer optimizer: the published algorithm written out, any optimizer, checkpoints, and
ranks whose outer optimizers are set differently."""

import functools
import time

import deltawire
import deltawire.torch
import torch
from deltawire.torch.local import state as local_state
from deltawire.torch.local.outer import Outer, RisingSGD, state_digest
from local_rounds import NESTEROV, changed, mean_of, saved, train
from models import Net, fingerprint, steps_by
from ranks import attempted, results

STEPS = 3
ROUNDS = 4


def diloco_by_hand(rank, world_size, report):
    """Next to the trainer: algorithm 1 with torch's optimizer on the mean of all ranks' outer
    gradients, and with Nesterov's formula in double precision."""
    model, twin = Net(), Net()
    inner, theirs = (torch.optim.AdamW(m.parameters(), lr=2e-3) for m in (model, twin))
    trainer = deltawire.torch.LocalSteps(
        model, inner, "direct(fp32)", steps=STEPS, outer="nesterov", bucket_bytes=40_000
    )
    common = [p.detach().clone() for p in twin.parameters()]
    outer = NESTEROV(common)
    exact = [p.double() for p in common]
    velocity = [torch.zeros_like(p) for p in exact]
    worst = 0.0
    for number in range(ROUNDS):
        steps = range(number * STEPS, (number + 1) * STEPS)
        train(trainer, model, rank, steps)
        steps_by(theirs, twin, rank, steps)
        for i, parameter in enumerate(twin.parameters()):
            common[i].grad = -mean_of(parameter.detach() - common[i])
            velocity[i] = 0.9 * velocity[i] + common[i].grad.double()
            exact[i] -= 0.7 * (common[i].grad.double() + 0.9 * velocity[i])
        outer.step()
        with torch.no_grad():
            torch._foreach_copy_(list(twin.parameters()), common)
        assert fingerprint(model) == fingerprint(twin), f"round {number}"
        gaps = [(a - b).abs().max() for a, b in zip(common, exact, strict=True)]
        worst = max(worst, max(gaps).item())
    trainer.close()
    return fingerprint(model), worst


def test_it_is_diloco_bit_for_bit_with_torchs_optimizer():
    """And within 1e-6 of the formula, for weights of about 0.1."""
    values = results(diloco_by_hand, 3)
    assert len({print_ for print_, _ in values}) == 1
    assert max(worst for _, worst in values) < 1e-6


def outer_optimizers(rank, world_size, report):
    """Weights after each of a few rounds, for each outer optimizer."""
    seen = {}
    for name, outer in {
        "none": None,
        "the mean is added": functools.partial(torch.optim.SGD, lr=1.0),
        "nesterov": "nesterov",
        "rising": "rising",
        "adam": functools.partial(torch.optim.Adam, lr=1e-3),
        "adagrad": functools.partial(torch.optim.Adagrad, lr=1e-3),
        "two rates": lambda weights: torch.optim.SGD(
            [{"params": weights[1:]}, {"params": weights[:1], "lr": 0.1}], lr=0.9
        ),
    }.items():
        model = Net()
        inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        with deltawire.torch.LocalSteps(model, inner, "3lc", steps=2, outer=outer) as trainer:
            assert trainer.outer is None if outer is None else trainer.outer.param_groups
            prints = []
            for number in range(3):
                train(trainer, model, rank, range(2 * number, 2 * number + 2))
                prints.append(fingerprint(model))
        seen[name] = prints
    return seen


def test_replicas_are_bit_equal_with_any_outer_optimizer():
    first, second = results(outer_optimizers, 2)
    assert first == second
    assert first["the mean is added"] == first["none"]
    others = {tuple(prints) for prints in first.values()}
    assert len(others) == len(first) - 1, "two outer optimizers did the same"


def test_a_rising_rate_is_that_of_a_tensors_own_rounds():
    early, late = (torch.zeros(2) for _ in range(2))
    optimizer = RisingSGD([early, late], lr=5.0, first=1.0, rounds=2)
    for given in ((early,), (early, late), (early, late), (early,)):
        for each in (early, late):
            each.grad = -torch.ones(2) if any(each is one for one in given) else None
        optimizer.step()
    assert early.tolist() == [1 + 3 + 5 + 5] * 2 and late.tolist() == [1 + 3] * 2


def make(outer="nesterov", spec="3lc", **options):
    model = Net()
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    return model, deltawire.torch.LocalSteps(
        model, inner, spec, steps=STEPS, outer=outer, **options
    )


def restored_runs(rank, world_size, report):
    adam = functools.partial(torch.optim.Adam, lr=1e-3)
    seen = {}
    for name, outer in {"nesterov": "nesterov", "rising": "rising", "adam": adam}.items():
        model, trainer = make(outer)
        train(trainer, model, rank, range(7))
        trainer.outer.param_groups[0]["lr"] *= 0.5  # as a schedule does
        kept = trainer.state_dict()
        state = torch.load(saved(kept))
        train(trainer, model, rank, range(7, 14))
        straight = fingerprint(model)
        trainer.close()
        model, trainer = make(outer)
        if name == "adam":
            trainer.load_state_dict(kept)  # as it was given: later rounds haven't changed it
        else:
            trainer.load_state_dict(state)
        train(trainer, model, rank, range(7, 14))
        seen[name] = straight, fingerprint(model)
        refused, outer = [], local_state.flat_form(state, rank)["outer"]
        for bad in (
            changed(state, rank, without=("outer",)),
            changed(state, rank, outer=torch.optim.Adagrad(model.parameters()).state_dict()),
            changed(state, rank, outer={**outer, "state": {99: {}}}),
            changed(state, rank, outer={**outer, "param_groups": []}),
            changed(state, rank, outer=other_rate_on_rank_1(outer, rank)),
            changed(state, rank, outer=other_tensor_on_rank_1(outer, rank)),
        ):
            refused.append(attempted(functools.partial(trainer.load_state_dict, bad)))
        assert fingerprint(model) == seen[name][1], "a refused state has changed the weights"
        trainer.close()
    trainer = make(None)[1]
    refused.append(attempted(functools.partial(trainer.load_state_dict, state)))
    trainer.close()
    return seen, refused


def other_rate_on_rank_1(outer, rank):
    groups = [{**group, "lr": group["lr"] + rank} for group in outer["param_groups"]]
    return {**outer, "param_groups": groups}


def other_tensor_on_rank_1(outer, rank):
    first = {key: tensor + rank for key, tensor in outer["state"][0].items()}
    return {**outer, "state": {**outer["state"], 0: first}}


def test_a_restored_outer_optimizer_goes_on_bit_for_bit():
    for seen, refused in results(restored_runs, 2):
        for name, (straight, restored) in seen.items():
            assert straight == restored, name
        kinds, texts, _ = zip(*refused, strict=True)
        print(*texts, sep="\n")
        assert kinds == ("InvalidArgumentError",) * 4 + ("DeltawireError",) * 2 + (
            "InvalidArgumentError",
        )
        assert "lacks outer" in texts[0] and "Adam" in texts[1] and "outer optimizer" in texts[4]
        assert "outer optimizer" in texts[5] and "give it outer=" in texts[6]


def differ(rank, world_size, report, fault):
    """Rank 1's outer optimizer is set otherwise after a round."""
    model, trainer = make()
    train(trainer, model, rank, range(STEPS))
    if rank == 1:
        fault(trainer)
    try:
        train(trainer, model, rank, range(STEPS, 10 * STEPS))
    except (deltawire.DeltawireError, ArithmeticError) as error:
        try:
            state = trainer.state_dict()["round"]
        except deltawire.DeltawireError as refused:
            state = refused.code
        return type(error).__name__, str(error), getattr(error, "suspect", None), state
    return None


def another_rate(trainer):
    trainer.outer.param_groups[0]["lr"] = 0.6


def break_off(trainer):
    def step():
        with torch.no_grad():
            trainer.outer.param_groups[0]["params"][0].add_(1)
        raise ArithmeticError("a bug of the outer optimizer")

    trainer.outer.step = step


def test_outer_optimizers_that_differ_are_noticed_with_the_next_round():
    for kind, text, suspect, rounds in results(differ, 3, another_rate):
        assert kind == "DeltawireError" and suspect == 1 and rounds == 2
        assert "rank 1 holds other means" in text and "other weights" in text
        assert "every rank alike" in text


def test_an_outer_step_that_breaks_off_leaves_no_state_to_save():
    began = time.monotonic()
    first, second = results(differ, 2, break_off)
    assert time.monotonic() - began < 60
    assert second[0] == "ArithmeticError" and second[3] == "State"
    assert first[0] == "DeltawireError" and first[2] == 1 and "a bug of the outer" in first[1]


def test_steps_after_a_load_leave_the_given_state_alone():
    """It may be loaded again, and ranks in one process may load one state."""

    def made():
        return Outer(NESTEROV, [torch.nn.Parameter(torch.ones(3))])

    first, second = made(), made()
    first.step(slice(0, 1), [torch.ones(3)])
    given = first.state()
    before = state_digest(given)
    second.load(given)
    second.step(slice(0, 1), [torch.ones(3)])
    assert state_digest(given) == before != state_digest(second.state())


def attempts(rank, world_size, report, outers):
    model = Net()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    return [
        attempted(
            lambda outer=outer: deltawire.torch.LocalSteps(
                model, inner, "fp32", steps=1, outer=outer
            )
        )
        for outer in (both[rank] for both in outers(inner))
    ]


def bad_outers(inner):
    both = [
        "nestorov",
        inner,
        3,
        torch.optim.LBFGS,
        lambda weights: NESTEROV(weights[1:]),
        lambda weights: weights,
    ]
    return [*((bad, bad) for bad in both), (NESTEROV, functools.partial(NESTEROV, lr=0.6))]


def test_what_is_no_outer_optimizer_is_refused():
    _, caught = results(attempts, 2, bad_outers)
    print(*caught, sep="\n")
    kinds, texts, _ = zip(*caught, strict=True)
    assert kinds == ("InvalidArgumentError",) * 5 + ("DTypeError", "DeltawireError")
    for text, says in zip(
        texts,
        ("(nesterov, rising)", "SGD;", "int;", "LBFGS", "of 11", "list;", "lr': 0.6"),
        strict=True,
    ):
        assert says in text
    assert not any("\n" in text for text in texts)
