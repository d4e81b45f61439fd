"""What register refuses: alike on every rank, at once, in one clear line."""

import os
import signal
import socket

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from deltawire.torch.core import arguments, bootstrap
from models import Net, fingerprint, train_step, train_steps, wrapped
from ranks import attempted, refusals_in_turn, results, started
from torch.nn.parallel import DistributedDataParallel


def register_with(rank, world_size, report, settings):
    """Registers with settings[rank]; then shows that the group is still usable."""
    model = wrapped(Net())
    spec, options = settings[rank]
    return attempted(lambda: deltawire.torch.register(model, spec, **options))


USUAL = ("3lc:s=1.75", {})
OTHER = [
    (("3lc:s=1.5", {}), ("s=1.5", "s=1.75")),
    (("bf16", {}), ("bf16", "3lc")),
    (("3lc:s=1.75", {"min_elements": 7}), ("min_elements=7", "min_elements=256")),
    (("3lc:s=1.75", {"nonfinite": "pass"}), ("nonfinite=pass", "nonfinite=error")),
    (("3lc:s=1.75", {"scaler": float, "nonfinite": "error"}), ("scaler=given", "scaler=none")),
]


def test_another_ranks_settings_are_named_by_all():
    found = refusals_in_turn(register_with, [(USUAL, other, USUAL) for other, _ in OTHER])
    for (_, texts), caught in zip(OTHER, found, strict=True):
        assert len(set(caught)) == 1, "the ranks disagree about what is wrong"
        kind, text, suspect = caught[0]
        assert kind == "DeltawireError" and suspect == 1 and "rank 1" in text
        assert all(part in text for part in texts), text


GOOD = ("fp32", {})
BAD = [
    (("fp32", {"interface": "nosuch0"}), "nosuch0"),
    (("fp32", {"interface": 0}), "interface must be text or None, not int"),
    (("fp33", {}), "fp33"),
    (("fp32", {"timeout": 0}), "timeout"),
    (("fp32", {"arrival_timeout": "1"}), "arrival_timeout"),
    (("fp32", {"revert": "undo"}), "undo"),
    (("fp32", {"min_elements": -1}), "min_elements"),
    (("fp32", {"link": 100}), "LinkShape"),
    (("fp32", {"threads": 0}), "threads"),
    (("fp32", {"nonfinite": "skip"}), "skip"),
    (("fp32", {"scaler": 1024.0}), "GradScaler"),
]


def test_a_rank_that_cant_register_tells_the_others():
    found = refusals_in_turn(register_with, [(GOOD, bad, GOOD) for bad, _ in BAD])
    for (bad, says), (first, own, third) in zip(BAD, found, strict=True):
        assert own[0] in ("InvalidArgumentError", "TypeError", "DeltawireError"), bad
        assert says in own[1], bad
        for _kind, text, suspect in (first, third):
            assert suspect == 1 and "rank 1 could not register" in text and says in text, bad


@pytest.mark.parametrize("name", ["LocalSteps", "ParameterServer"])
def test_a_misspelt_argument_of_the_connection_is_named(name):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    more = {"steps": 1} if name == "LocalSteps" else {}
    with pytest.raises(TypeError, match=f"{name} got an unexpected keyword argument 'ports'"):
        getattr(deltawire.torch, name)(model, optimizer, "3lc", **more, ports="29600-29699")
    with pytest.raises(TypeError, match="group must be a ProcessGroup that has this rank"):
        getattr(deltawire.torch, name)(model, optimizer, "3lc", **more, group="world")


def test_timeouts_are_whole_milliseconds_and_never_none():
    seconds = (1e-5, 0.0026, 2, 86_400)
    assert [arguments.timeout_in_ms(s) for s in seconds] == [1, 3, 2000, 86_400_000]
    for bad in (0, -1, 86_401, float("nan"), True, "2"):
        with pytest.raises(ValueError, match="timeout="):
            arguments.timeout_in_ms(bad)


def refused_models(rank, world_size, report):
    caught = []

    def attempt(model):
        try:
            deltawire.torch.register(model, "fp32")
        except (TypeError, ValueError) as error:
            caught.append((type(error).__name__, str(error)))

    attempt(Net())
    attempt(DistributedDataParallel(Net().double()))
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "fp32")
    attempt(model)
    train_step(model, rank, 0)
    model = wrapped(Net())
    model.mixed_precision = object()  # what DDP keeps of the argument
    attempt(model)
    model = wrapped(Net())
    model.register_comm_hook(None, hook.deltawire_hook)
    attempt(model)
    return caught


def test_models_that_cant_have_the_hook():
    expected = [
        ("DTypeError", "DistributedDataParallel"),
        ("DTypeError", "torch.float64; deltawire exchanges float32, bfloat16 and float16"),
        ("InvalidArgumentError", "hook already"),
        ("InvalidArgumentError", "mixed_precision"),
        ("InvalidArgumentError", "hook already"),
    ]
    for caught in results(refused_models, 2):
        for (kind, text), (wanted, says) in zip(caught, expected, strict=True):
            assert kind == wanted and says in text


def alone(rank, world_size, report):
    """Trains plainly and with each spec: the weights, and what the hook says."""
    found = {}
    for spec in (None, "fp32", "3lc", "ring(gcomp)", "topk:k=5%", "powersgd", "auto"):
        model = wrapped(Net())
        hook = deltawire.torch.register(model, spec) if spec else None
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "torch may wait: it ends at once"
        train_steps(model, rank, range(4))
        found[spec] = (fingerprint(model),)
        if hook is None:
            continue
        hook.load_state_dict(hook.state_dict())
        hook.buckets()
        found[spec] += hook.metrics(), hook.scalars(), str(hook.explain())
        if spec != "auto":
            everything = deltawire.torch.AllRanks(hook)
            everything.load_state_dict(everything.state_dict())
        for step in range(60 if spec == "auto" else 1):  # whose ranks would talk meanwhile
            train_step(model, rank, step)
        hook.close()
    return found


def test_a_single_rank_takes_part_and_sends_nothing():
    (found,) = results(alone, 1)
    (plain,) = found.pop(None)
    for spec, (weights, metrics, scalars, text) in found.items():
        assert (weights == plain) == (spec in ("fp32", "ring(gcomp)", "auto")), spec
        assert metrics["steps"] == (4 if spec != "auto" else 0), spec
        assert metrics["total_bytes_sent"] == metrics["traffic_bytes_sent"] == 0, spec
        assert metrics["total_ratio"] is None and "deltawire/ratio" not in scalars, spec
        assert ("native" if spec == "auto" else "1 ranks") in text, spec


def interrupted_while_it_meets(rank, world_size, report):
    """Ctrl-C on one rank, before the others are there."""
    if rank == 0:
        with pytest.raises(KeyboardInterrupt), bootstrap.Meeting(dist.group.WORLD):
            raise KeyboardInterrupt
        report("left")
    return None if rank == 0 else "never met"


def test_ctrl_c_waits_for_nobody():
    with started(interrupted_while_it_meets, 2) as ranks:
        assert ranks.hear(0, timeout=30) == "left"
        assert ranks.outcomes()[0].raised is None


def loopback_elsewhere(rank, world_size, report):
    """Two machines, as far as their records say; MASTER_ADDR is missing."""
    os.environ.pop("MASTER_ADDR", None)
    socket.gethostname = lambda: f"host{rank}"
    deltawire.torch.register(wrapped(Net()), "fp32")


def test_loopback_between_machines_is_refused():
    with started(loopback_elsewhere, 2) as ranks:
        for outcome in ranks.outcomes().values():
            assert outcome.raised == "InvalidArgumentError"
            assert "MASTER_ADDR" in outcome.text and "host1" in outcome.text


def subgroups(rank, world_size, report):
    """Two pairs of ranks, each with a model of its own."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = wrapped(Net(), process_group=pairs[rank // 2])
    hook = deltawire.torch.register(model, "3lc")
    train_step(model, rank, 0)
    return hook.rank, hook.world_size, hook.step_records[0]["digest"]


def test_a_model_on_a_subgroup():
    with started(subgroups, 4) as ranks:
        values = [outcome.value for _, outcome in sorted(ranks.outcomes().items())]
    assert [value[:2] for value in values] == [(0, 2), (1, 2)] * 2
    assert values[0][2] == values[1][2] != values[2][2] == values[3][2]
