"""Rounds of local steps that go on: processes are killed and join; all have the same weights."""

import functools
import multiprocessing
import os
import signal
import time

import deltawire
import deltawire.torch
import pytest
import torch
from ports import kept_port

CONTEXT = multiprocessing.get_context("forkserver")
SECRET = "a secret of the tests, of no special length"
LIMIT = 90.0
SETTINGS = {"token": SECRET, "timeout": 30.0, "connect_timeout": 30.0, "arrival_timeout": 30.0}
ROUNDS, LOST = 6, 3
DEVICE = torch.device(os.environ.get("DELTAWIRE_TEST_DEVICE", "cpu"))
NESTEROV = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(40, 30)
        self.norm = torch.nn.BatchNorm1d(30)
        self.last = torch.nn.Linear(30, 1, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).to(torch.bfloat16)).float()


def digests(network: Network, trainer) -> tuple:
    parameters = [parameter.detach().float().sum().item() for parameter in network.parameters()]
    outer = trainer.outer.state_dict()["state"] if trainer.outer else {}
    momenta = [entry["momentum_buffer"].sum().item() for entry in outer.values()]
    return tuple(parameters), tuple(momenta)


def train(pipe, place: dict, address: str, spec: str, outer, copied: bool) -> None:
    os.environ["DELTAWIRE_FORCE_STAGING"] = str(int(copied))
    torch.set_num_threads(1)
    torch.manual_seed(0 if place else 7)  # a process that joins has other weights
    network = Network().to(DEVICE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    own = torch.Generator().manual_seed(place.get("rank", 9))
    with deltawire.torch.ElasticLocalSteps(
        network, optimizer, spec, steps=2, outer=outer, address=address, **place, **SETTINGS
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
            if trainer.local_steps == 1:
                optimizer.step()
                local = network.first.weight.sum().item()
                trainer.exchange()
            else:
                trainer.step()
            if trainer.local_steps == 0:
                said = digests(network, trainer), trainer.session.world_size
                pipe.send((trainer.round, *said, joined, local))
                time.sleep(0.05)
            if end is None and trainer.session.events:
                # Until somebody has joined, and three rounds more.
                came = [each for each in trainer.session.events if each["joined"]]
                end = came[0]["step"] + 4 if came else None
        if joined is not None:
            pipe.send(("buffers", network.norm.num_batches_tracked.item()))


def begin(place: dict, address: str, spec: str = "3lc", outer=None, copied: bool = False):
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(
        target=train, args=(theirs, place, address, spec, outer, copied), daemon=True
    )
    process.start()
    theirs.close()
    return ours, process


def rest_of(pipe) -> list:
    found = []
    while True:
        assert pipe.poll(LIMIT), "a member says nothing"
        try:
            found.append(pipe.recv())
        except EOFError:
            return found


@pytest.mark.parametrize("copied", [False, True])
def test_rounds_go_on_without_a_rank(copied):
    with kept_port() as port:
        places = [{"rank": rank, "world_size": 3} for rank in range(3)]
        started = [begin(place, f"127.0.0.1:{port}", copied=copied) for place in places]
        first, second, lost = [rest_of(pipe) for pipe, _ in started]
    shared = [[row[:3] for row in found] for found in (first, second, lost)]
    assert shared[0] == shared[1] and len(first) == ROUNDS
    assert shared[2] == shared[0][:LOST]
    assert [row[2] for row in first] == [3] * LOST + [2] * (ROUNDS - LOST)


@pytest.mark.parametrize("spec,outer", [("fp32", None), ("3lc", NESTEROV)])
def test_a_process_that_joins_has_the_weights_and_the_outer_momentum(spec, outer):
    with kept_port() as port:
        places = [{"rank": rank, "world_size": 2} for rank in range(2)]
        started = [begin(place, f"127.0.0.1:{port}", spec, outer) for place in places]
        time.sleep(0.5)
        joiner, _ = begin({}, f"127.0.0.1:{port}", spec, outer)
        first, second = [rest_of(pipe) for pipe, _ in started]
        third = rest_of(joiner)
    assert [row[:3] for row in first] == [row[:3] for row in second]
    rounds = {row[0]: row[1:3] for row in first}
    same = [row for row in third if row[0] in rounds]
    assert len(same) == 3 and all(rounds[row[0]] == row[1:3] for row in same)
    assert same[0][2] == 3 and same[0][0] == same[0][3] + 1
    # Its empty change in the round that it joined in counts for nothing.
    if spec == "fp32":
        at = same[0][0] - 1
        of = [next(row for row in found if row[0] == at) for found in (first, second)]
        mean = sum(row[4] for row in of) / 2
        assert of[0][2] == 3 and of[0][1][0][0] == pytest.approx(mean, abs=1e-4)
    assert third[-1][0] == "buffers" and third[-1][1] > 6  # the host's, and its own since


def differ(pipe, rank: int, address: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    network = Network()
    try:
        with deltawire.torch.ElasticLocalSteps(
            network,
            torch.optim.SGD(network.parameters(), lr=0.01),
            "3lc",
            steps=1,
            rank=rank,
            world_size=2,
            address=address,
            **SETTINGS,
        ) as trainer:
            trainer.exchange()
    except deltawire.DeltawireError as error:
        pipe.send((error.code, str(error)))


def test_ranks_that_begin_with_other_weights_are_named():
    with kept_port() as port:
        pipes = []
        for rank in range(2):
            ours, theirs = CONTEXT.Pipe(duplex=False)
            arguments = (theirs, rank, f"127.0.0.1:{port}")
            CONTEXT.Process(target=differ, args=arguments, daemon=True).start()
            theirs.close()
            pipes.append(ours)
        for pipe in pipes:
            ((code, text),) = rest_of(pipe)
            assert code == "Mismatch" and "(epoch 0)" in text, text


def test_what_is_its_own_is_refused():
    network = Network().to(DEVICE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    with pytest.raises(deltawire.InvalidArgumentError, match="own"):
        deltawire.torch.ElasticLocalSteps(network, optimizer, "3lc", steps=1, elastic=True)
    with pytest.raises(deltawire.InvalidArgumentError, match="steps"):
        deltawire.torch.ElasticLocalSteps(network, optimizer, "3lc", steps=0)
