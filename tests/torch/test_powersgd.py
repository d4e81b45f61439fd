"""Low-rank factors under DDP: messages get smaller, replicas stay bit-equal, nothing is lost."""

import copy

import deltawire.torch
import torch
from models import Net, backward, fingerprint, train_step, wrapped
from ranks import results

STEPS = 8
SPEC = "powersgd:rank=2(fp32)"


def train(rank, world_size, report, spec):
    model = wrapped(Net(sometimes=True), find_unused_parameters=True)
    hook = deltawire.torch.register(model, spec)
    losses = [train_step(model, rank, step) for step in range(STEPS)]
    metrics = hook.metrics()
    hook.close()
    return fingerprint(model), hook.spec, losses, metrics


def test_replicas_stay_equal_and_messages_small():
    plain = results(train, 3, "fp32")
    first, *others = results(train, 3, "powersgd:rank=2")
    assert first[1] == SPEC
    for other in others:
        assert other[0] == first[0]
    # 2 * (64 + 64) numbers instead of 64 * 64, plus biases and frame headers.
    assert first[3]["total_ratio"] > 6
    assert plain[0][3]["total_ratio"] < 1
    assert first[3]["total_raw_bytes"] == plain[0][3]["total_raw_bytes"]


def goes_on(rank, world_size, report, spec):
    """A state that is saved in the middle and loaded into another hook changes no bit."""
    straight, stopped = wrapped(Net()), wrapped(Net())
    hook = deltawire.torch.register(straight, spec)
    for step in range(STEPS):
        train_step(straight, rank, step)
    hook.close()
    hook = deltawire.torch.register(stopped, spec)
    for step in range(STEPS // 2):
        train_step(stopped, rank, step)
    state = hook.state_dict()
    hook.close()
    resumed = wrapped(copy.deepcopy(stopped.module))
    hook = deltawire.torch.register(resumed, spec)
    hook.load_state_dict(state)
    for step in range(STEPS // 2, STEPS):
        train_step(resumed, rank, step)
    hook.close()
    return fingerprint(straight), fingerprint(resumed)


def test_a_saved_state_goes_on():
    for straight, resumed in results(goes_on, 2, SPEC):
        assert straight == resumed


def summed(rank, world_size, report, spec):
    """The sums of all means, and of plain DDP's, of the same gradients."""
    plain, hooked = wrapped(Net()), wrapped(Net())
    hook = deltawire.torch.register(hooked, spec)
    ours = [torch.zeros_like(p) for p in hooked.parameters()]
    theirs = [torch.zeros_like(p) for p in plain.parameters()]
    for _ in range(60):
        backward(plain, rank, 0)
        backward(hooked, rank, 0)
        for total, p in zip(ours, hooked.parameters(), strict=True):
            total += p.grad
        for total, p in zip(theirs, plain.parameters(), strict=True):
            total += p.grad
    hook.close()
    norms = [(a - b).norm() / b.norm() for a, b in zip(ours, theirs, strict=True)]
    return max(norms).item()


def test_what_is_not_sent_comes_later():
    for missing in results(summed, 2, SPEC):
        assert missing < 0.2
