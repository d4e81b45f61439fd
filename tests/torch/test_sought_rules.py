"""An Adam that register was not given is stepped by exact mean squares once it has been seen."""

import contextlib
import copy
import logging
import warnings

import deltawire.torch
import torch
from models import Net, backward, batch, fingerprint, steps_by, wrapped
from ranks import results
from test_line_energies import AT_ONCE, OF_BFLOAT16, apart, exact_squares, received
from watched import logged

AdamW = torch.optim.AdamW


@contextlib.contextmanager
def registered(made_first=True, first=0, state=None):
    """(Model, optimizer, hook.) A step before the first one of the optimizer is skipped."""
    model = wrapped(Net())
    optimizer = AdamW(model.parameters(), lr=0.01) if made_first else None
    with contextlib.closing(deltawire.torch.register(model, AT_ONCE)) as hook:
        optimizer = optimizer or AdamW(model.parameters(), lr=0.01)
        if state is not None:
            for each, own in zip((model, optimizer, hook), state, strict=True):
                each.load_state_dict(own)
        backward(model, 0, first)  # as with a GradScaler, whose first scale is too high
        yield model, optimizer, hook


def found(rank, world_size, report):
    """Of optimizers made before and after register: how far mean squares are from the exact ones,
    and second moments from theirs in the second step; what is said; the table; the weights."""
    ends = []
    for made_first in (True, False):
        texts = logged(logging.WARNING)
        with registered(made_first) as (model, optimizer, hook):
            assert not hook.optimizer_rules.held
            backward(model, rank, 1)
            optimizer.step()
            exact = exact_squares(model, world_size, [2])
            backward(model, rank, 2)
            difference = apart(received(hook), exact)
            optimizer.step()
            weight = model.module.layers[0][0].weight
            second = optimizer.state[weight]["exp_avg_sq"].mean(1) / (1 - 0.999**2)
            second = (second / exact["layers.0.0.weight"][: len(second)] - 1).abs().max().item()
            backward(model, rank, 3)
            optimizer.step()
            state = copy.deepcopy([each.state_dict() for each in (model, optimizer, hook)])
            ends.append((difference, second, [*texts], str(hook.explain()), fingerprint(model)))
        assert not optimizer._optimizer_step_pre_hooks, "close() leaves it as it was"
    with registered(first=4, state=state) as (model, optimizer, hook):
        before = squares_of(optimizer)
        optimizer.step()
        kept = all(map(torch.allclose, before, squares_of(optimizer)))
        assert "factored second moment" in str(hook.explain())
    return ends, kept


def squares_of(optimizer):
    """The second moments as steps use them, of matrices."""
    states = [each for each in optimizer.state.values() if each["exp_avg"].dim() > 1]
    return [each["exp_avg_sq"] / (1 - 0.999 ** each["step"].item()) for each in states]


def test_the_adam_that_first_steps_the_model_is_stepped_factored():
    ranks = results(found, 2)
    digests = {end[-1] for ends, _ in ranks for end in ends}
    assert len(digests) == 1, "replicas differ, or it matters when the optimizer is made"
    for rank, (ends, kept) in enumerate(ranks):
        for difference, second, texts, table, _ in ends:
            assert max(difference, second) < OF_BFLOAT16
            assert "beta1 0.5; factored second moment" in table
            assert len(texts) == (rank == 0)
            assert all("AdamW steps 6 of 12 tensors" in text for text in texts)
            assert all('momentum="optimizer": it is left alone' in text for text in texts)
        assert kept, "a step without mean squares has changed what a checkpoint has brought"


def finer(rank, world_size, report):
    """The weights by each of these specs, where the optimizer first steps by gradients of zero, of
    which nothing is sent and nothing waits."""
    ends = []
    at_once = [AT_ONCE.replace("3lc", f"3lc{pull}") for pull in ("", ":pull=0.5", ":pull=1")]
    for spec in ("3lc", "step<25: fp4, rest 3lc", *at_once):
        model = wrapped(Net())
        optimizer = AdamW(model.parameters(), lr=0.01)
        with contextlib.closing(deltawire.torch.register(model, spec)):
            (0 * model(batch(rank, 0)[0])).sum().backward()
            optimizer.step()
            steps_by(optimizer, model, rank, range(1, 4))
        ends.append(fingerprint(model))
    return ends


def test_first_steps_and_means_are_finer_from_the_first_step_on():
    for first, given_first, found, from_the_start, coarse in results(finer, 2):
        assert first == given_first != found == from_the_start != coarse


def several(rank, world_size, report):
    """Of an AdamW beside other optimizers, whatever steps first: what is said, the tensors that are
    stepped by its rule, the weights, and how far a second moment is from the exact squares that
    came first, in the second step."""
    ends = []
    for is_first, kind in ((True, AdamW), (True, torch.optim.Muon), (False, torch.optim.Muon)):
        texts = logged(logging.WARNING)
        model = wrapped(Net())
        matrices = [p for p in model.parameters() if p.dim() == 2]
        others = [p for p in model.parameters() if p.dim() != 2]
        optimizers = [AdamW([*others, *matrices[:2]], lr=0.01), kind(matrices[2:], lr=0.01)]
        with contextlib.closing(deltawire.torch.register(model, AT_ONCE, min_elements=2)) as hook:
            for step in range(3):
                backward(model, rank, step)
                for each in optimizers if is_first else reversed(optimizers):
                    each.step()
                if step == 1:
                    exact = hook.optimizer_rules.received[id(matrices[0])].squares
                    second = optimizers[0].state[matrices[0]]["exp_avg_sq"].mean(1)
                    apart = (second / exact[: len(second)] / (1 - 0.999**2) - 1).abs().max().item()
                rows = [row for row in hook.explain().rows if row.factored_second_moment]
            ends.append(([*texts], len(rows), fingerprint(model), apart))
    return ends


def test_of_several_optimizers_those_that_need_it_are_stepped_factored():
    ranks = results(several, 2)
    assert [end[1:] for end in ranks[0]] == [end[1:] for end in ranks[1]], "replicas differ"
    for rank, ends in enumerate(ranks):
        assert [rows for _, rows, *_ in ends] == [12, 8, 8]
        assert all(apart < OF_BFLOAT16 for *_, apart in ends)
        for (texts, *_), steps in zip(ends, ((8, 4), (8,), (8,)), strict=True):
            told = [f"AdamW steps {count} of 12 tensors" for count in steps]
            assert len(texts) == (rank == 0)
            assert all(words in text for text in texts for words in told)


def not_taken(rank, world_size, report):
    """What is said of other optimizers; and whether one of them costs bytes."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # it takes a while

    told = {}
    ways = {
        "sgd": lambda p: [torch.optim.SGD(p, lr=0.01, momentum=0.9)],
        "amsgrad": lambda p: [AdamW(p, lr=0.01, amsgrad=True)],
        "share": lambda p: [AdamW(p[:4] if torch.distributed.get_rank() else p[4:], lr=0.01)],
        "zero": lambda p: [ZeroRedundancyOptimizer(p, AdamW, lr=0.01)],
        "kept": lambda p: [AdamW(p, lr=0.01)],
    }
    for name, make in ways.items():
        model = wrapped(Net())
        given = {"momentum": "optimizer"} if name == "kept" else {}
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.closing(deltawire.torch.register(model, "3lc", **given)) as hook,
        ):
            warnings.simplefilter("always")
            optimizers = make(list(model.parameters()))
            for step in range(3):
                backward(model, rank, step)
                for each in optimizers:
                    each.step()
            is_factored = "second moment" in str(hook.explain())
        heard = [str(w.message) for w in caught if w.category is deltawire.torch.MomentumWarning]
        told[name] = heard, is_factored, fingerprint(model)
    return told


def test_what_is_not_taken_is_said_in_words():
    told, silent = results(not_taken, 2)
    assert all(heard == [] for heard, *_ in silent.values())
    assert all(told[name][2] == silent[name][2] for name in told.keys() - {"share"})
    assert not any(factored for _, factored, _ in (told | silent).values())
    for name, words in (
        ("amsgrad", "AdamW has amsgrad=True"),
        ("share", "the optimizers that step the model have 8 of 12 tensors"),
        ("zero", "ZeroRedundancyOptimizer steps a share of the model"),
    ):
        ((text,), *_) = told[name]
        assert "AdamW's second moment" in text and "LeNet-5 lost 8 points" in text, name
        assert "Write register(model, spec, optimizer=optimizer)" in text, name
        assert words in text and "\n" not in text, name
    assert told["sgd"][0] == told["kept"][0] == []
