"""What the training loop gets to catch, in each of the ways in which DDP calls a hook: the error
itself, typed, and not what torch makes of it."""

import signal

import deltawire
import deltawire.torch
import pytest
import torch
from models import Net, backward, batch, train_step, train_steps, wrapped
from ranks import AT_ONCE, results, started, wait_for_training
from refusals import raised

BAD_STEP = 3  # DDP cuts its buckets anew after the first, and a static graph is known then
UNUSED = {"find_unused_parameters": True}
WAYS = {
    "plain": ("3lc", {}),
    "view": ("3lc", {"gradient_as_bucket_view": True}),
    "unused": ("3lc", UNUSED),
    "static": ("3lc", {"static_graph": True}),
    "auto": ("auto", {}),
}


def nan_on_one(rank, world_size, report):
    seen = {}
    for way, (spec, ddp_options) in WAYS.items():
        model = wrapped(Net(sometimes=ddp_options is UNUSED), **ddp_options)
        hook = deltawire.torch.register(model, spec, timeout=60)
        if spec == "auto":  # as if it had measured, and chosen
            hook._chooser.hook = hook._connector.hook("direct(3lc)", hook._history)
            hook._chooser.enter("compressing")
        train_steps(model, rank, range(BAD_STEP))
        x, y = batch(rank, BAD_STEP)
        with pytest.raises(deltawire.DeltawireError) as caught:
            ((model(x) - y).square().mean() * (float("nan") if rank == 1 else 1.0)).backward()
        again = raised(deltawire.DeltawireError, model, x)
        with torch.no_grad():
            model(x)  # is nobody's concern
        error = caught.value
        assert again is error is hook.last_error
        seen[way] = (error.code, error.suspect, str(error), hook.metrics()["steps"])
        hook.close()
    return seen


def test_backward_raises_the_error_itself():
    first, second = results(nan_on_one, 2)
    for way in WAYS:
        for code, suspect, text, steps in (first[way], second[way]):
            assert suspect == 1 and "\n" not in text and steps == BAD_STEP, way
            assert code in ("NotFinite", "Aborted")
            assert "Traceback" not in text and "callback" not in text
        assert second[way][0] == "NotFinite"


def outside_of_backward(rank, world_size, report):
    """join() calls the hook of a rank that has no data left by itself."""
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc", timeout=60)
    with pytest.raises(RuntimeError) as caught, model.join():
        for step in range(3 if rank == 0 else 1):
            x, y = batch(rank, step)
            model.zero_grad()
            ((model(x) - y).square().mean() * (float("nan") if step == 2 else 1.0)).backward()
    again = raised(deltawire.DeltawireError, backward, model, rank, 3)
    assert again is hook.last_error
    # DDP doesn't wait for its last all-reduce before the hook: who ended now would break it.
    store = torch.distributed.distributed_c10d._get_default_store()
    store.set(f"rank {rank} has failed", "")
    store.wait([f"rank {each} has failed" for each in range(world_size)])
    return type(caught.value).__name__, str(caught.value), str(again)


def test_elsewhere_torchs_error_has_the_text_and_the_next_forward_pass_raises_it_typed():
    first, second = results(outside_of_backward, 2)
    assert first[0] == "DeltawireError" and first[1] == first[2]
    assert second[0] == "RuntimeError" and second[2] in second[1]
    assert "rank 0 reports: " in second[2] and "is NaN" in second[2]


def train_for_ever(rank, world_size, report, ddp_options):
    model = wrapped(Net(sometimes=True), **ddp_options)
    hook = deltawire.torch.register(model, "fp32", timeout=3.0)
    for step in range(100_000):
        if step == BAD_STEP:
            report("training")
        try:
            train_step(model, rank, step)
        except deltawire.DeltawireError as error:
            return error.code, error.suspect, error is hook.last_error
    return None


def test_a_frozen_rank_is_named_by_the_deadline_where_ddp_waits_for_it_too():
    """DDP reduces by itself which parameters were used, under the process group's timeout of 60 s:
    a pass that has failed must not come so far."""
    with started(train_for_ever, 3, UNUSED) as ranks:
        wait_for_training(ranks)
        ranks.signal(1, signal.SIGSTOP)
        outcomes = ranks.outcomes([0, 2], timeout=AT_ONCE)
    for outcome in outcomes.values():
        assert outcome.raised is None and outcome.value[1:] == (1, True), outcome
