"""What ParameterServer refuses, and training in which a rank is lost, late or interrupted."""

import functools
import signal

import deltawire.torch
import pytest
import torch
from models import Net, backward, wrapped
from ranks import AT_ONCE, attempted, refusals, refusals_in_turn, started, wait_for_training
from served import SOON, sgd

VICTIM = 1


def attempt(rank, world_size, report, settings):
    """Makes a ParameterServer with settings[rank]; then shows that the group is still usable."""
    model = Net()
    options = {"timeout": SOON, **settings[rank]}
    model = options.pop("wrap", lambda model: model)(model)
    optimizer = options.pop("of", sgd)(model)
    return attempted(lambda: deltawire.torch.ParameterServer(model, optimizer, **options))


errors_of = functools.partial(refusals, attempt)


def two_groups(model):
    first, *rest = model.parameters()
    return torch.optim.SGD([{"params": [first], "weight_decay": 0.1}, {"params": rest}], lr=0.1)


def some(model):
    return torch.optim.SGD(list(model.parameters())[1:], lr=0.1)


def foreign(model):
    return torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.zeros(5))], lr=0.1)


def amsgrad(model):
    return torch.optim.Adam(model.parameters(), amsgrad=True)


def lbfgs(model):
    return torch.optim.LBFGS(model.parameters())


def stepped(model):
    optimizer = sgd(model, momentum=0.9)
    backward(model, 0, 0)
    optimizer.step()
    return optimizer


BAD = [
    ({"of": two_groups}, "InvalidArgumentError", "weight_decay=0.1"),
    ({"of": some}, "InvalidArgumentError", "'layers.0.0.weight' is not in the optimizer"),
    ({"of": foreign}, "InvalidArgumentError", "(5,)"),
    ({"of": amsgrad}, "InvalidArgumentError", "Adam(amsgrad=True)"),
    ({"of": lbfgs}, "DTypeError", "not LBFGS"),
    ({"of": stepped}, "InvalidArgumentError", "has stepped already"),
    ({"of": torch.nn.Module.parameters}, "DTypeError", "torch.optim.Optimizer"),
    ({"wrap": torch.nn.Module.half}, "DTypeError", "ParameterServer serves float32"),
    ({"servers": 2}, "InvalidArgumentError", "leave a worker"),
    ({"backup": 1}, "InvalidArgumentError", "must count"),
    ({"overlap": "all"}, "InvalidArgumentError", "overlap='all'"),
    ({"momentum": "no"}, "InvalidArgumentError", "momentum='no'"),
    ({"overlap": "both", "staleness": 1}, "InvalidArgumentError", "staleness=1"),
    ({"on_worker_loss": "ignore"}, "InvalidArgumentError", "on_worker_loss='ignore'"),
    ({"min_workers": 2}, "InvalidArgumentError", "min_workers=2 of 1"),
    ({"staleness": -1}, "InvalidArgumentError", "staleness"),
    ({"spec": "auto"}, "InvalidArgumentError", "ParameterServer takes no"),
    ({"push": "gather(3lc)"}, "InvalidArgumentError", "gather"),
    ({"push": ""}, "InvalidArgumentError", "names no codec"),
    ({"snapshot": 5}, "TypeError", "snapshot must be a folder's path or None, not int"),
    ({"every": 0}, "InvalidArgumentError", "every=0"),
]


def test_a_rank_that_cant_take_part_tells_the_other():
    found = refusals_in_turn(attempt, [({}, bad) for bad, *_ in BAD])
    for (bad, kind, says), (first, own) in zip(BAD, found, strict=True):
        assert own[0] == kind and says in own[1], bad
        assert first[2] == VICTIM and says in first[1], bad


def test_wrapped_models_and_other_settings_are_refused():
    for caught in errors_of({"wrap": wrapped}, {"wrap": wrapped}):
        assert caught[0] == "DTypeError" and "ParameterServer takes the bare module" in caught[1]
    for other in ({"push": "fp32"}, {"of": stepwise}, {"on_worker_loss": "drop"}):
        caught = errors_of({}, other, {})
        assert len(set(caught)) == 1 and caught[0][2] == VICTIM, caught


def stepwise(model):
    return sgd(model, rate=0.9)


def train_until_it_fails(rank, world_size, report, timeout, fault=None):
    """One server, the others work forever. Returns what the error was, and the second one."""
    model = Net()
    server = deltawire.torch.ParameterServer(model, sgd(model, rate=0.01), timeout=timeout)
    error = None
    try:
        if server.serves:
            report("training")
            server.serve()
        for step in range(100_000):
            if step == 3:
                report("training")
            if step >= 3 and rank == VICTIM and fault is not None:
                fault(model)
            backward(model, rank, step)
            server.step()
    except deltawire.DeltawireError as caught:
        error = caught
    except KeyboardInterrupt:
        error = server.last_error
        assert error is not None
        return "KeyboardInterrupt", error.suspect, str(error), None
    with pytest.raises(deltawire.DeltawireError, match="is closed") as again:
        server.step() if not server.serves else server.serve()
    server.close()
    server.close()
    return error.code, error.suspect, str(error), again.value.suspect


def check_survivors(outcomes, codes, suspect, within=AT_ONCE):
    for rank, outcome in sorted(outcomes.items()):
        assert outcome.raised is None, outcome
        code, named, text, again = outcome.value
        print(f"rank {rank} after {outcome.after:.2f} s [{code}]: {text}")
        assert code in codes and named == again == suspect and f"rank {suspect}" in text
        assert outcome.after < within


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_server_or_worker_is_named_at_once(victim):
    with started(train_until_it_fails, 3, SOON) as ranks:
        wait_for_training(ranks)
        ranks.signal(victim, signal.SIGKILL)
        outcomes = ranks.outcomes([rank for rank in range(3) if rank != victim])
    check_survivors(outcomes, {"PeerLost", "Aborted"}, victim)


def test_a_frozen_worker_is_named_at_the_deadline():
    with started(train_until_it_fails, 3, 3.0) as ranks:
        wait_for_training(ranks)
        ranks.signal(VICTIM, signal.SIGSTOP)
        outcomes = ranks.outcomes([0, 2])
    check_survivors(outcomes, {"Timeout", "PeerLost", "Aborted"}, VICTIM, 30)


@pytest.mark.parametrize("interrupted", [0, 1])
def test_ctrl_c_in_a_wait_ends_all(interrupted):
    with started(train_until_it_fails, 3, SOON) as ranks:
        wait_for_training(ranks)
        ranks.signal(2, signal.SIGSTOP)  # the server waits for it, the other worker for the server
        ranks.until_it_waits(interrupted)
        ranks.signal(interrupted, signal.SIGINT)
        own = ranks.outcomes([interrupted])[interrupted]
        ranks.signal(2, signal.SIGCONT)
        others = ranks.outcomes([1 - interrupted, 2])
    print(own)
    assert own.raised is None and own.value[0] == "KeyboardInterrupt" and own.after < AT_ONCE
    check_survivors(others, {"Aborted"}, interrupted)


def not_finite(model):
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))


def moved(model):
    parameter = next(model.parameters())
    parameter.data = parameter.data.clone()


def thawed(model):
    model.layers[0][0].weight = torch.nn.Parameter(model.layers[0][0].weight.detach().clone())


def grown(model):
    model.late = torch.nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        (not_finite, "NotFinite", "'layers."),
        (moved, "State", "'layers.0.0.weight' has other memory"),
        (thawed, "State", "'layers.0.0.weight' requires gradients, but ParameterServer doesn't"),
        (grown, "State", "'late.weight' requires gradients, but ParameterServer doesn't exchange"),
    ],
)
def test_a_worker_that_fails_is_named_everywhere(fault, code, says):
    with started(train_until_it_fails, 3, SOON, fault) as ranks:
        assert ranks.hear(VICTIM) == "training"  # the others may hear of its end first
        outcomes = ranks.outcomes()
    own = outcomes.pop(VICTIM).value
    assert own[0] == code and says in own[2], own
    check_survivors(outcomes, {"Aborted", code}, VICTIM)
