"""Measures how far subscribers of live weights are behind their publisher, while things go wrong.

    python -m lab.probes.live_weights [--link 100mbit] [--versions 30] [--fanouts none 2]

One publisher and eight subscribers, each in a network namespace behind a link of this rate (`tbf`;
needs root), a version every second. Subscriber 2 is killed and started again, a bit of a file for
subscriber 3 changes on the way, subscriber 4's cache is on a disk too small for a snapshot, which
grows later, and something else writes to the weights of subscriber 5. In all of them a thread reads
the weights under `reading()` all the time; each digest that it sees must be a published version's.

The lag is from before `publish()` until after `update()`, in seconds.
"""

import argparse
import contextlib
import dataclasses
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lab.command.program import main_of, make_parser
from lab.probes.live_weights.rank import CORRUPTED, FULL, KILLED, TAMPERED, Job, Summary, run
from lab.ranks.launcher import Launcher, RankEnded, RanksFailed
from lab.ranks.links import Link, parse_link
from lab.ranks.namespaces import NamespaceError, Namespaces

_SILENCE_SECONDS = 120.0
_SMALL_DISK, _LARGE_DISK = "128k", "256m"
_FAULTS = {
    KILLED: "killed, started again",
    CORRUPTED: "a file changed on the way",
    FULL: "disk full, then not",
    TAMPERED: "weights written to",
}


@dataclasses.dataclass
class Course:
    """What the launcher has heard.

    Attributes:
        published: when each version was, by its number.
        digests: of all versions.
        publishing: seconds that each `publish` took.
        updated: of each subscriber, when its update to a version had ended, by its number.
        said: of each subscriber, its warnings, problems and errors.
        summaries: of each subscriber.
        sent: bytes from the publisher, for the versions and in all.
    """

    published: dict[int, float] = dataclasses.field(default_factory=dict)
    digests: set[str] = dataclasses.field(default_factory=set)
    publishing: list[float] = dataclasses.field(default_factory=list)
    updated: dict[int, dict[int, float]] = dataclasses.field(default_factory=dict)
    said: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    summaries: dict[int, Summary] = dataclasses.field(default_factory=dict)
    sent: tuple[int, int] = (0, 0)

    def lags(self, rank: int) -> dict[int, float]:
        """Of a subscriber, in seconds, by version. What it says may arrive before what the
        publisher says: not before all is heard."""
        return {version: at - self.published[version] for version, at in self.updated[rank].items()}


class Watch:
    """Starts the ranks, listens to them, and does to them what happens to them."""

    def __init__(self, ranks: Launcher, job: Job, subscribers: int) -> None:
        self.ranks, self.job, self.subscribers = ranks, job, subscribers
        self.course = Course()
        self.alive = set(range(subscribers + 1))
        self.kill_at, self.return_at = job.versions // 4, job.versions // 2
        self.grow_at = job.versions // 3

    def run(self) -> Course:
        """Until all subscribers have the last version."""
        self.ranks.start(self.job)
        able = {rank for rank in range(1, self.subscribers + 1) if rank != FULL}
        self._listen(lambda: all(0 in self.course.updated.get(rank, {}) for rank in able))
        self._listen(lambda: self.course.said.get(FULL))
        self.ranks.send_to(0, "go")
        everybody = range(1, self.subscribers + 1)
        self._listen(lambda: all(rank in self.course.summaries for rank in everybody))
        self.ranks.send_to(0, "all have it")
        self._listen(lambda: self.course.sent[1])
        return self.course

    def _listen(self, done) -> None:
        deadline = time.monotonic() + _SILENCE_SECONDS + self.job.versions * self.job.interval
        while not done():
            if time.monotonic() > deadline:
                raise RanksFailed(f"not in time; so far they said {self.course.said}")
            try:
                rank, message = self.ranks.receive(_SILENCE_SECONDS, self.alive)
            except RankEnded as end:
                if end.rank != KILLED or end.status != -signal.SIGKILL:
                    raise
                self.alive.discard(KILLED)
                continue
            self._hear(rank, message)

    def _hear(self, rank: int, message) -> None:
        course = self.course
        if isinstance(message, Summary):
            course.summaries[rank] = message
            return
        kind, *values = message
        if kind == "published":
            version, at, digest = values
            course.published[version] = at
            course.digests.add(digest)
            self._happen(version)
        elif kind == "updated":
            version, at = values
            course.updated.setdefault(rank, {})[version] = at
        elif kind == "said":
            course.said.setdefault(rank, []).append(f"{values[0]}")
        elif kind == "took":
            course.publishing.append(values[0])
        else:
            course.sent = (values[0], values[1])

    def _happen(self, version: int) -> None:
        if version == self.kill_at:
            self.ranks.signal(KILLED, signal.SIGKILL)
        elif version == self.return_at:
            self.ranks.start_rank(KILLED, self.job)
            self.alive.add(KILLED)
        if version == self.grow_at:
            folder = f"{self.job.caches}/{FULL}"
            _command("mount", "-o", f"remount,size={_LARGE_DISK}", folder)


@contextlib.contextmanager
def caches() -> Iterator[str]:
    """Folders for caches, of which one is a small disk of its own."""
    with tempfile.TemporaryDirectory(prefix="deltawire-lab-") as folder:
        small = Path(folder) / str(FULL)
        small.mkdir()
        _command("mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", str(small))
        try:
            yield folder
        finally:
            _command("umount", "--lazy", str(small))


def _command(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NamespaceError(f"'{' '.join(command)}' failed: {done.stderr.strip()}; it needs root")


def measure(given: argparse.Namespace, fanout: int | None) -> Course:
    """One run.

    Raises:
        NamespaceError: this machine has no namespaces or mounts for us.
        RanksFailed: a rank ended early, or is silent.
    """
    count = given.subscribers
    with (
        caches() as folder,
        Namespaces(count + 1, given.link.bytes_per_second) as network,
        Launcher(run, count + 1, network) as ranks,
    ):
        job = Job(
            given.weights,
            given.share,
            given.versions,
            given.interval,
            fanout,
            network.address(0),
            secrets.token_bytes(32),
            folder,
            corrupt_at=given.versions // 3,
            tamper_at=given.versions // 2,
        )
        return Watch(ranks, job, count).run()


def mixtures(course: Course) -> set[str]:
    """Digests that somebody read and that no version has."""
    seen = set().union(*(each.digests for each in course.summaries.values()))
    return seen - course.digests


def show(course: Course, fanout: int | None, link: Link) -> None:
    """Prints a run's table, and what was said."""
    kind = "all read from the publisher" if fanout is None else f"a tree with a fanout of {fanout}"
    print(f"\n## {kind}, links of {link.text}\n")
    print("| subscriber | what happened | versions | lag | longest | received | sent | reads |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for rank, summary in sorted(course.summaries.items()):
        lags = [lag for version, lag in course.lags(rank).items() if version > 0]
        print(
            f"| {rank} | {_FAULTS.get(rank, '')} | {len(lags)} | {statistics.median(lags):.3f} | "
            f"{max(lags):.3f} | {summary.received:,} | {summary.sent:,} | {summary.reads} |"
        )
    versions, total = course.sent
    print(
        f"\nThe publisher sent {versions:,} bytes for versions 1 to {max(course.published)}, "
        f"{total:,} in all. `publish()` took {1e3 * statistics.median(course.publishing):.1f} ms, "
        f"{1e3 * max(course.publishing):.1f} at most."
    )
    found = mixtures(course)
    reads = sum(each.reads for each in course.summaries.values())
    print(f"Mixtures of versions: {len(found)} in {reads:,} reads.\n")
    for rank, said in sorted(course.said.items()):
        for text in dict.fromkeys(said):
            print(f"- {rank} {text}")


def run_all(given: argparse.Namespace) -> int:
    """All runs; fails if somebody read a mixture."""
    bad = 0
    for fanout in given.fanouts:
        course = measure(given, fanout)
        show(course, fanout, given.link)
        sys.stdout.flush()
        bad += len(mixtures(course))
    return 1 if bad else 0


def _fanout(text: str) -> int | None:
    return None if text == "none" else int(text)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.live_weights", __doc__)
    parser.add_argument("--link", type=parse_link, default=parse_link("100mbit"))
    parser.add_argument("--subscribers", type=int, default=8, help="5 or more; default 8")
    parser.add_argument("--versions", type=int, default=30, help="12 or more; default 30")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds; default 1")
    parser.add_argument("--weights", type=int, default=4_000_000, help="default 4,000,000")
    parser.add_argument("--share", type=float, default=0.02, help="that change; default 0.02")
    parser.add_argument("--fanouts", nargs="+", type=_fanout, default=[None, 2])
    given = parser.parse_args(arguments)
    if given.subscribers < TAMPERED or given.versions < 12 or given.weights < 100_000:
        parser.error("5 subscribers, 12 versions and 100,000 weights are the least")
    return given


main = main_of("lab.probes.live_weights", parse, run_all, NamespaceError, RanksFailed)


if __name__ == "__main__":
    sys.exit(main())
