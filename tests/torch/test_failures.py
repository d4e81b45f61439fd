"""One rank is killed, frozen, interrupted or raises: the others name it, in time."""

import contextlib
import dataclasses
import os
import signal
import time

import deltawire.torch
import pytest
import torch
from models import DEVICE, Net, batch, train_step, train_steps, wrapped
from ranks import AT_ONCE, results, started, wait_for_training

VICTIM = 1
LONG = 60.0  # a timeout that a test never waits for


@dataclasses.dataclass
class Plan:
    """What the ranks of a failure test do. `fault` runs on the victim after `steps` steps."""

    timeout: float = LONG
    spec: str = "fp32"
    fault: str = ""
    pause: float = 0.0  # seconds between steps
    arrival_timeout: float | None = None
    carrier: str = "tcp"


def raise_outside(hook, model, report):
    """A bug in the training loop; the process lives on."""
    report(time.monotonic())
    try:
        raise ZeroDivisionError("a bug of the training loop")
    except ZeroDivisionError:
        time.sleep(30)


def raise_in_backward(hook, model, report):
    """A bug in the user's autograd code, amid a backward pass; the process ends."""

    def fail(_gradient):
        raise ZeroDivisionError("a bug of the backward pass")

    x, _ = batch(VICTIM, 0)
    y = model.module.layers[2](x.to(DEVICE))
    y.register_hook(fail)
    report("raised")
    y.sum().backward()


def train_on_nan(hook, model, report):
    """A loss that has diverged: 3LC can't carry it."""
    report("nan")
    x, _ = batch(VICTIM, 0)
    (model(x) * float("nan")).sum().backward()


def grow_children(hook, model, report):
    """Like DataLoader workers: forked, alive, and they outlive this rank."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    report(("child", child))


def train_until_it_fails(rank, world_size, report, plan):
    """Trains forever. Returns what the error was, as the training loop and as the hook has it."""
    model = wrapped(Net())
    hook = deltawire.torch.register(
        model,
        plan.spec,
        timeout=plan.timeout,
        arrival_timeout=plan.arrival_timeout,
        carrier=plan.carrier,
    )
    error = None
    for step in range(100_000):
        if step == 3:
            report("training")
            if rank == VICTIM and plan.fault:
                globals()[plan.fault](hook, model, report)
        if plan.pause and step >= 3:
            time.sleep(plan.pause)
        try:
            train_step(model, rank, step)
        except deltawire.DeltawireError as caught:
            error = caught
            break
    last = hook.last_error
    began = time.monotonic()
    hook.close()
    return {
        "shown": str(error),
        "code": last.code,
        "suspect": last.suspect,
        "last": str(last),
        "stands": last.last_committed_step,
        "close_s": time.monotonic() - began,
    }


def check_survivors(outcomes, within, codes, since=None):
    """`within`: seconds after `since`, or after the test began to wait."""
    for rank, outcome in sorted(outcomes.items()):
        assert outcome.raised is None, outcome
        value = outcome.value
        after = outcome.after if since is None else outcome.at - since
        print(f"rank {rank} after {after:.2f} s [{value['code']}]: {value['shown']}")
        assert value["suspect"] == VICTIM
        assert value["code"] in codes
        assert f"rank {VICTIM}" in value["shown"]
        assert value["last"] == value["shown"], "the training loop sees another message"
        assert within[0] <= after <= within[1]
        assert value["close_s"] < AT_ONCE
    assert len({outcome.value["stands"] for outcome in outcomes.values()}) == 1
    assert value["stands"] >= 2 and f"step {value['stands']} counts" in value["shown"]


def others(world_size):
    return [rank for rank in range(world_size) if rank != VICTIM]


@pytest.mark.parametrize(("world_size", "carrier"), [(2, "tcp"), (4, "tcp"), (3, "group")])
def test_a_killed_rank_with_living_children_is_named_at_once(world_size, carrier):
    plan = Plan(fault="grow_children", carrier=carrier)
    with started(train_until_it_fails, world_size, plan) as ranks:
        wait_for_training(ranks)
        _, child = ranks.hear(VICTIM)
        try:
            ranks.signal(VICTIM, signal.SIGKILL)
            outcomes = ranks.outcomes(others(world_size))
            os.kill(child, 0)  # the child has been alive all the time
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    check_survivors(outcomes, (0, AT_ONCE), {"PeerLost", "Aborted"})


@pytest.mark.parametrize("carrier", ["tcp", "group"])
def test_a_frozen_rank_is_named_by_all_at_the_deadline(carrier):
    with started(train_until_it_fails, 3, Plan(timeout=6.0, carrier=carrier)) as ranks:
        wait_for_training(ranks)
        since = time.monotonic()
        ranks.signal(VICTIM, signal.SIGSTOP)
        outcomes = ranks.outcomes(others(3))
    check_survivors(outcomes, (3.2, AT_ONCE), {"Timeout"}, since)


def test_a_rank_that_raises_and_lives_on_is_named_at_the_deadline():
    with started(
        train_until_it_fails, 3, Plan(timeout=3.0, arrival_timeout=3.0, fault="raise_outside")
    ) as ranks:
        assert ranks.hear(VICTIM) == "training"
        since = ranks.hear(VICTIM)
        outcomes = ranks.outcomes(others(3))
    check_survivors(outcomes, (1.5, AT_ONCE), {"Timeout"}, since)


def evaluate_alone(rank, world_size, report):
    """Rank 0 does something else for longer than the timeout; the others wait for it."""
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc", timeout=2.0)
    for step in range(3):
        if rank == 0 and step == 2:
            time.sleep(5)
        train_step(model, rank, step)
    return hook.last_error


def test_a_rank_that_evaluates_alone_is_waited_for():
    assert results(evaluate_alone, 3) == [None] * 3


def test_a_rank_that_raises_and_ends_is_named_at_once():
    with started(train_until_it_fails, 3, Plan(fault="raise_in_backward")) as ranks:
        assert [ranks.hear(VICTIM), ranks.hear(VICTIM)] == ["training", "raised"]
        own = ranks.outcomes([VICTIM])[VICTIM]
        outcomes = ranks.outcomes(others(3))
    assert own.raised == "ZeroDivisionError"
    check_survivors(outcomes, (0, AT_ONCE), {"PeerLost", "Aborted"})


def test_a_rank_whose_hook_fails_is_named_at_once_everywhere():
    plan = Plan(spec="3lc", fault="train_on_nan")
    with started(train_until_it_fails, 3, plan) as ranks:
        assert [ranks.hear(VICTIM), ranks.hear(VICTIM)] == ["training", "nan"]
        outcomes = ranks.outcomes()
    own = outcomes.pop(VICTIM)
    assert own.raised == "DeltawireError" and "is NaN" in own.text
    check_survivors(outcomes, (0, AT_ONCE), {"NotFinite", "Aborted"})


def test_frozen_and_thawed_rank_fails_too():
    """It finds itself expelled, instead of training on alone."""
    with started(train_until_it_fails, 3, Plan(timeout=2.0)) as ranks:
        wait_for_training(ranks)
        ranks.signal(VICTIM, signal.SIGSTOP)
        ranks.outcomes(others(3))
        ranks.signal(VICTIM, signal.SIGCONT)
        own = ranks.outcomes([VICTIM])[VICTIM]
    assert own.raised is None and own.value["code"] in {"Timeout", "Aborted", "PeerLost"}, own


def wait_for_a_slow_rank(rank, world_size, report):
    """Rank 0 waits for the test, so that the others wait in backward when Ctrl-C comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "fp32", timeout=LONG)
    train_steps(model, rank, range(3))
    report("training")
    if rank == 0:
        assert signal.sigtimedwait({signal.SIGUSR1}, LONG / 2)
    try:
        try:
            train_step(model, rank, 3)
        except RuntimeError as error:  # where Ctrl-C was pressed, Python's own word may come here
            return type(error).__name__, str(error), hook.last_error.code, hook.last_error.suspect
    except KeyboardInterrupt:
        last = hook.last_error
        return "KeyboardInterrupt", "", last.code if last else None, last.suspect if last else None
    return None


def test_ctrl_c_on_one_rank_ends_all():
    with started(wait_for_a_slow_rank, 3) as ranks:
        wait_for_training(ranks)
        ranks.until_it_waits(VICTIM)
        ranks.until_it_waits(2)
        ranks.signal(VICTIM, signal.SIGINT)
        quick = ranks.outcomes([1, 2])
        ranks.signal(0, signal.SIGUSR1)
        slow = ranks.outcomes([0])
    print({rank: (o.raised, o.text, o.value, o.after) for rank, o in {**quick, **slow}.items()})
    assert quick[VICTIM].value[0] == "KeyboardInterrupt" and quick[VICTIM].after < AT_ONCE
    for outcome in (quick[2], slow[0]):
        kind, text, code, suspect = outcome.value
        assert (kind, code, suspect) == ("DeltawireError", "Aborted", VICTIM)
        assert f"interrupted on rank {VICTIM}" in text
    assert quick[2].after < AT_ONCE


def own_handler(rank, world_size, report):
    """A program that finishes its step on Ctrl-C: nothing may be aborted. All train until then, and
    some steps more."""
    asked = []
    signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "fp32", timeout=LONG)
    report("training")
    everybody = torch.zeros(1)
    for step in range(100_000):
        train_step(model, rank, step)
        everybody.fill_(len(asked))
        torch.distributed.all_reduce(everybody)
        if everybody:
            break
    for more in range(20):
        train_step(model, rank, step + 1 + more)
    return len(asked), hook.last_error, signal.set_wakeup_fd(-1) >= 0


def test_a_handler_of_the_program_keeps_the_last_word():
    with started(own_handler, 2) as ranks:
        wait_for_training(ranks)
        ranks.signal(VICTIM, signal.SIGINT)
        outcomes = ranks.outcomes()
    assert outcomes[VICTIM].value[:2] == (1, None), outcomes
    assert outcomes[0].value[:2] == (0, None)
    assert outcomes[0].value[2], "no wakeup descriptor was set: nothing was tested"


def wakeup_chain(rank, world_size, report):
    """The descriptor of before gets its bytes, and comes back at the end."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    hook = deltawire.torch.register(wrapped(Net()), "fp32")
    os.kill(os.getpid(), signal.SIGUSR1)
    forwarded = os.read(read_end, 8)
    hook.close()
    restored = signal.set_wakeup_fd(-1) == write_end
    torch.distributed.barrier()
    return forwarded == bytes([signal.SIGUSR1]), restored


def test_the_wakeup_descriptor_of_before_is_served_and_restored():
    with started(wakeup_chain, 2) as ranks:
        for outcome in ranks.outcomes().values():
            assert outcome.value == (True, True), outcome
