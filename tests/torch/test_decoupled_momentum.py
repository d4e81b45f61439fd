"""DeMo on a session (examples/decoupled_momentum.py): its authors' algorithm, written out."""

import contextlib
import importlib.util
import io
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltawire
import pytest
import torch
from ports import kept_port
from programs import run_program
from ranks import results

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "decoupled_momentum.py"
TOKEN = "a token of the tests, long enough"
SHAPES, STEPS, DECAY, LARGEST, SIDE = [(128, 192), (128,)], 8, 0.999, 32, 64


@pytest.fixture(scope="module")
def example():
    found = importlib.util.spec_from_file_location("decoupled_momentum", EXAMPLE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def waves():
    """The cosine transform of type II whose inverse is its transpose, by its definition."""
    rows = [
        [math.cos(math.pi * (2 * place + 1) * k / (2 * SIDE)) for k in range(SIDE)]
        for place in range(SIDE)
    ]
    scale = torch.tensor([math.sqrt((1 if k == 0 else 2) / SIDE) for k in range(SIDE)])
    return torch.tensor(rows, dtype=torch.float64) * scale.double()


class WrittenOut:
    """All ranks of the published algorithm: momenta as the weights are, in double precision."""

    def __init__(self, ranks):
        self.momenta = [[torch.zeros(s, dtype=torch.float64) for s in SHAPES] for _ in range(ranks)]
        self.waves = waves()

    def blocks_of(self, x):
        """Of a vector (blocks, SIDE), of a matrix (blocks, SIDE, SIDE)."""
        if x.dim() == 1:
            return x.view(-1, SIDE)
        high, wide = (size // SIDE for size in x.shape)
        return x.view(high, SIDE, wide, SIDE).transpose(1, 2).reshape(-1, SIDE, SIDE)

    def transformed(self, blocks, waves):
        """Along each dimension of a block."""
        rows = blocks @ waves
        return rows if blocks.dim() == 2 else waves.T @ rows

    def like(self, blocks, x):
        if x.dim() == 1:
            return blocks.reshape(x.shape)
        high, wide = (size // SIDE for size in x.shape)
        return blocks.view(high, wide, SIDE, SIDE).transpose(1, 2).reshape(x.shape)

    def exchange(self, changes):
        """Of every rank; returns the mean of what they send."""
        sums = [torch.zeros_like(momentum) for momentum in self.momenta[0]]
        for momenta, own in zip(self.momenta, changes, strict=True):
            for momentum, change, total in zip(momenta, own, sums, strict=True):
                momentum.mul_(DECAY).add_(change)
                blocks = self.blocks_of(momentum)
                coefficients = self.transformed(blocks, self.waves).flatten(1)
                kept = coefficients.abs().topk(LARGEST).indices
                sent = torch.zeros_like(coefficients).scatter_(
                    1, kept, coefficients.gather(1, kept)
                )
                sent = self.transformed(sent.view_as(blocks), self.waves.T)
                sent = self.like(sent, momentum)
                momentum -= sent
                total += sent
        return [total / len(self.momenta) for total in sums]


def test_it_is_the_published_algorithm(example):
    """What the ranks send of their momenta, to 1e-6; then a step by the signs of its mean."""
    ranks = 3
    by_hand = WrittenOut(ranks)
    with kept_port() as port, ThreadPoolExecutor(ranks) as pool:

        def connect(rank):
            place = {"rank": rank, "world_size": ranks, "address": f"127.0.0.1:{port}"}
            session = deltawire.Session(
                example.SPEC, **place, token=TOKEN, min_elements=example.SIDE
            )
            weights = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
            return session, weights, example.DeMo(weights, session, lr=0.5, weight_decay=0.1)

        every = list(pool.map(connect, range(ranks)))
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(step)
            changes = [[torch.randn(s, generator=generator) for s in SHAPES] for _ in every]
            expected = by_hand.exchange(changes)
            both = zip(every, changes, strict=True)
            for means in pool.map(lambda rank: rank[0][2].exchange(rank[1]), both):
                for mean, other in zip(means, expected, strict=True):
                    assert (mean - other).abs().max() < 1e-6
        for _, weights, _ in every:
            for weight in weights:
                weight.grad = torch.ones_like(weight)
        expected = by_hand.exchange([[torch.full(s, 0.5) for s in SHAPES] for _ in every])
        list(pool.map(lambda rank: rank[2].step(), every))
        for _, weights, _ in every:
            for weight, mean in zip(weights, expected, strict=True):
                assert (weight - (1 - 0.5 * 0.1) + 0.5 * mean.sign()).abs().max() < 1e-6
        list(pool.map(lambda rank: rank[0].close(), every))


def play(rank, world_size, report, port):
    os.environ["DELTAWIRE_TOKEN"] = TOKEN
    with contextlib.redirect_stdout(io.StringIO()) as said:
        run_program(str(EXAMPLE), (str(rank), f"127.0.0.1:{port}"))
    return said.getvalue()


@pytest.mark.timeout(300)
def test_the_program_learns():
    with kept_port() as port:
        said = results(play, 2, port, timeout=250)
    words = [line.split() for line in said]
    assert words[0][-1] == words[1][-1], "the ranks' weights differ"
    assert all(float(line[2]) < 0.3 and float(line[6]) > 40 for line in words), said
