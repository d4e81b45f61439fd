"""What fails in a native bucket, or beside one: an error on every rank, in time, the same step
stands everywhere, and nothing is lost of it."""

import os
import signal
import time

import deltawire.torch
import pytest
import torch
from deltawire.torch import native
from models import backward, batch
from ranks import AT_ONCE, results, started, wait_for_training
from test_native_buckets import BELOW, Sizes, parted

VICTIM = 1
BAD_STEP = 3
LONG = 60.0  # a timeout that a test never waits for


def dies(real):
    os.kill(os.getpid(), signal.SIGKILL)


def freezes(real):
    os.kill(os.getpid(), signal.SIGSTOP)


def fails(real):
    def burn(done):
        raise RuntimeError("the network card is on fire\nand so on")

    return real().then(burn)


def hangs(real):
    real()  # the others' means come
    return torch.futures.Future()


def train_until_it_fails(rank, world_size, report, fault, timeout, at_bucket):
    """Until `fault` happens to the victim's bucket of the bad step."""
    model = parted(Sizes(native_end=True))
    hook = deltawire.torch.register(model, "3lc", native_below=BELOW, timeout=timeout)
    real, step = native.all_reduce, 0

    def faulty(group, bucket, limit=None):
        if rank == VICTIM and step == BAD_STEP and bucket.index() == at_bucket:
            return globals()[fault](lambda: real(group, bucket, limit))
        return real(group, bucket, limit)

    native.all_reduce = faulty
    error, state = None, None
    for step in range(BAD_STEP + 2):
        x, y = batch(rank, step)
        loss = (model(x) - y).square().mean()
        model.zero_grad()
        if step == BAD_STEP:
            state = hook.state_dict()
            report("training")
        try:
            loss.backward()
        except deltawire.DeltawireError as caught:
            error = caught
            break
    last = hook.last_error
    after = hook.state_dict()
    name = f"rank {rank}"
    kept = torch.equal(after["residuals"][name][0], state["residuals"][name][0])
    began = time.monotonic()
    hook.close()
    took = time.monotonic() - began
    return str(error), str(last), last.code, last.suspect, after["steps"], kept, took


def check(outcomes, says, suspect, within):
    for rank, outcome in sorted(outcomes.items()):
        assert outcome.raised is None, outcome
        shown, last, code, named, steps, kept, closing = outcome.value
        print(f"rank {rank} after {outcome.after:.1f} s [{code}]: {shown}")
        assert last == shown and "\n" not in last, "the training loop sees another message"
        assert says in shown and (named == suspect or suspect is None)
        assert steps == BAD_STEP, "a step that failed counts"
        assert kept, "of the step that failed there is a trace"
        assert outcome.after < within and closing < AT_ONCE


@pytest.mark.parametrize("at_bucket", [0, 4])  # the first and the last, both native
def test_a_rank_that_dies_in_a_native_bucket_is_named_at_once(at_bucket):
    with started(train_until_it_fails, 3, "dies", LONG, at_bucket) as ranks:
        wait_for_training(ranks)
        outcomes = ranks.outcomes([0, 2])
    check(outcomes, f"rank {VICTIM}", VICTIM, AT_ONCE)


@pytest.mark.parametrize("at_bucket", [0, 4])
def test_a_rank_that_freezes_in_a_native_bucket_is_named_at_the_deadline(at_bucket):
    with started(train_until_it_fails, 3, "freezes", 4.0, at_bucket) as ranks:
        wait_for_training(ranks)
        outcomes = ranks.outcomes([0, 2])
    check(outcomes, f"rank {VICTIM}", VICTIM, AT_ONCE + 4)


def test_an_all_reduce_that_fails_on_one_rank_ends_the_step_on_all():
    with started(train_until_it_fails, 3, "fails", LONG, 0) as ranks:
        wait_for_training(ranks)
        outcomes = ranks.outcomes()
    check(outcomes, "the network card is on fire", None, AT_ONCE)


def test_an_all_reduce_that_never_ends_is_an_error_by_the_deadline():
    with started(train_until_it_fails, 3, "hangs", 4.0, 0) as ranks:
        wait_for_training(ranks)
        outcomes = ranks.outcomes()
    check(
        outcomes,
        "rank 1: the native all-reduce of bucket 0 took longer than 4 s",
        None,
        AT_ONCE + 4,
    )


def other_bits(rank, world_size, report):
    """One rank's memory has changed a native mean."""
    model = parted(Sizes())
    hook = deltawire.torch.register(model, "3lc", native_below=BELOW)
    real, step = native.all_reduce, 0

    def flip(done):
        mean = done.value()
        if rank == VICTIM and step == 2:
            mean[3] += 1.0
        return mean

    native.all_reduce = lambda *args: real(*args).then(flip)
    for step in range(4):
        x, y = batch(rank, step)
        try:
            (model(x) - y).square().mean().backward()
        except deltawire.DeltawireError as caught:
            return str(caught), hook.last_error.code, hook.last_error.suspect, step
    return None


def test_native_means_that_differ_count_nowhere():
    for shown, code, suspect, step in results(other_bits, 3):
        assert code == "Mismatch" and suspect == VICTIM and step == 2
        assert "the replicas differ" in shown and "step 1 counts" in shown


def close_amid(rank, world_size, report):
    """One rank's hook is closed while a native bucket is under way."""
    model = parted(Sizes())
    hook = deltawire.torch.register(model, "3lc", native_below=BELOW)
    real, step = native.all_reduce, 0

    def closing(*args):
        if rank == VICTIM and step == 2:
            hook.close()
        return real(*args)

    native.all_reduce = closing
    for step in range(4):
        x, y = batch(rank, step)
        try:
            (model(x) - y).square().mean().backward()
        except deltawire.DeltawireError as caught:
            return str(caught), step
    return None


def test_a_hook_that_is_closed_within_a_step_ends_it_on_all_ranks():
    values = results(close_amid, 2)
    assert all(value is not None and value[1] == 2 for value in values), values
    assert all("closed" in text or "left" in text or "gone" in text for text, _ in values), values


def overflow_unscaled(rank, world_size, report):
    """Without a scaler, one rank has an infinity in a native bucket alone; then in a coded one."""
    model = parted(Sizes())
    hook = deltawire.torch.register(model, "3lc", native_below=BELOW)
    weights = {
        "native": model.module.layers[-1][0].weight,
        "coded": model.module.layers[0][0].weight,
    }
    ready = []
    for kind, weight in weights.items():
        weight.register_hook(lambda g, kind=kind: g * (float("inf") if kind in ready else 1.0))
    seen = []
    for number, overflowing in enumerate(["", "", "native", "coded"]):
        ready[:] = [overflowing] if rank == VICTIM else []
        try:
            backward(model, rank, number)
        except deltawire.DeltawireError as caught:
            return seen, number, str(caught)
        assert hook.last_error is None
        seen.append(bool(torch.isfinite(weights["native"].grad).all()))
    return seen, None, None


def test_what_is_not_finite_passes_in_a_native_bucket_and_ends_a_coded_one():
    for seen, number, error in results(overflow_unscaled, 2):
        assert seen == [True, True, False], "a native bucket is what plain DDP makes of it"
        assert number == 3 and "layers.0.0.weight" in error, error
