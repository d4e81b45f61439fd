"""Error messages for small mistakes: one line, with what to do."""

import contextlib
import logging
import re

import deltawire
import deltawire.torch
import numpy as np
import pytest
import torch
import torch.distributed as dist
from deltawire.torch.core import bootstrap
from models import Net, train_step, wrapped
from ranks import results, started
from sharded import mesh_of, needs_fsdp2
from torch.distributed.fsdp import fully_shard
from watched import logged

NO_STATES = (None, 7, "hook.pt", b"")


def told(action):
    """(type's name, text) of what it raises."""
    try:
        action()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def refused_states(rank, world_size, report):
    ddp = wrapped(Net())
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with contextlib.closing(deltawire.torch.register(ddp, "3lc")) as hook:
        found = [told(lambda state=state: hook.load_state_dict(state)) for state in NO_STATES]
        with deltawire.torch.LocalSteps(model, optimizer, "3lc", steps=2) as trainer:
            for state in NO_STATES:
                dist.barrier()
                found.append(told(lambda state=state: trainer.load_state_dict(state)))
        return found


def test_no_state_is_refused_by_name():
    for found in results(refused_states, 2):
        kinds = [type(state).__name__ for state in NO_STATES]
        assert [name for name, _ in found] == ["InvalidArgumentError"] * len(found)
        for (_, text), kind in zip(found, kinds * 2, strict=True):
            assert text == f"a state is what state_dict() or save() gave, not {kind}"


def test_a_folder_without_a_checkpoint_is_named(tmp_path):
    with pytest.raises(deltawire.DeltawireError, match="give the folder that save") as caught:
        deltawire.torch.saved_states(tmp_path / "none")
    assert caught.value.code == "Io" and str(tmp_path / "none") in str(caught.value)


@pytest.mark.parametrize("thing", [3, None, b"fp32", {"rest": "fp32"}])
def test_a_spec_is_text(thing):
    for call in (
        lambda: deltawire.canonical_spec(thing),
        lambda: deltawire.Channel(thing),
        lambda: deltawire.encode(np.zeros(3, np.float32), thing),
        lambda: deltawire.Session(thing, rank=0, world_size=1),
        lambda: deltawire.torch.explain(Net(), thing),
    ):
        with pytest.raises(
            TypeError, match=f"a spec is text, such as .*, not {type(thing).__name__}$"
        ):
            call()


def test_a_group_may_be_the_ranks_of_a_host(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    host = deltawire.canonical_spec("hierarchical:group=host,within=bf16(3lc)")
    assert host == deltawire.canonical_spec("hierarchical:group=4,within=bf16(3lc)")
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    with pytest.raises(ValueError, match="LOCAL_WORLD_SIZE"):
        deltawire.canonical_spec("hierarchical:group=host(3lc)")


def after_close(rank, world_size, report):
    ddp = wrapped(Net())
    hook = deltawire.torch.register(ddp, "3lc")
    train_step(ddp, rank, 0)
    hook.close()
    return told(lambda: train_step(ddp, rank, 1))


def test_after_close_the_error_says_how_to_go_on():
    for kind, text in results(after_close, 2):
        assert kind == "DeltawireError"
        assert "the hook is closed; DDP keeps its hook, so wrap the module in a new" in text


def misspelt(rank, world_size, report):
    kept = logged(logging.WARNING)
    rules = "direct(layer.*.weight: 3lc, layers.0.0.bias: bf16, elements>=10: fp16, rest fp32)"
    deltawire.torch.register(wrapped(Net()), rules).close()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    deltawire.torch.LocalSteps(model, optimizer, "direct(conv?: 3lc, rest fp32)", steps=2).close()
    return kept


def test_a_rule_that_fits_no_tensor_is_named_once():
    lines, others = results(misspelt, 2)
    assert others == []
    first, second = lines
    assert first.startswith("the rule 'layer.*.weight: 3lc")
    assert "none of the 12 tensors, which are named like 'layers.0.0.weight', 'layers." in first
    assert second.startswith("the rule 'conv?: 3lc")


def not_finite(rank, world_size, report, spec):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = deltawire.torch.LocalSteps(model, optimizer, spec, steps=1)
    model(torch.ones(2, 64)).sum().backward()
    if rank == 0:
        next(model.parameters()).grad[0] = torch.nan
    return told(trainer.step)


@pytest.mark.parametrize("spec", ["3lc", "powersgd:rank=1"])
def test_advice_about_nan_does_not_contradict_itself(spec):
    for _, text in results(not_finite, 2, spec):
        assert "LocalSteps lets none pass" in text and "let such steps pass" not in text


def diverged(rank, world_size, report):
    """What a NaN says with a codec that sends late, without and with optimizer=."""
    found = []
    for given in (False, True):
        ddp = wrapped(Net())
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
        also = {"optimizer": optimizer} if given else {}
        with contextlib.closing(deltawire.torch.register(ddp, "topk:k=1%", **also)) as hook:
            told(lambda ddp=ddp: (ddp(torch.ones(2, 64)).sum() * torch.nan).backward())
            found.append(str(hook.last_error))
    return found


def test_advice_about_nan_begins_with_momentum():
    for without, given in results(diverged, 2):
        assert without.index("give register optimizer=") < without.index('nonfinite="pass"')
        assert "momentum" in without and "momentum" not in given


def on_meta(rank, world_size, report):
    with torch.device("meta"):
        model, sharded = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    fully_shard(sharded, mesh=mesh_of(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [
        told(lambda: deltawire.torch.register(sharded, "3lc")),
        told(lambda: deltawire.torch.LocalSteps(model, optimizer, "3lc", steps=2)),
        told(lambda: deltawire.torch.ParameterServer(model, optimizer, "3lc", servers=1)),
    ]


@needs_fsdp2
def test_a_model_without_values_is_said_to_be_so():
    for found in results(on_meta, 2):
        for kind, text in found:
            assert kind == "DTypeError" and 'is on the device "meta" and has no values yet' in text
            assert "to_empty" in text and "mp_policy" not in text


def late(rank, world_size, report):
    """Rank 1 comes when rank 0 has said that it waits for it."""
    bootstrap._FIRST_NEWS_AFTER = 0.1
    store = dist.distributed_c10d._get_default_store()
    kept, ddp = logged(logging.WARNING), wrapped(Net())
    if rank == 1:
        store.get("said")
    else:
        tells = logging.Handler(logging.WARNING)
        tells.emit = lambda _: store.clone().set("said", "yes")
        logging.getLogger("deltawire").addHandler(tells)
    deltawire.torch.register(ddp, "3lc").close()
    return kept


needs_clones = pytest.mark.skipif(
    not hasattr(dist.Store, "clone"), reason="without Store.clone nobody is named"
)


@needs_clones
def test_a_rank_that_does_not_register_is_named_while_the_others_wait():
    lines, _ = results(late, 2)
    assert re.match(r"rank 0 has waited 0 s for rank 1 to make the same call \(register", lines[0])


def never(rank, world_size, report):
    """Rank 1 never registers: the group's timeout ends the wait of rank 0."""
    from datetime import timedelta

    ddp = wrapped(Net(), process_group=dist.new_group(timeout=timedelta(seconds=3)))
    if rank == 1:
        report("gone on without")
        return None
    return told(lambda: deltawire.torch.register(ddp, "3lc"))


@needs_clones
def test_a_rank_that_never_registers_is_named_when_the_group_gives_up():
    with started(never, 2) as ranks:
        outcomes = ranks.outcomes(timeout=100)
    kind, text = outcomes[0].value
    assert kind == "DeltawireError"
    assert text.startswith("rank 1 never made the call in which rank 0 waited")
