"""A rank of the probe: rank 0 trains and publishes, each other one serves from weights that follow.

Times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

import dataclasses
import threading
import time
import warnings

import torch
from deltawire.live import Publisher, Subscriber
from deltawire.weights.live import peer
from deltawire.weights.store.model_tensors import Model

from lab.ranks.rank import Line, Place

PORT = 29_700
KILLED, CORRUPTED, FULL, TAMPERED = 2, 3, 4, 5  # ranks, by what happens to them
_CHECK_SECONDS = 0.05  # between reads of the weights


@dataclasses.dataclass(frozen=True)
class Job:
    """What all ranks do.

    Attributes:
        weights: of the model, bfloat16.
        share: of them that change from version to version.
        versions: after the first, number 0.
        interval: seconds between them.
        fanout: of the tree; None: all read from the publisher.
        server: rank 0's address.
        token: of all connections.
        caches: a folder for each rank, by its number.
        corrupt_at, tamper_at: the versions at which these faults happen.
    """

    weights: int
    share: float
    versions: int
    interval: float
    fanout: int | None
    server: str
    token: bytes
    caches: str
    corrupt_at: int
    tamper_at: int


@dataclasses.dataclass(frozen=True)
class Summary:
    """A subscriber's last message.

    Attributes:
        received, sent: bytes.
        reads: how often the weights were read while they might be updated.
        digests: of what was read.
    """

    received: int
    sent: int
    reads: int
    digests: set[str]


def run(place: Place, line: Line, job: Job) -> None:
    """A rank's program."""
    if place.rank == 0:
        train(place, line, job)
    else:
        Replica(place, line, job).follow()
    line.receive()  # until the launcher ends this process: others may still read from here


def train(place: Place, line: Line, job: Job) -> None:
    """Publishes a version each interval; tells when, and each version's digest."""
    draw = torch.Generator().manual_seed(1)
    model = {"weights": torch.randn(job.weights, generator=draw).bfloat16()}
    fanout = job.fanout or place.ranks
    publisher = Publisher(model, f"{place.address}:{PORT}", token=job.token, fanout=fanout)
    line.send(("published", 0, time.monotonic(), Model(model).digest()))
    publisher.publish(0)
    line.receive()  # all subscribers that can have it
    bits = model["weights"].view(torch.int16)
    begun = time.monotonic()
    before = publisher.bytes_sent
    for version in range(1, job.versions + 1):
        time.sleep(max(0.0, begun + version * job.interval - time.monotonic()))
        chosen = torch.randint(job.weights, (int(job.share * job.weights),), generator=draw)
        bits[chosen.unique()] += 1
        now = time.monotonic()
        publisher.publish(version)
        took = time.monotonic() - now
        line.send(("took", took))
        line.send(("published", version, now, Model(model).digest()))
    line.receive()  # all subscribers that have the last version
    line.send(("sent", publisher.bytes_sent - before, publisher.bytes_sent))


class Replica:
    """A subscriber, and a thread that reads its weights all the time."""

    def __init__(self, place: Place, line: Line, job: Job) -> None:
        self.rank, self.line, self.job = place.rank, line, job
        self.said: list[str] = []
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: self.said.append(f"warned: {message}")
        if self.rank == CORRUPTED:
            _corrupt(job.corrupt_at)
        self.model = {"weights": torch.zeros(job.weights, dtype=torch.bfloat16)}
        self.subscriber = Subscriber(
            self.model,
            f"{job.server}:{PORT}",
            token=job.token,
            serve=f"{place.address}:{PORT}" if job.fanout is not None else None,
            cache=f"{job.caches}/{self.rank}" if self.rank in (KILLED, FULL) else None,
        )
        self.reads = 0
        self.digests: set[str] = set()
        self.tampered = False
        self.ended = threading.Event()
        self.checker = threading.Thread(target=self._check, daemon=True)

    def follow(self) -> None:
        """Updates until the last version; says when it has each, and what goes wrong."""
        self.checker.start()
        at = None
        problem = ""
        while at != self.job.versions:
            now = str(self.subscriber.problem or "")
            if now and now != problem:
                self.said.append(f"problem: {now}")
            problem = now
            for text in self.said[:]:
                self.line.send(("said", text))
                self.said.remove(text)
            latest = self.subscriber.latest
            if latest is None or latest == at:
                time.sleep(0.002)
                continue
            try:
                at = self.subscriber.update()
            except RuntimeError as error:
                self.said.append(f"update() raised {getattr(error, 'code', '?')}: {error}")
                continue
            self.tampered = False
            self.line.send(("updated", at, time.monotonic()))
            if self.rank == TAMPERED and at == self.job.tamper_at:
                with self.subscriber.reading():
                    self.tampered = True
                    self.model["weights"][123] = 7
        self.ended.set()
        self.checker.join(10)
        self.line.send(
            Summary(
                self.subscriber.bytes_received,
                self.subscriber.bytes_sent,
                self.reads,
                self.digests,
            )
        )

    def _check(self) -> None:
        while not self.ended.wait(_CHECK_SECONDS):
            with self.subscriber.reading():
                if self.subscriber.version is None or self.tampered:
                    continue
                digest = Model(self.model).digest()
                if self.tampered:
                    continue
            self.digests.add(digest)
            self.reads += 1


def _corrupt(version: int) -> None:
    """Flips a bit of what arrives of a version's patch, once."""
    real = peer.Peer.read
    left = [1]

    def read(self: peer.Peer, name: str, offset: int, count: int) -> bytes:
        data = real(self, name, offset, count)
        if left and name.startswith(f"{version:012}-from"):
            left.pop()
            data = data[:-1] + bytes([data[-1] ^ 1])
        return data

    peer.Peer.read = read
