"""Rank 0 warns once if gradients arrive late and the optimizer has momentum."""

import contextlib
import functools
import gc
import warnings
import weakref

import deltawire.torch
import pytest
import torch
from deltawire import _core
from deltawire.torch import MomentumWarning
from deltawire.torch.core.optimizer_rules import momentum_advice
from models import Net, train_step, wrapped
from ports import kept_port
from ranks import results
from torch.optim import optimizer as torch_optimizers
from watched import logged

SGD = torch.optim.SGD


def canonical(spec):
    return _core.Spec(spec)


def trained(rank, world_size, report, spec, momentum):
    """What three steps warn of, (text, where from), and how many models are watched then."""
    ddp = wrapped(Net())
    other = torch.nn.Linear(2, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.closing(deltawire.torch.register(ddp, spec)):
            optimizer = SGD(ddp.parameters(), lr=0.01, momentum=momentum)
            others = SGD(other.parameters(), lr=0.01, momentum=0.9)
            for step in range(3):
                train_step(ddp, rank, step)
                other(torch.ones(2)).sum().backward()
                others.step()  # of another model's
                optimizer.step()
    told = [(str(w.message), w.filename) for w in caught if w.category is MomentumWarning]
    assert len(torch_optimizers._global_optimizer_pre_hooks) == (rank == 0)
    return told, len(momentum_advice._watches)


def test_register_says_once_on_rank_0_what_to_do():
    (told, left), (silent, _) = results(trained, 2, "topk:k=1%", 0.9)
    ((text, file),) = told
    assert (left, silent) == (0, [])
    assert file == __file__  # the line that steps the optimizer
    assert "'topk:k=0.01" in text and "momentum=0.9 of SGD" in text and "\n" not in text
    assert "Write register(model, spec, optimizer=optimizer); or give SGD momentum=0" in text
    assert "and 5 times the learning rate" in text
    assert "'... with momentum=0.9'" in text and "LocalSteps" in text


def test_without_momentum_nothing_is_said_and_nothing_is_left():
    assert results(trained, 2, "topk:k=1%", 0.0) == [([], 0)] * 2


def unfrozen(rank, world_size, report):
    """What is heard while layers join the optimizer that has the rule, and then of another one."""
    model = wrapped(Net())
    parameters = list(model.parameters())
    optimizer = SGD(parameters[:4], lr=0.01, momentum=0.9)
    told = []
    with contextlib.closing(deltawire.torch.register(model, "topk:k=1%", optimizer=optimizer)):
        optimizer.add_param_group({"params": parameters[4:8]})
        for each in (optimizer, SGD(parameters[8:], lr=0.01, momentum=0.9)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for step in range(2):
                    train_step(model, rank, step)
                    each.step()
            told.append([w.category for w in caught])
        return told, len(momentum_advice._watches)


def test_what_the_rules_optimizer_gets_later_is_provided_for():
    assert results(unfrozen, 2) == [([[], [MomentumWarning]], 0), ([[], []], 0)]


def forgotten(rank, world_size, report):
    """Whether a watch that waits for other optimizers keeps one that had its rule."""
    model = wrapped(Net())
    optimizer = SGD(list(model.parameters())[:4], lr=0.01, momentum=0.9)
    deltawire.torch.register(model, "topk:k=1%", optimizer=optimizer).close()
    kept = weakref.ref(optimizer)
    del model, optimizer
    gc.collect()
    return kept() is None


def test_a_watch_keeps_no_optimizer():
    assert results(forgotten, 2) == [True, True]


def several(rank, world_size, report):
    """Two models that are watched, and a hook of the user's behind ours."""
    models = [wrapped(Net()) for _ in range(3)]
    hooks = [deltawire.torch.register(model, "topk:k=1%") for model in models]
    optimizers = [SGD(model.parameters(), lr=0.01, momentum=0.9) for model in models]
    seen = []
    torch_optimizers.register_optimizer_step_pre_hook(lambda *_: seen.append(1))
    for model, optimizer in zip(models, optimizers, strict=True):
        train_step(model, rank, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
    for hook in hooks:
        hook.close()
    return len(seen), len(momentum_advice._watches)


def test_to_have_looked_ends_no_step():
    assert results(several, 2) == [(3, 0)] * 2


def announced(rank, world_size, report):
    """What rank 0 logs of a hook without optimizer=, and of a trainer."""
    texts = logged()
    deltawire.torch.register(wrapped(Net()), "int8").close()
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    deltawire.torch.LocalSteps(model, optimizer, "sbc:p=1%", steps=10, outer="nesterov").close()
    return [text for text in texts if "exchange" in text]


def test_rank_0_says_what_will_happen():
    (of_hook, of_trainer), silent = results(announced, 2)
    assert silent == []
    assert of_hook.startswith("direct(int8") and of_hook.endswith("; optimizers are left alone")
    assert "exchanges 12 tensors, 99,840 bytes a step" in of_hook
    assert of_trainer.startswith("SGD steps 12 tensors on each rank; after 10 steps their changes")
    assert "by gather(sbc:p=0.01" in of_trainer and "outer optimizer: SGD" in of_trainer
    assert of_trainer.endswith("momentum of what was sent becomes 0")


def local(rank, world_size, report, spec, outer=None, steps=10):
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with deltawire.torch.LocalSteps(model, optimizer, spec, steps=steps, outer=outer):
            pass
    return [(str(w.message), w.filename) for w in caught if w.category is MomentumWarning]


def test_local_steps_say_so_of_single_steps():
    ((_, file),), silent = results(local, 2, "sbc:p=1%", None, 1)
    assert (file, silent) == (__file__, [])
    assert results(local, 2, "sbc:p=1%") == [[], []]


def test_local_steps_say_so_of_an_outer_momentum():
    (told,), silent = results(local, 2, "sparseloco", "nesterov")
    text, file = told
    assert "'topk:k=" in text and "momentum=0.9 of the outer SGD" in text and "\n" not in text
    assert text.endswith('Give outer="rising", or none')
    assert (file, silent) == (__file__, [])
    assert results(local, 2, "sparseloco", functools.partial(SGD, lr=4.0)) == [[], []]
    assert results(local, 2, "3lc", "nesterov") == [[], []]


@pytest.mark.parametrize(
    ("spec", "momentum", "words"),
    [
        *((spec, 0.9, "sends most of a gradient in later steps")
          for spec in ("topk", "sbc", "dropping", "randomk", "onebit", "signsgd", "twobit")),
        ("gather(conv*: topk:k=1%, rest fp32)", 0.5, "1 times the learning rate"),
        ("sparseloco", 0.9, "sends most of a gradient in later steps"),
        ("step<500: onebit, rest 3lc", 0.99, "50 times the learning rate"),
        ("dgc:p=1%", 0.9, "has momentum before the codec"),
        ("3lc with momentum=0.9", 0.9, "give SGD momentum=0"),
        ("3lc:s=1.75", 0.9, "lost 14 points"),
        *((spec, 0.9, None) for spec in ("fp32", "3lc", "powersgd:rank=4", "gcomp",
                                         "threshold", "signsgd:feedback=off", "fastsgd",
                                         "muloco", "topk:k=50%", "randomk:unbiased=on")),
        ("gather(topk*: fp32, rest fastsgd)", 0.9, None),  # a tensor's name
        ("topk", 0.0, None),
        ("dgc:p=1%", 0.0, None),
    ],
)  # fmt: skip
def test_which_codecs_do_not_go_with_momentum(spec, momentum, words):
    model = torch.nn.Linear(3, 3)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=momentum)
    of_others = list(momentum_advice._watches)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        momentum_advice.watch(canonical(spec), model.parameters(), 0)
        optimizer.step()
        optimizer.step()
    assert momentum_advice._watches == of_others
    if words is None:
        assert not caught
    else:
        (told,) = caught
        assert told.category is MomentumWarning and words in str(told.message)


def test_two_optimizers_are_warned_of_once():
    model = torch.nn.Linear(3, 3)
    momentum_advice.watch(canonical("topk"), model.parameters(), 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for each in model.parameters():
            SGD([each], lr=0.1, momentum=0.9).step()
    assert [each.category for each in caught] == [MomentumWarning]


def test_a_model_that_is_gone_is_watched_no_longer():
    model = torch.nn.Linear(3, 3)
    momentum_advice.watch(canonical("topk"), model.parameters(), 0)
    hooks = list(torch_optimizers._global_optimizer_pre_hooks.values())
    assert hooks.count(momentum_advice._look) == 1
    watch = momentum_advice._watches[-1]
    del model
    SGD(torch.nn.Linear(3, 3).parameters(), lr=0.1, momentum=0.9).step()
    assert watch not in momentum_advice._watches


def test_the_warning_can_be_filtered():
    model = torch.nn.Linear(3, 3)
    momentum_advice.watch(canonical("topk"), model.parameters(), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=MomentumWarning)
        SGD(model.parameters(), lr=0.1, momentum=0.9).step()


@pytest.mark.parametrize(
    ("spec", "steps", "given", "words"),
    [
        ("topk:k=1%", 1, None, "multiplies what arrives: such runs diverged"),
        ("topk:k=1%", 2, None, None),
        ("sparseloco", 2, "nesterov", "the outer SGD multiplies what arrives"),
        ("3lc", 1, "nesterov", None),
    ],
)
def test_elastic_local_steps_say_what_local_steps_do(spec, steps, given, words):
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    with warnings.catch_warnings(record=True) as caught, kept_port() as port:
        warnings.simplefilter("always")
        place = {"rank": 0, "world_size": 1, "address": f"127.0.0.1:{port}"}
        token = "a secret of the tests, of no special length"
        deltawire.torch.ElasticLocalSteps(
            model, optimizer, spec, steps=steps, outer=given, token=token, **place
        ).close()
    told = [each for each in caught if each.category is MomentumWarning]
    assert len(told) == (words is not None)
    assert all(words in str(each.message) and each.filename == __file__ for each in told)
