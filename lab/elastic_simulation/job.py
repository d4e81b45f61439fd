"""A job of an elastic session in a simulation: its processes, and what each of them has seen."""

import contextlib
import dataclasses
import gc
import importlib
import logging
import pkgutil
from collections.abc import Iterator
from types import SimpleNamespace

import deltawire.elastic
import deltawire.session.session
import numpy as np
from deltawire.errors import DeltawireError

from lab.elastic_simulation.core import Core
from lab.elastic_simulation.machine import Machine
from lab.elastic_simulation.network import Address, Network
from lab.elastic_simulation.plan import Fault, Plan

_MODULES = (
    deltawire.session.session,
    *(
        importlib.import_module(f"deltawire.elastic.{found.name}")
        for found in pkgutil.iter_modules(deltawire.elastic.__path__)
    ),
)
_FIRST_DOOR = ("10.0.0.0", 29600)
_LONGEST = 900.0  # seconds of a run
_KNOWN = 10.0  # after so long a view's members can tell those that they left out


@dataclasses.dataclass
class Commit:
    """A step that a process has seen committed.

    Attributes:
        before, after: what identifies all steps up to it, on all processes alike.
        members: ids.
        weights: after it.
        at: when.
    """

    process: int
    epoch: int
    step: int
    members: tuple[int, ...]
    before: int
    after: int
    weights: float
    at: float


@dataclasses.dataclass
class Life:
    """A process.

    Attributes:
        error: with which its session ended.
        waited: the longest call of all_reduce, without freezes.
        elements: of the array that it gives.
        stall: how long its program's next call keeps the GIL.
        missed: whether its session ended without a word of those that went on without it.
    """

    process: int
    elements: int = 1
    stall: float = 0.0
    missed: bool = False
    weights: float = 0.0
    history: int = 0
    dead: bool = False
    over: bool = False
    met: bool = False
    error: DeltawireError | None = None
    session: deltawire.session.session.Session | None = None
    frozen: float = 0.0
    waited: float = 0.0
    wishes: set[str] = dataclasses.field(default_factory=set)


# It would hang up lines whenever it runs, which depends on what ran before.
@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _ids(session: deltawire.session.session.Session) -> set[int]:
    return {member["id"] for member in session.members()}


class _SessionNetwork:
    """Stands in for `deltawire.session.network.Network`."""

    def __init__(self, network: Network, token: bytes) -> None:
        self._network, self.token, self.encryption = network, token, "off"

    def _process(self) -> int:
        return self._network.machine.running.process

    def listen(self, meeting_place: Address, rank: int, seconds: float) -> object:
        del seconds
        return self._network.listen(self._process(), meeting_place if rank == 0 else None)

    def listen_on(self, host: str) -> object:
        del host
        if self._network.decides is not None:
            self._network.decides(self._process())
        return self._network.listen(self._process(), None)

    def mesh(
        self, meeting_place: Address, place: tuple[int, int], seconds: float
    ) -> SimpleNamespace:
        mesh = SimpleNamespace(
            rank=place[0], world_size=place[1], place=tuple(meeting_place), seconds=seconds, epoch=0
        )
        mesh.interrupted = lambda: False
        mesh.set_interrupted = lambda asked: setattr(mesh, "interrupted", asked)
        return mesh


class Job:
    """One run.

    Attributes:
        commits: of all processes, in the order of the virtual time.
        broken: promises that were broken while it ran.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.machine = Machine(plan.seed)
        self.network = Network(self.machine, plan.delay)
        self.broken: list[str] = []
        self.core = Core(deltawire.session.session._core, self.network, self.broken.append)
        self.lives: dict[int, Life] = {}
        self.commits: list[Commit] = []
        self.trace: list[str] = []

    def note(self, text: str) -> None:
        """For a reader of the run."""
        self.trace.append(f"{self.machine.now - 1000:10.3f}  {text}")

    def run(self) -> None:
        """To its end."""
        with self._patched(), _without_collector():
            for process in range(self.plan.world):
                self._start(process)
            for fault in self.plan.faults:
                self.machine.after(fault.at, lambda f=fault: self._happen(f))
            if not self.machine.run(self._goes_on, _LONGEST):
                late = [
                    each.process for each in self.lives.values() if not (each.over or each.dead)
                ]
                self.broken.append(f"processes {late} have not ended after {_LONGEST:g} s")
            for life in self.lives.values():
                if life.session is not None:
                    life.session._end.detach()
            self.machine.end()
        self.broken += self.machine.problems

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        stands_in = {
            "time": self.machine.time(),
            "threading": self.machine.threading(),
            "_core": self.core,
            "Network": lambda token, *_: _SessionNetwork(self.network, token),
            "leave_at_exit": lambda session: None,
            "forget": lambda session: None,
            "TEXT_BYTES_MAX": self.plan.text_bytes,
        }
        kept = [
            (module, name, getattr(module, name))
            for module in _MODULES
            for name in stands_in
            if hasattr(module, name)
        ]
        level = logging.getLogger("deltawire").level
        logging.getLogger("deltawire").setLevel(logging.CRITICAL)
        for module, name, _ in kept:
            setattr(module, name, stands_in[name])
        try:
            yield
        finally:
            for module, name, value in kept:
                setattr(module, name, value)
            logging.getLogger("deltawire").setLevel(level)

    def _goes_on(self) -> bool:
        return any(not (each.over or each.dead) for each in self.lives.values())

    def _start(self, process: int, elements: int = 1) -> None:
        self.lives[process] = Life(process, elements)
        self.machine.start(process, lambda: self._live(self.lives[process]))

    # A process' program: it trains until all steps are done, or its session ends.
    def _live(self, life: Life) -> None:
        try:
            self._train(life)
            self.note(f"process {life.process} has done all")
        except DeltawireError as error:
            life.error = error
            life.missed = self._has_missed(life)
            self.note(f"process {life.process} ends: {error.code}: {error}")
        finally:
            life.over = True

    # Whether others that it knows have gone on without it for a while, and can tell.
    def _has_missed(self, life: Life) -> bool:
        if life.session is None or life.error.code == "Excluded":
            return False
        known, own = _ids(life.session), life.session._crew._id
        since = {}
        for each in self.commits:
            since.setdefault(each.epoch, each.at)
        return any(
            self.network.hears(life.process, other.process)
            and other.process not in self.machine.frozen
            and since.get(other.session.epoch, self.machine.now) < self.machine.now - _KNOWN
            and other.session._crew._id in known
            and own not in _ids(other.session)
            for other in self.lives.values()
            if other.session is not None and not (other.dead or other.over)
        )

    def _session(self, life: Life) -> deltawire.session.session.Session:
        plan = self.plan
        place = (
            {"rank": life.process, "world_size": plan.world} if life.process < plan.world else {}
        )
        door = _FIRST_DOOR if place else self._some_door()
        return deltawire.session.session.Session(
            "direct(fp32)",
            **place,
            address=f"{door[0]}:{door[1]}",
            token=b"x" * 32,
            timeout=plan.timeout,
            connect_timeout=plan.meeting,
            arrival_timeout=plan.timeout,
            elastic=True,
            state=lambda: {
                "weights": np.array([life.weights]),
                "history": np.array([life.history]),
            },
        )

    def _some_door(self) -> tuple[str, int]:
        doors = [
            (member["id"], member["address"])
            for each in self.lives.values()
            if each.session is not None and not each.dead
            for member in each.session.members()
        ]
        host, port = self.machine.draw.choice(doors or [(0, "10.0.0.0:29600")])[1].split(":")
        return host, int(port)

    def _train(self, life: Life) -> None:
        session = life.session = self._session(life)
        life.met = True
        if session.joined_state is not None:
            life.weights = float(session.joined_state["weights"][0])
            life.history = int(session.joined_state["history"][0])
            self.note(f"process {life.process} has joined at step {session.steps}")
        while session.steps < self.plan.steps:
            self.machine.block(self.machine.now + self.plan.pause * self.machine.draw.random())
            if "leave" in life.wishes:
                break
            if "raise" in life.wishes:
                session._leave(RuntimeError("a fault of the program" + 400 * "."))
                return
            if life.stall:
                self._stall(life)
            self._step(life, session)
        session.close()

    def _step(self, life: Life, session: deltawire.session.session.Session) -> None:
        array = np.full(life.elements, (7 * life.process + 3 * session.steps) % 50, np.float32)
        began, frozen = self.machine.now, life.frozen
        session.all_reduce({"w": array})
        life.waited = max(life.waited, self.machine.now - began - (life.frozen - frozen))
        members = tuple(member["id"] for member in session.members())
        before, step = life.history, session.steps - 1
        life.weights += float(array[0])
        life.history = hash((before, step, session.epoch, members, float(array[0]))) >> 1
        self.commits.append(
            Commit(
                life.process,
                session.epoch,
                step,
                members,
                before,
                life.history,
                life.weights,
                self.machine.now,
            )
        )
        where = f"in epoch {session.epoch} of {members}"
        self.note(f"process {life.process} has committed step {step} {where}")

    def _happen(self, fault: Fault) -> None:
        if fault.kind in ("join", "misfit"):
            self.note("a process wants to join" + " with another shape" * (fault.kind == "misfit"))
            self._start(len(self.lives), 1 if fault.kind == "join" else 2)
            return
        if fault.kind == "freeze host":
            self.network.decides = lambda process: self._freeze_at_once(process, fault.lasts)
            return
        if fault.kind == "freeze giver":
            self.core.gives = lambda process: self._freeze_at_once(process, fault.lasts)
            return
        life = self.lives.get(fault.process)
        if life is None or life.dead or life.over:
            return
        self.note(
            f"process {fault.process}: {fault.kind}, for {fault.lasts:.3f} s, {sorted(fault.group)}"
        )
        if fault.kind in ("leave", "raise"):
            life.wishes.add(fault.kind)
        elif fault.kind == "kill":
            self._kill(life)
        elif fault.kind == "power off":
            life.dead = True
            self.machine.frozen.add(life.process)
            self.network.off.add(life.process)
            self._cut(frozenset((life.process,)), None)
        elif fault.kind == "freeze":
            self._freeze(life, fault.lasts)
        elif fault.kind == "stall":
            life.stall = fault.lasts
        else:
            self._cut(fault.group, fault.lasts)

    def _kill(self, life: Life) -> None:
        life.dead = True
        self.machine.frozen.add(life.process)
        self.network.kill(life.process)
        for mesh in self.core.meshes:
            mesh.lose(life.process)

    def _freeze(self, life: Life, seconds: float) -> None:
        if life.process in self.machine.frozen:
            return
        self.machine.frozen.add(life.process)

        def thaw() -> None:
            life.frozen += seconds
            if not life.dead:
                self.note(f"process {life.process} wakes up")
                self.machine.frozen.discard(life.process)
                self.machine.thaw(life.process)

        self.machine.after(seconds, thaw)

    # A call of its program keeps the GIL; the core's threads go on.
    def _stall(self, life: Life) -> None:
        seconds, life.stall = life.stall, 0.0
        self.note(f"process {life.process} keeps its GIL")
        self.machine.stalled.add(life.process)

        def end() -> None:
            self.machine.stalled.discard(life.process)
            self.machine.thaw(life.process)

        self.machine.after(seconds, end)
        self.machine.block(self.machine.now)

    # A host that has agreed with all others, and has told nobody yet; or a member that gives.
    def _freeze_at_once(self, process: int, seconds: float) -> None:
        self.network.decides = self.core.gives = None
        self.note(f"process {process} freezes in a meeting for {seconds:.3f} s")
        self._freeze(self.lives[process], seconds)
        self.machine.block(self.machine.now)

    def _cut(self, group: frozenset[int], seconds: float | None) -> None:
        # Processes that join later are on the side of the others.
        pairs = [(a, b) for a in range(16) for b in range(16) if (a in group) != (b in group)]
        for pair in pairs:
            self.network.cut(*pair)
        if seconds is not None:
            self.machine.after(seconds, lambda: [self.network.heal(*pair) for pair in pairs])
