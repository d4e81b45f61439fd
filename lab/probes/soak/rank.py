"""A rank of the soak: it trains, injects its faults, and recovers."""

import dataclasses
import hashlib
import logging
import os
import random
import signal
import socket
import stat
from pathlib import Path

import deltawire
import deltawire.torch
import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from lab.models.lenet import LeNet5
from lab.ranks.rank import Line, Place, process_group

# How a rank fails, and the consequence.
KINDS = {
    "kill": "SIGKILL: its process, its weights and its residuals are gone",
    "cut": "one of its connections is shut down, both ways",
    "garble": "unsolicited bytes go into one of its connections",
    "raise": "an exception of its own code aborts the step",
    "freeze": "SIGSTOP, until the others have dropped it",
}
MOMENTS = ("before", "amid", "after")  # the backward pass; "after" is after the whole step
LOGGED = 50  # steps between two digests of the weights
_GROUP_SECONDS = 60.0
_BUCKET_CAP_MB = 0.1  # several buckets
_HIDDEN = 32  # LeNet5's own is 500


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of rank `victim` at a step."""

    step: int
    kind: str
    victim: int
    moment: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings of a run, equal on all ranks. `folder` has checkpoints and rendezvous files."""

    spec: str
    steps: int
    ranks: int
    batch: int
    seed: int
    folder: Path
    checkpoint_every: int
    timeout: float
    faults: tuple[Fault, ...] = ()


@dataclasses.dataclass(frozen=True)
class Order:
    """One attempt: from the checkpoint of a step, or from each rank's current state (None). Faults
    whose index is in `fired` don't happen again."""

    number: int
    checkpoint: int | None
    fired: frozenset[int]


@dataclasses.dataclass
class Report:
    """How an attempt ended on a rank: its next step, the digest of its weights, and the error
    (empty: all steps are done)."""

    step: int
    digest: str
    error: str = ""
    code: str = ""


class _OwnException(Exception):
    """An exception from the user's code."""


def run_rank(place: Place, line: Line, plan: Plan) -> None:
    """Makes attempts, as ordered, until the line ends."""
    logging.getLogger("deltawire").setLevel(logging.CRITICAL)  # errors are in the reports
    life = _Life(place, line, plan)
    while True:
        line.send(life.attempt(line.receive()))


class _Life:
    """A rank's process; only the state is kept from one attempt to the next."""

    def __init__(self, place: Place, line: Line, plan: Plan) -> None:
        self._place, self._line, self._plan = place, line, plan
        self._state: dict = {}

    def attempt(self, order: Order) -> Report:
        """Trains until all is done or something fails."""
        if order.checkpoint is not None:
            self._state = self._loaded(order.checkpoint)
        store = str(self._plan.folder / f"attempt-{order.number}")
        with process_group(dataclasses.replace(self._place, store=store), _GROUP_SECONDS):
            return self._train(order)

    def _train(self, order: Order) -> Report:
        trained = _Training(self._plan, self._state)
        faults = _Faults(self._plan, self._place.rank, order.fired, trained, self._line)
        failed = None
        while failed is None and trained.step < self._plan.steps:
            try:
                faults.around_step(self._place.rank)
            except (RuntimeError, _OwnException) as cause:
                failed = trained.hook.last_error or cause
                break
            if trained.step % LOGGED == 0:
                self._line.send((trained.step, trained.digest()))
            if trained.step % self._plan.checkpoint_every == 0:
                self._save(trained.state())
        trained.hook.close()
        self._state = trained.state()
        code = getattr(failed, "code", type(failed).__name__)
        return Report(trained.step, trained.digest(), str(failed or ""), code if failed else "")

    def _save(self, state: dict) -> None:
        """Writes a checkpoint completely or not at all. The last three are kept, because a rank may
        die before it writes its own."""
        step, every = state["step"], self._plan.checkpoint_every
        file = checkpoint(self._plan.folder, self._place.rank, step)
        torch.save(state, file.with_suffix(".part"))
        os.replace(file.with_suffix(".part"), file)
        checkpoint(self._plan.folder, self._place.rank, step - 3 * every).unlink(missing_ok=True)

    def _loaded(self, step: int) -> dict:
        file = checkpoint(self._plan.folder, self._place.rank, step)
        return torch.load(file, weights_only=True) if step else {}


class _Training:
    """A model, its optimizer and its hook, from a state (empty: from the seed)."""

    def __init__(self, plan: Plan, state: dict) -> None:
        self._plan = plan
        self.step = state.get("step", 0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seed)
            self.network = LeNet5(_HIDDEN)
            self._teacher = torch.randn(28 * 28, 10)
        self._optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9)
        if state:
            self.network.load_state_dict(state["weights"])
            self._optimizer.load_state_dict(state["optimizer"])
        self._model = DistributedDataParallel(self.network, bucket_cap_mb=_BUCKET_CAP_MB)
        sees = deltawire.uses_significance(plan.spec)
        sockets = _own_sockets()
        self.hook = deltawire.torch.register(
            self._model,
            plan.spec,
            optimizer=self._optimizer if sees else None,
            timeout=plan.timeout,
            arrival_timeout=plan.timeout,
        )
        self.connections = sorted(_own_sockets() - sockets)
        if state:
            self.hook.load_state_dict(state["hook"])

    def loss(self, rank: int) -> torch.Tensor:
        """The loss on random images labelled by a linear teacher; each step and rank has its
        own."""
        place = self._plan.seed * 1_000_003 + self.step * self._plan.ranks + rank
        generator = torch.Generator().manual_seed(place)
        images = torch.randn(self._plan.batch, 1, 28, 28, generator=generator)
        labels = (images.flatten(1) @ self._teacher).argmax(1)
        self._optimizer.zero_grad()
        return cross_entropy(self._model(images), labels)

    def descend(self) -> None:
        """Takes the optimizer's step and counts it."""
        self._optimizer.step()
        self.step += 1

    def digest(self) -> str:
        """A digest of every bit of every weight."""
        text = hashlib.sha256()
        for parameter in self.network.parameters():
            text.update(parameter.detach().numpy().tobytes())
        return text.hexdigest()[:16]

    def state(self) -> dict:
        """Everything that the next attempt needs; after a failure, the state before the failed
        step."""
        hook = self.hook.state_dict()
        return {
            "step": self.step,
            "weights": {k: v.clone() for k, v in self.network.state_dict().items()},
            "optimizer": self._optimizer.state_dict(),
            "hook": hook,
        }


class _Faults:
    """Takes steps, and injects this rank's faults."""

    def __init__(
        self, plan: Plan, rank: int, fired: frozenset[int], trained: _Training, line: Line
    ):
        self._due = {
            fault.step: (index, fault)
            for index, fault in enumerate(plan.faults)
            if fault.victim == rank and index not in fired
        }
        self._trained, self._line = trained, line
        self._random = random.Random(f"{plan.seed} {rank}")

    def around_step(self, rank: int) -> None:
        """A step of training with this rank's fault, if any; raises the step's error."""
        trained = self._trained
        index, fault = self._due.get(trained.step, (0, None))
        moment = fault.moment if fault else ""
        loss = trained.loss(rank)
        handle = None
        if moment == "before":
            self._fire(index, fault)
        elif moment == "amid":  # at that point the linear layers' gradients are in flight
            handle = trained.network.conv2.weight.register_hook(
                lambda gradient: self._fire(index, fault)
            )
        try:
            loss.backward()
        finally:
            if handle is not None:
                handle.remove()
        trained.descend()
        if moment == "after":
            self._fire(index, fault)

    def _fire(self, index: int, fault: Fault) -> None:
        self._line.send(index)
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault.kind == "raise":
            raise _OwnException("a bug of the training loop")
        else:
            number = self._random.choice(self._trained.connections)
            with socket.socket(fileno=os.dup(number)) as connection:
                if fault.kind == "cut":
                    connection.shutdown(socket.SHUT_RDWR)
                else:
                    connection.send(self._random.randbytes(64), socket.MSG_DONTWAIT)


def checkpoint(folder: Path, rank: int, step: int) -> Path:
    """The file of a rank's state at a step."""
    return folder / f"rank-{rank}-step-{step}.pt"


def _own_sockets() -> set[int]:
    """This process's descriptors of connections: TCP, and Unix sockets on one machine."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                one.getpeername()
                if one.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
                    found.add(int(name))
        except OSError:  # closed meanwhile, or listening
            continue
    return found
