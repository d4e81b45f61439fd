"""Encrypted connections between ranks that meet through a process group, which is not encrypted."""

import functools

import deltawire
import deltawire.torch
import pytest
import torch
from models import Net, train_step, wrapped
from ranks import attempted, refusals, results

SECRET = "correct horse battery staple"


def registered(rank, world_size, report, settings):
    spec, options = settings[rank]
    return attempted(lambda: deltawire.torch.register(wrapped(Net()), spec, **options))


errors_of = functools.partial(refusals, registered)


def stepped(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc", token=SECRET, encryption="required")
    refused = attempted(lambda: deltawire.torch.AllRanks(hook))
    train_step(model, rank, 0)
    hook.close()
    return refused, [each.detach().numpy().tobytes() for each in model.parameters()]


def test_a_step_over_encrypted_connections():
    first, second = results(stepped, 2)
    assert first == second
    # Its states would travel through the process group.
    assert "let each rank save hook.state_dict() itself" in first[0][1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ([("3lc", {"encryption": "required"})] * 2, "DELTAWIRE_TOKEN"),
        ([("auto", {"token": SECRET, "encryption": "required"})] * 2, "name a codec"),
        ([("3lc", {"token": SECRET, "encryption": "yes"})] * 2, '"auto", "required" or "off"'),
        (
            [
                ("3lc", {"token": SECRET, "encryption": "required"}),
                ("3lc", {"token": SECRET, "encryption": "off"}),
            ],
            'encryption="required"',
        ),
    ],
)
def test_what_required_refuses(settings, says):
    for error in errors_of(*settings):
        assert says in error[1], error


def begun(rank, world_size, report, kind, seed):
    torch.manual_seed(seed(rank))
    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"token": SECRET, "encryption": "required"}

    kept = []

    def begin():
        if kind == "LocalSteps":
            made = deltawire.torch.LocalSteps(model, optimizer, "fp32", steps=2, **options)
        else:
            made = deltawire.torch.ParameterServer(model, optimizer, "fp32", servers=1, **options)
        kept.append(made)

    return attempted(begin)


def same_seed(rank):
    return 5


@pytest.mark.parametrize("kind", ["LocalSteps", "ParameterServer"])
@pytest.mark.parametrize("seed", [same_seed, abs])
def test_required_sends_no_weights_through_the_process_group(kind, seed):
    for refused in results(begun, 2, kind, seed):
        if seed is same_seed:
            assert refused is None
        else:
            assert "rank 1 begins with other weights than rank 0" in refused[1]
