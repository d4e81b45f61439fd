"""Gradients of a sharded model through memory of the hook's own, as those of a model on a GPU: the
same way is forced upon CPU tensors."""

import os
import signal
import threading

import deltawire.torch
import pytest
import torch
from deltawire.errors import DeltawireError
from deltawire.torch.core.checkpoint import kept_of
from host_twin import WAYS
from ranks import AT_ONCE, results, started
from sharded import Uneven, cut, fingerprint, loss_of, mesh_of, needs_fsdp2, train_step
from torch.distributed.fsdp import MixedPrecisionPolicy
from watched import Watched

pytestmark = needs_fsdp2
REDUCED = [None, torch.bfloat16, torch.float16]  # fp16: torch reads it in the backward pass


def registered(force, spec, reduce=None, **options):
    model = cut(Uneven(), mesh_of(2, 1), mp_policy=MixedPrecisionPolicy(None, reduce))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", force)
        return model, deltawire.torch.register(model, spec, min_elements=0, **options)


def train(rank, world_size, report, force):
    found = []
    for reduce in REDUCED:
        for options in ({}, {"nonfinite": "pass"}):
            model, hook = registered(force, "3lc", reduce, **options)
            watched = hook._session = Watched(hook._session)
            for step in range(3):
                train_step(model, rank, step)
            loss_of(model, rank, 3).backward()  # adds to gradients: torch looks at them at once
            sums = [
                p.grad.to_local().double().sum().item()
                for p in model.parameters()
                if p.grad is not None
            ]
            bucket_memory = hook._staging._block
            hook.close()
            names = {"staging" if "staging" in each else "own" for each in watched.threads}
            left = [each.name for each in threading.enumerate() if "staging" in each.name]
            found.append(((fingerprint(model), sums), names, bucket_memory is not None, left))
    return found


def test_staged_gradients_of_shards_are_the_same():
    plain, staged = results(train, 2, "off"), results(train, 2, "on")
    for ours, theirs in zip(plain, staged, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one[0] == other[0]
            assert one[1:3] == ({"own"}, False) and other[1:3] == ({"staging"}, True)
            assert not other[3]


def broken(rank, world_size, report):
    """Rank 1's session refuses a bucket, in the thread of copies."""
    model, hook = registered("on", "fp32", timeout=20)
    train_step(model, rank, 0)

    class Broken(Watched):
        def submit(self, *args):
            if not self.threads:
                self.threads.add("once")
                raise OSError("the host is full")
            self.session.submit(*args)

    if rank == 1:
        hook._session = Broken(hook._session)
    caught = None
    try:
        train_step(model, rank, 1)
    except DeltawireError as error:
        caught = error
    hook.close()
    return caught.code, caught.suspect, "the host is full" in str(caught)


def killed(rank):
    """Whom rank 0 blames for the end of rank 1, and whether the step has left no trace; where a
    device codes, if one can be played here."""
    model, hook = registered("off", "3lc", twins=WAYS[-1], timeout=60)
    for step in range(2):
        train_step(model, rank, step)
    before = kept_of(hook.state_dict(), rank, "residuals")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(DeltawireError) as caught:
        train_step(model, rank, 2)
    after = kept_of(hook.state_dict(), rank, "residuals")
    hook.close()
    return caught.value.suspect, torch.equal(before, after)


def break_and_kill(rank, world_size, report):
    report(broken(rank, world_size, report))
    return killed(rank)


def test_an_error_of_the_thread_and_a_killed_rank_reach_backward():
    with started(break_and_kill, 2) as ranks:
        assert [ranks.hear(rank) for rank in range(2)] == [("Aborted", 1, True)] * 2
        outcome = ranks.outcomes([0], timeout=AT_ONCE)[0]
    assert outcome.value == (1, True), outcome.text
