"""What LocalSteps refuses, and rounds in which a rank is lost, late or interrupted."""

import functools
import signal
import time

import deltawire.torch
import pytest
import torch
from models import Net, backward, fingerprint, wrapped
from ranks import AT_ONCE, attempted, refusals, refusals_in_turn, started, wait_for_training

VICTIM = 1
LONG = 60.0  # a timeout that a test never waits for


def attempt(rank, world_size, report, settings):
    """Makes LocalSteps with settings[rank]; then shows that the group is still usable."""
    model = Net()
    options = {"steps": 3, "reducer": "fp32", **settings[rank]}
    wrap = options.pop("wrap", lambda model: model)
    of = options.pop("of", lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
    wrapped_model = wrap(model)
    optimizer = of(model)
    return attempted(lambda: deltawire.torch.LocalSteps(wrapped_model, optimizer, **options))


errors_of = functools.partial(refusals, attempt)


def freeze(model):
    model.layers[3].requires_grad_(False)
    return model


def no_gradients(model):
    return model.requires_grad_(False)


def foreign(model):
    return torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.zeros(5))], lr=0.1)


OTHER = [
    ({"steps": 4}, ("steps=4", "steps=3")),
    ({"steps": abs}, ("steps=scheduled", "steps=3")),
    ({"reducer": "bf16"}, ("bf16", "fp32")),
    ({"overlap": 2}, ("overlap=2", "overlap=0")),
    ({"wrap": freeze}, ("'layers.3.0.weight' float32 (64, 64) frozen", "(64, 64) trained")),
]


def test_another_ranks_settings_or_model_are_named_by_all():
    found = refusals_in_turn(attempt, [({}, other, {}) for other, _ in OTHER])
    for (other, says), caught in zip(OTHER, found, strict=True):
        assert len(set(caught)) == 1, other
        kind, text, suspect = caught[0]
        assert kind == "DeltawireError" and suspect == VICTIM, other
        assert all(part in text for part in says), text


def test_a_recipe_and_its_codec_are_not_the_same_training():
    """Their bytes are, but the recipe keeps the optimizer's momentum."""
    codec = "topk:k=1.5625%,values=2bit,positions=auto,chunk=4096"
    codec += " with decay=0.95,pull_decay=0.5"
    recipe = {"reducer": "sparseloco"}
    caught = errors_of(recipe, {"reducer": codec}, recipe)
    assert len(set(caught)) == 1
    _, text, suspect = caught[0]
    assert suspect == VICTIM and "mask_momentum=True" in text and "mask_momentum=False" in text


BAD = [
    ({"wrap": wrapped}, "DTypeError", "pass model.module"),
    ({"wrap": torch.nn.Module.double}, "DTypeError", "'layers.0.0.weight' is torch.float64"),
    ({"wrap": no_gradients}, "InvalidArgumentError", "no parameter"),
    ({"of": torch.nn.Module.parameters}, "DTypeError", "torch.optim.Optimizer"),
    ({"of": foreign}, "InvalidArgumentError", "(5,)"),
    ({"steps": 0}, "InvalidArgumentError", "steps=0"),
    ({"reducer": "auto:wait=5%"}, "InvalidArgumentError", 'LocalSteps takes no "auto"'),
    ({"reducer": "ring(sbc)"}, "InvalidArgumentError", "mask_momentum=False"),
    ({"mask_momentum": "no"}, "TypeError", "mask_momentum must be True, False or None, not str"),
    ({"momentum": "exp_avg"}, "InvalidArgumentError", "momentum='exp_avg'"),
    ({"timeout": -1}, "InvalidArgumentError", "timeout"),
    ({"threads": 65}, "InvalidArgumentError", "threads=65 must be 1 to 64"),
]


def test_a_rank_that_cant_take_part_tells_the_other():
    both = [(bad if bad.get("wrap") is wrapped else {}, bad) for bad, *_ in BAD]
    for (bad, kind, says), (first, own) in zip(BAD, refusals_in_turn(attempt, both), strict=True):
        assert own[0] == kind and says in own[1], bad
        if first != own:
            assert first[2] == VICTIM and says in first[1], bad


def train_until_it_fails(rank, world_size, report, timeout, fault):
    """Trains forever. Returns what the error was."""
    model = Net()
    model.layers[5].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    trainer = deltawire.torch.LocalSteps(
        model, optimizer, steps=3, reducer="sbc:p=5%", timeout=timeout, arrival_timeout=timeout
    )
    error = None
    try:
        for step in range(100_000):
            if step == 6:
                report("training")
            if step >= 6 and rank == VICTIM:
                fault(trainer, optimizer, model, report)
            backward(model, rank, step)
            before = fingerprint(model)
            trainer.step()
    except deltawire.DeltawireError as caught:
        error = caught
    except KeyboardInterrupt:
        error = trainer.last_error
        assert error is not None and trainer.closed
        return "KeyboardInterrupt", error.suspect, str(error), None
    moved = fingerprint(model) != before  # the local step that came before the round stays
    return error.code, error.suspect, str(error), (trainer.closed, trainer.local_steps, moved)


def check_survivors(outcomes, codes, within, since=None):
    """`within`: seconds after `since`, or after the test began to wait."""
    for rank, outcome in sorted(outcomes.items()):
        assert outcome.raised is None, outcome
        code, suspect, text, (closed, local_steps, moved) = outcome.value
        after = outcome.after if since is None else outcome.at - since
        print(f"rank {rank} after {after:.2f} s [{code}]: {text}")
        assert code in codes and suspect == VICTIM and f"rank {VICTIM}" in text
        assert closed and local_steps == 3 and moved
        assert within[0] <= after <= within[1]


def no_fault(trainer, optimizer, model, report):
    pass


def be_late(trainer, optimizer, model, report):
    report(time.monotonic())
    time.sleep(40)


def lose_the_optimizer(trainer, optimizer, model, report):
    """A bug in the round itself: momentum can't be found as it should."""
    for state in optimizer.state.values():
        state["momentum_buffer"] = state["momentum_buffer"].double()


def thaw(trainer, optimizer, model, report):
    model.layers[5].requires_grad_(True)


def replace(trainer, optimizer, model, report):
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def grow(trainer, optimizer, model, report):
    model.late = torch.nn.Linear(2, 2)


def widen(trainer, optimizer, model, report):
    model.double().register_forward_pre_hook(lambda module, inputs: (inputs[0].double(),))


def test_a_killed_rank_is_named_at_once():
    with started(train_until_it_fails, 3, LONG, no_fault) as ranks:
        wait_for_training(ranks)
        ranks.signal(VICTIM, signal.SIGKILL)
        outcomes = ranks.outcomes([0, 2])
    check_survivors(outcomes, {"PeerLost", "Aborted"}, (0, AT_ONCE))


def test_a_late_rank_is_named_at_the_deadline():
    with started(train_until_it_fails, 3, 3.0, be_late) as ranks:
        wait_for_training(ranks)
        since = ranks.hear(VICTIM)
        outcomes = ranks.outcomes([0, 2])
    check_survivors(outcomes, {"Timeout"}, (1.5, AT_ONCE), since)


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        (thaw, "State", "'layers.5.0.weight' requires gradients, but LocalSteps doesn't exchange"),
        (replace, "State", "'layers.0.0.weight' requires gradients, but LocalSteps doesn't exch"),
        (grow, "State", "'late.weight' requires gradients, but LocalSteps doesn't exchange it"),
        (widen, "State", "'layers.0.0.weight' is torch.float64, but was torch.float32"),
        (lose_the_optimizer, "UnsupportedDType", "'momentum_buffer' of parameter 'layers.0.0"),
    ],
)
def test_a_rank_that_fails_in_its_round_is_named_everywhere(fault, code, says):
    with started(train_until_it_fails, 2, LONG, fault) as ranks:
        assert ranks.hear(VICTIM) == "training"  # the other may hear of its end first
        outcomes = ranks.outcomes()
    own = outcomes.pop(VICTIM).value
    assert own[0] == code and says in own[2]
    check_survivors(outcomes, {"Aborted"}, (0, AT_ONCE))


def test_ctrl_c_in_a_round_ends_all():
    with started(train_until_it_fails, 2, LONG, no_fault) as ranks:
        wait_for_training(ranks)
        ranks.signal(0, signal.SIGSTOP)
        ranks.until_it_waits(VICTIM)  # in its round
        ranks.signal(VICTIM, signal.SIGINT)
        own = ranks.outcomes([VICTIM])[VICTIM]
        ranks.signal(0, signal.SIGCONT)
        outcomes = ranks.outcomes([0])
    print(own)
    assert own.raised is None and own.value[0] == "KeyboardInterrupt" and own.after < AT_ONCE
    check_survivors(outcomes, {"Aborted"}, (0, AT_ONCE))
