"""Two sites train over a thin and long line, encrypted, while a process is killed and comes back.

    python -m lab.probes.far_sites [--link 20mbit] [--delay 200] [--loss 0] [--ranks 4]

Half of the processes is in each of two network namespaces (root, /dev/net/tun), which a line joins
that has this rate, and this delay in milliseconds in each direction. They train a linear model of a
million parameters by rounds of local steps in an elastic session (`ElasticLocalSteps`), by each
method in turn. In the middle the last process is killed; the others go on without it; it is started
again and joins. Shown are the medians of rank 0: seconds that a round's exchange takes, megabytes
that its site sends in it (headers and acknowledgements included), and the share of the line's rate;
then the seconds from the kill to the next round that counts, and from the new process's start to
the first round that all have taken; and the loss at the beginning and at the end.
"""

import argparse
import dataclasses
import secrets
import statistics
import sys
import time

from lab.command.program import main_of, make_parser
from lab.ranks.far_sites import FarSites
from lab.ranks.launcher import Launcher, RanksFailed
from lab.ranks.links import Link, parse_link
from lab.ranks.namespaces import NamespaceError, interface_bytes
from lab.ranks.rank import Line, Place

FEATURES, BATCH, LOCAL_STEPS = 1000, 64, 20
KILLED, BACK = 4, 7  # after how many rounds
AFTER, MOST_ROUNDS = 3, 60  # rounds when all are there again; and if they never are
_PORT = 29_800
_SECONDS = 300.0  # that a round may take
# Method: exchange, outer optimizer.
METHODS = {
    "DiLoCo": ("direct(fp32)", "nesterov"),
    "DiLoCo, hierarchical": ("hierarchical:group={half}(fp32)", "nesterov"),
    "DiLoCo with 3lc": ("direct(3lc)", "nesterov"),
    "DiLoCo with 3lc, hierarchical": ("hierarchical:group={half}(3lc)", "nesterov"),
    "SBC": ("gather(sbc:p=1%)", None),
}


@dataclasses.dataclass(frozen=True)
class Job:
    """The parameters of every rank."""

    spec: str
    outer: str | None
    server: str  # rank 0's address
    token: bytes


@dataclasses.dataclass(frozen=True)
class Round:
    """What rank 0 says of a round: how many had finished, when, how long the exchange took, the
    bytes that its site sent meanwhile, how many members there were, their doors, and the loss."""

    number: int
    at: float
    seconds: float
    sent: int
    members: int
    doors: str
    loss: float


def member(place: Place, line: Line, job: Job, doors: str) -> None:
    """A process; with `doors` it joins."""
    import deltawire.torch
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(7)
    truth = torch.randn(FEATURES, FEATURES)
    model = torch.nn.Linear(FEATURES, FEATURES, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=3.0)
    torch.manual_seed(time.monotonic_ns() % 2**31 + place.rank)
    own_place = {} if doors else {"rank": place.rank, "world_size": place.ranks}
    trainer = deltawire.torch.ElasticLocalSteps(
        model,
        optimizer,
        job.spec,
        steps=LOCAL_STEPS,
        outer=job.outer,
        **own_place,
        address=doors or f"{job.server}:{_PORT}",
        interface=place.address,
        token=job.token,
        encryption="required",
        timeout=_SECONDS,
        connect_timeout=_SECONDS,
        arrival_timeout=_SECONDS,
    )
    last = MOST_ROUNDS
    while trainer.round < last:
        finished = trainer.round
        if trainer.session.epoch > 1 and trainer.session.world_size == place.ranks:
            last = min(last, finished + AFTER)  # the same on all
        while trainer.round == finished:
            inputs = torch.randn(BATCH, FEATURES)
            loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth.T)
            optimizer.zero_grad()
            loss.backward()
            sent, began = interface_bytes(place.interface)[0], time.monotonic()
            trainer.step()
        now = time.monotonic()
        if place.rank == 0:
            members = trainer.session.members()
            addresses = ",".join(each["address"] for each in members)
            sent = interface_bytes(place.interface)[0] - sent
            line.send(
                Round(trainer.round, now, now - began, sent, len(members), addresses, loss.item())
            )
    trainer.close()
    if place.rank == 0:
        line.send(None)


def train(sites: FarSites, ranks: int, job: Job) -> tuple[list[Round], float, float]:
    """Rank 0's rounds, and when the last rank was killed and started again.

    Raises:
        RanksFailed: rank 0 ended early, or nothing went on.
    """
    rounds: list[Round] = []
    killed = back = 0.0
    with Launcher(member, ranks, sites) as started:
        started.start(job, "")
        while (said := started.receive(_SECONDS, [0])[1]) is not None:
            rounds.append(said)
            if rounds[-1].number == KILLED:
                killed = time.monotonic()
                started.signal(ranks - 1, 9)
            if rounds[-1].number == BACK:
                back = time.monotonic()
                started.start_rank(ranks - 1, job, rounds[-1].doors)
    return rounds, killed, back


def row(method: str, link: Link, ranks: int, found: tuple[list[Round], float, float]) -> str:
    """A line of the table. Rounds while members change don't count."""
    rounds, killed, back = found
    whole = [each for each in rounds[1:KILLED] if each.members == ranks]
    seconds = statistics.median(each.seconds for each in whole)
    sent = statistics.median(each.sent for each in whole)
    share = sent / seconds / link.bytes_per_second
    without = next((each.at for each in rounds if each.members < ranks), None)
    again = next((each.at for each in rounds if each.at > back and each.members == ranks), None)
    lost = "-" if without is None else f"{without - killed:.1f}"
    joined = "-" if again is None else f"{again - back:.1f}"
    return (
        f"| {method} | {seconds:.2f} | {sent / 1e6:.2f} | {share:.0%} | {lost} | {joined} | "
        f"{rounds[0].loss:.0f} | {rounds[-1].loss:.1f} |"
    )


def run(given: argparse.Namespace) -> None:
    """Measures, and prints the table."""
    print(
        "| method | exchange, s | MB sent by a site | of the line's rate | killed: next round "
        "after, s | back: first round after, s | loss, first | loss, last |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for method in given.methods:
        spec, outer = METHODS[method]
        with FarSites(
            given.ranks, given.link.bytes_per_second, given.delay / 1e3, given.loss
        ) as sites:
            spec = spec.format(half=given.ranks // 2)
            job = Job(spec, outer, sites.address(0), secrets.token_bytes(32))
            found = train(sites, given.ranks, job)
            print(row(f"{method}: `{spec}`", given.link, given.ranks, found), flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.far_sites", __doc__)
    parser.add_argument("--link", type=parse_link, default="20mbit")
    parser.add_argument("--delay", type=float, default=200.0, help="ms one way; default 200")
    parser.add_argument("--loss", type=float, default=0.0, help="part of the packets; default 0")
    parser.add_argument("--ranks", type=int, default=4, help="of both sites; default 4")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    given = parser.parse_args(arguments)
    if given.link.bytes_per_second is None or given.ranks < 4 or given.ranks % 2:
        parser.error("--link is a rate, and --ranks are an even number from 4 up")
    if not (0 <= given.loss < 1 and 0 <= given.delay <= 2000):
        parser.error("--loss is at least 0 and below 1, and --delay at most 2000 ms")
    return given


main = main_of("lab.probes.far_sites", parse, run, NamespaceError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
