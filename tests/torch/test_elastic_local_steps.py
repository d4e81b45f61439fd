"""Rounds of local steps that go on: processes are killed and join; all have the same weights."""

import contextlib
import functools
import multiprocessing
import os
import signal
import threading
import time

import deltawire
import deltawire.torch
import pytest
import torch
from host_twin import LIBRARY, HostTwin
from ports import kept_port

CONTEXT = multiprocessing.get_context("forkserver")
SECRET = "a secret of the tests, of no special length"
LIMIT = 90.0
SETTINGS = {"token": SECRET, "timeout": 30.0, "connect_timeout": 30.0, "arrival_timeout": 30.0}
ROUNDS, LOST = 6, 3
DEVICE = torch.device(os.environ.get("DELTAWIRE_TEST_DEVICE", "cpu"))
# Who codes: a GPU, or a device that is played on the host.
ON_DEVICE = HostTwin if DEVICE.type == "cpu" else True
needs_twins = pytest.mark.skipif(
    DEVICE.type == "cpu" and not LIBRARY.is_file(), reason="needs target deltawire (C library)"
)
NESTEROV = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(40, 30)
        self.norm = torch.nn.BatchNorm1d(30)
        self.last = torch.nn.Linear(30, 1, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).to(torch.bfloat16)).float()


def digests(trainer) -> tuple:
    common = trainer._weights.common()
    weights = [each.double().sum().item() for each in common["reference"].values()]
    outer = trainer.outer.state_dict()["state"] if trainer.outer else {}
    momenta = [entry["momentum_buffer"].sum().item() for entry in outer.values()]
    return tuple(weights), tuple(momenta)


def train(pipe, place: dict, address: str, spec: str, copied: bool, more: dict) -> None:
    os.environ["DELTAWIRE_FORCE_STAGING"] = "on" if copied else "off"
    torch.set_num_threads(1)
    torch.manual_seed(0 if place else 7)  # a process that joins has other weights
    network = Network().to(DEVICE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    own = torch.Generator().manual_seed(place.get("rank", 9))
    if "weight" in more:
        more["weight"] += place["rank"]
    with deltawire.torch.ElasticLocalSteps(
        network, optimizer, spec, steps=2, address=address, **more, **place, **SETTINGS
    ) as trainer:
        joined = None if place else trainer.round
        end = {3: ROUNDS, 2: None, None: trainer.round + 3}[place.get("world_size")]
        patience = time.monotonic() + LIMIT / 2
        while trainer.round < end if end is not None else time.monotonic() < patience:
            if place.get("rank") == 2 and trainer.round == LOST:
                os.kill(os.getpid(), signal.SIGKILL)
            inputs = torch.randn(16, 40, generator=own).to(DEVICE)
            optimizer.zero_grad()
            (network(inputs) - inputs[:, :1]).square().mean().backward()
            if trainer.local_steps == 1 and not more.get("fragments"):
                optimizer.step()
                local = network.first.weight.sum().item()
                trainer.exchange()
            else:
                local = 0.0
                trainer.step()
            if trainer.local_steps == 0:
                said = digests(trainer), trainer.session.world_size
                pipe.send((trainer.round, *said, joined, local))
                time.sleep(0.05)
            if end is None and trainer.session.events:
                # Until somebody has joined, and three rounds more.
                came = [each for each in trainer.session.events if each["joined"]]
                end = came[0]["step"] + 4 if came else None
        assert ("twins" in more) == (HostTwin.encodings > 0) or DEVICE.type != "cpu"
        if joined is not None:
            pipe.send(("buffers", network.norm.num_batches_tracked.item()))


class Process:
    """A member; what it says is read at once, so that it never waits for a full pipe."""

    def __init__(self, place: dict, address: str, spec="3lc", copied=False, **more) -> None:
        self._pipe, theirs = CONTEXT.Pipe(duplex=False)
        arguments = (theirs, place, address, spec, copied, more)
        CONTEXT.Process(target=train, args=arguments, daemon=True).start()
        theirs.close()
        self._rows: list = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(EOFError):
            while True:
                self._rows.append(self._pipe.recv())

    def rest(self) -> list:
        self._reader.join(LIMIT)
        assert not self._reader.is_alive(), f"a member does not end; it said {self._rows[-3:]}"
        return self._rows


STREAMING = {"fragments": 2, "overlap": 1, "mixing": 0.5, "outer": NESTEROV}


def without_a_rank(copied, more):
    with kept_port() as port:
        places = [{"rank": rank, "world_size": 3} for rank in range(3)]
        started = [Process(each, f"127.0.0.1:{port}", copied=copied, **more) for each in places]
        first, second, lost = [each.rest() for each in started]
    shared = [[row[:3] for row in found] for found in (first, second, lost)]
    if more:  # an exchange under way counts in the round after it
        shared = [[row[:2] for row in found] for found in shared]
    assert shared[0] == shared[1] and len(first) == ROUNDS
    assert shared[2] == shared[0][:LOST]
    assert [row[2] for row in first[:LOST]] == [3] * LOST
    assert [row[2] for row in first[LOST + 1 :]] == [2] * (ROUNDS - LOST - 1)
    return shared[0]


def test_rounds_go_on_without_a_rank():
    without_a_rank(copied=True, more=STREAMING)


@needs_twins
def test_rounds_that_a_device_codes_are_the_same_without_a_rank():
    """Also where changes are multiplied by weights, each rank's by its own."""
    more = {"weight": 3.0}
    on_the_cpu = without_a_rank(copied=False, more=more)
    assert without_a_rank(copied=False, more={**more, "twins": ON_DEVICE}) == on_the_cpu


@pytest.mark.parametrize(
    "spec,more",
    [
        ("fp32", {}),
        ("3lc", {"outer": NESTEROV}),
        pytest.param("3lc", {**STREAMING, "twins": ON_DEVICE}, marks=needs_twins),
    ],
    ids=["fp32", "outer", "streaming, coded on a device"],
)
def test_a_process_that_joins_has_the_weights_and_the_outer_momentum(spec, more):
    with kept_port() as port:
        places = [{"rank": rank, "world_size": 2} for rank in range(2)]
        started = [Process(place, f"127.0.0.1:{port}", spec, **more) for place in places]
        time.sleep(0.5)
        joiner = Process({}, f"127.0.0.1:{port}", spec, **more)
        first, second, third = [each.rest() for each in (*started, joiner)]
    assert [row[:2] for row in first] == [row[:2] for row in second]
    rounds = {row[0]: row[1:3] for row in first}
    same = [row for row in third if row[0] in rounds]
    assert len(same) >= 3 and all(rounds[row[0]][0] == row[1] for row in same)
    assert same[0][2] == 3 and same[0][0] == same[0][3] + 1
    # Its empty change in the round that it joined in counts for nothing.
    if spec == "fp32":
        at = same[0][0] - 1
        of = [next(row for row in found if row[0] == at) for found in (first, second)]
        mean = sum(row[4] for row in of) / 2
        assert of[0][2] == 3 and of[0][1][0][0] == pytest.approx(mean, abs=1e-4)
    assert third[-1][0] == "buffers" and third[-1][1] > 6  # the host's, and its own since


def differ(pipe, rank: int, address: str, seed: int, spec: str, more: dict) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    network = Network()
    try:
        with deltawire.torch.ElasticLocalSteps(
            network,
            torch.optim.SGD(network.parameters(), lr=0.01),
            spec,
            steps=1,
            rank=rank,
            world_size=2,
            address=address,
            **SETTINGS,
            **more,
        ) as trainer:
            trainer.exchange(always=True)
    except deltawire.DeltawireError as error:
        pipe.send((error.code, str(error)))


def errors_of(*ranks: tuple[int, str, dict]) -> list[tuple[str, str]]:
    """(code, message) of each rank, which has a seed, a spec and more arguments of its own."""
    with kept_port() as port:
        pipes = []
        for rank, own in enumerate(ranks):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            arguments = (theirs, rank, f"127.0.0.1:{port}", *own)
            CONTEXT.Process(target=differ, args=arguments, daemon=True).start()
            theirs.close()
            pipes.append(ours)
        for pipe in pipes:
            assert pipe.poll(LIMIT), "a rank says nothing"
        return [pipe.recv() for pipe in pipes]


def test_ranks_that_begin_with_other_weights_are_named():
    for code, text in errors_of((0, "3lc", {}), (1, "3lc", {})):
        assert code == "Mismatch" and "(epoch 0)" in text, text
        assert "were all ranks given the same seed or checkpoint?" in text, text


def test_momentum_is_masked_on_all_ranks_or_on_none():
    for code, text in errors_of(
        (0, "sbc", {"mask_momentum": True}), (0, "sbc", {"mask_momentum": False})
    ):
        assert code == "Mismatch" and "mask_momentum=False" in text, text


def test_what_local_steps_alone_can_hold_back_is_refused():
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    with pytest.raises(deltawire.InvalidArgumentError, match="pulseloco.*LocalSteps"):
        deltawire.torch.ElasticLocalSteps(network, optimizer, "pulseloco", steps=1)


def test_what_is_its_own_is_refused():
    network = Network().to(DEVICE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    with pytest.raises(deltawire.InvalidArgumentError, match="own"):
        deltawire.torch.ElasticLocalSteps(network, optimizer, "3lc", steps=1, elastic=True)
    with pytest.raises(deltawire.InvalidArgumentError, match="steps"):
        deltawire.torch.ElasticLocalSteps(network, optimizer, "3lc", steps=0)
    with pytest.raises(deltawire.InvalidArgumentError, match="needs no process group"):
        deltawire.torch.ElasticLocalSteps(network, optimizer, "3lc", steps=1, group=None)
    with pytest.raises(deltawire.DTypeError, match="ElasticLocalSteps takes"):
        deltawire.torch.ElasticLocalSteps(Network, optimizer, "3lc", steps=1)
