"""Elastic rounds are those of LocalSteps: the same weights, means by weight, and checkpoints."""

import functools
import threading

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from host_twin import LIBRARY, HostTwin
from ports import kept_port
from rank_threads import in_threads

SECRET = "a secret of the tests, of no special length"
NESTEROV = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
SETTINGS = {"token": SECRET, "timeout": 20.0, "connect_timeout": 20.0, "arrival_timeout": 20.0}
ALONE = {"rank": 0, "world_size": 1, **SETTINGS}
LIMIT = 60.0
needs_twins = pytest.mark.skipif(not LIBRARY.is_file(), reason="needs target deltawire (C library)")
SEEDING = threading.Lock()  # threads share torch's generator


@pytest.fixture
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def network() -> torch.nn.Module:
    with SEEDING:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))


def trained(model: torch.nn.Module, trainer, steps: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        inputs = torch.randn(8, 30, generator=draw)
        model.zero_grad()
        (model(inputs) - inputs[:, :1]).square().mean().backward()
        trainer.step()


def weights_of(model: torch.nn.Module) -> list[bytes]:
    return [each.detach().numpy().tobytes() for each in model.parameters()]


def common_of(trainer) -> dict:
    return {name: v.clone() for name, v in trainer._weights.common()["reference"].items()}


def on_ranks(world_size: int, run) -> list:
    """`run(rank, place)` in a thread for each rank; what they return, or the exceptions."""
    found: list = [None] * world_size

    def call(rank: int, address: str) -> None:
        try:
            place = {"rank": rank, "world_size": world_size, "address": address}
            found[rank] = run(rank, {**place, **SETTINGS})
        except deltawire.DeltawireError as error:
            found[rank] = error

    in_threads(call, world_size, LIMIT)
    return found


@pytest.mark.parametrize(
    "spec,more",
    [
        ("sbc:p=10%", {}),
        ("3lc", {"fragments": 2, "delay": 1, "outer": NESTEROV}),
        ("sparseloco", {"min_elements": 2, "fragments": 2, "overlap": 1, "mixing": 0.5}),
    ],
)
def test_alone_it_is_local_steps(world_of_one, spec, more):
    ends = []
    for kind in ("LocalSteps", "ElasticLocalSteps"):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        place = {} if kind == "LocalSteps" else ALONE
        with getattr(deltawire.torch, kind)(
            model, optimizer, spec, steps=3, **more, **place
        ) as trainer:
            trained(model, trainer, 10, 1)
            trainer.exchange()
            metrics = trainer.metrics()
        momenta = [each["momentum_buffer"].numpy().tobytes() for each in optimizer.state.values()]
        ends.append((weights_of(model), momenta, trainer.round, metrics["steps"]))
    assert ends[0] == ends[1]
    assert metrics["epoch"] == 0 and metrics["world_size"] == 1 and metrics["total_waited_ms"] >= 0


@needs_twins
def test_a_device_codes_what_is_weighted_there():
    """Weights and residuals are the CPU's, and no memory of a step is kept."""
    ends, kept = [], []
    for twins in (False, HostTwin):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        more = {"fragments": 2, "weight": 3.0, "twins": twins}
        with deltawire.torch.ElasticLocalSteps(
            model, optimizer, "sbc:p=10%", steps=3, **more, **ALONE
        ) as trainer:
            encodings = HostTwin.encodings
            for _ in range(3):
                trained(model, trainer, 3, 1)
                if (parts := trainer._exchange.choice.parts) is not None:
                    kept.append(len(parts._regions))
            ends.append((weights_of(model), bytes(trainer._session.save())))
            assert (HostTwin.encodings > encodings) == bool(twins)
            assert ("coder=twins" in trainer._terms()) == bool(twins), "or others could join"
    assert ends[0] == ends[1]
    assert len(kept) == 3 and len(set(kept)) == 1


def test_changes_count_by_their_weight():
    def run(rank, place):
        model = network()
        before = [each.detach().clone() for each in model.parameters()]
        # Rank 1 counts three times as much; rank 2 has no step, and counts nothing.
        of_steps = 1.0 if rank == 0 else lambda steps: 1.5 * steps
        with deltawire.torch.ElasticLocalSteps(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            "fp32",
            steps=9,
            weight=of_steps,
            **place,
        ) as trainer:
            if rank < 2:
                trained(model, trainer, 2, rank)
            moved = [p.detach() - b for p, b in zip(model.parameters(), before, strict=True)]
            trainer.exchange(always=True)
        after = [p.detach() - b for p, b in zip(model.parameters(), before, strict=True)]
        return moved, after, weights_of(model)

    found = on_ranks(3, run)
    assert found[0][2] == found[1][2] == found[2][2]
    for first, second, mean in zip(found[0][0], found[1][0], found[2][1], strict=True):
        torch.testing.assert_close(mean, (first + 3 * second) / 4, atol=1e-6, rtol=1e-5)


def test_a_checkpoint_goes_on_with_other_members():
    options = {"steps": 4, "fragments": 2, "delay": 1, "outer": NESTEROV}

    def made(place):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        return model, deltawire.torch.ElasticLocalSteps(model, optimizer, "3lc", **options, **place)

    def save(rank, place):
        model, trainer = made(place)
        with trainer:
            trained(model, trainer, 11, rank)
            return trainer.state_dict(), common_of(trainer)

    def resume(states, rank, place):
        model, trainer = made(place)
        with trainer:
            trainer.load_state_dict(states[rank] if isinstance(states, tuple) else states)
            round_, common = trainer.round, common_of(trainer)
            trained(model, trainer, 6, rank)
            trainer.exchange()
            assert trainer.session.steps == trainer._exchange.progress.exchanges > 5
            return round_, common, weights_of(model)

    saved = on_ranks(3, save)
    states = [each[0] for each in saved]
    found = on_ranks(2, functools.partial(resume, states))
    assert found[0][0] == found[1][0] == 2 and found[0][2:] == found[1][2:]
    for name, value in found[0][1].items():
        assert torch.equal(value, saved[0][1][name]), name
    # Rank 1 has another round's.
    other = on_ranks(2, save)
    apart = (other[0][0], {**other[1][0], "common": (_moved(other[1][0]["common"][0]),)})
    assert [each.code for each in on_ranks(2, functools.partial(resume, apart))] == ["Mismatch"] * 2


def _moved(common: dict) -> dict:
    reference = {name: value + 1 for name, value in common["reference"].items()}
    return {**common, "reference": reference}


def test_a_state_is_loaded_before_the_first_round():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    place = {"rank": 0, "world_size": 1, **SETTINGS}
    trainer = deltawire.torch.ElasticLocalSteps(model, optimizer, "3lc", steps=1, **place)
    state = trainer.state_dict()
    trained(model, trainer, 1, 0)
    with pytest.raises(deltawire.DeltawireError, match="first round"):
        trainer.load_state_dict(state)
    assert trainer.closed


def test_ranks_with_other_rounds_don_t_meet():
    def run(rank, place):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        deltawire.torch.ElasticLocalSteps(
            model, optimizer, "3lc", steps=9, fragments=1 + rank, **place
        )

    for error in on_ranks(2, run):
        assert type(error) is deltawire.DeltawireError and error.code == "Mismatch"
        assert str(error) == "rank 0 has fragments=1, and rank 1 fragments=2; give all the same"


def masked(mask: torch.Tensor) -> torch.nn.Module:
    model = network()
    model.register_buffer("mask", mask)
    return model


def test_who_cannot_take_the_buffers_over_keeps_its_weights():
    """A buffer whose elements are one place is found before the first write."""

    def found(address: str, over: threading.Event) -> None:
        model = masked(torch.ones(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        place = {**ALONE, "address": address}
        with deltawire.torch.ElasticLocalSteps(model, optimizer, "3lc", steps=1, **place) as alone:
            while not over.wait(0.01):
                trained(model, alone, 1, 0)

    over = threading.Event()
    with kept_port() as port:
        at = f"127.0.0.1:{port}"
        founder = threading.Thread(target=found, args=(at, over))
        founder.start()
        try:
            model = masked(torch.ones(1).expand(4))
            before = weights_of(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with pytest.raises(deltawire.InvalidArgumentError, match="'mask' can't be written"):
                deltawire.torch.ElasticLocalSteps(
                    model, optimizer, "3lc", steps=1, address=at, **SETTINGS
                )
            assert weights_of(model) == before
        finally:
            over.set()
            founder.join(LIMIT)


def test_a_buffer_that_cannot_be_written_is_named(world_of_one):
    model = masked(torch.ones(1).expand(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(deltawire.InvalidArgumentError, match="'mask' can't be written.*expand"):
        deltawire.torch.LocalSteps(model, optimizer, "3lc", steps=1)
