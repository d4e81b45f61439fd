"""What stands in for the module `_core` in the code of elastic sessions: doors, and meshes whose
ranks all connect, or that fail."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace

from deltawire.errors import DeltawireError, make_error

from lab.elastic_simulation.machine import Signal
from lab.elastic_simulation.mesh import Books, Mesh, Residuals, unpack
from lab.elastic_simulation.network import Address, Doorkeeper, Line, Listener, Network

_LOOK = 0.05  # seconds between two looks at who has come
_GRACE = 2.0  # seconds until a rank that hung up counts as gone


@dataclasses.dataclass
class _Attendant:
    process: int
    rank: int
    result: "Mesh | DeltawireError | None" = None


class _Gathering:
    """Ranks that connect at one place."""

    def __init__(self, core: "Core", world_size: int, epoch: int) -> None:
        self.network, self.world_size, self.epoch = core.network, world_size, epoch
        self._books = core.books
        self.come: dict[int, _Attendant] = {}
        self.news = Signal(core.network.machine)

    def look(self) -> None:
        """Connects them if all are there and hear each other."""
        processes = [each.process for each in self.come.values()]
        for each in self.come.values():
            if each.process in self.network.dead:
                self._lose(each.rank)
        if len(processes) < self.world_size or self.network.machine.frozen & set(processes):
            return
        if not all(self.network.hears(a, b) for a in processes for b in processes if a != b):
            return
        places = [self.come[rank].process for rank in range(self.world_size)]
        mesh = Mesh(self.network, places, self.epoch, self._books)
        for each in self.come.values():
            each.result = each.result or mesh
        self.news.notify()

    # It may come again, until then.
    def _lose(self, rank: int) -> None:
        lost = make_error("PeerLost", f"rank {rank} left while the others were connecting", rank)
        origin = next((each.process for each in self.come.values() if each.rank != rank), None)
        if origin is not None:
            self.network.machine.after(_GRACE, lambda: self.fail(lost, origin))

    def fail(self, error: DeltawireError, origin: int) -> None:
        """One rank gives up, and tells those that hear it."""
        for each in self.come.values():
            heard = each.process == origin or self.network.hears(origin, each.process)
            if each.result is None and heard:
                each.result = error
        self.news.notify()

    def missing(self) -> list[int]:
        return [rank for rank in range(self.world_size) if rank not in self.come]


class Core:
    """Stands in for the module `_core` in the code of elastic sessions.

    Args:
        core: the module.
        meshes: gets each mesh that is connected.
        gives: called when a process gives others what they need of its residuals.
        note: called with a text when a promise is broken.
    """

    def __init__(self, core: object, network: Network, note: Callable[[str], None]) -> None:
        self._core, self.network, self.note = core, network, note
        self.books = Books(note)
        self.meshes: list[Mesh] = []
        self.gives: Callable[[int], None] | None = None
        self.gatherings: dict[Address, _Gathering] = {}
        self._places: dict[int, Address] = {}  # of meshes, by epoch

    def begin(self, epoch: int, place: Address) -> None:
        """A rank of that epoch connects there."""
        if self._places.setdefault(epoch, place) != place:
            self.note(f"two views share epoch {epoch}")

    def __getattr__(self, name: str) -> object:
        return getattr(self._core, name)

    def call_at_door(self, address: Address, token: bytes, encryption: str, ms: int) -> Line:
        """As the core's."""
        del token, encryption
        return self.network.call(self.network.machine.running.process, tuple(address), 1e-3 * ms)

    def keep_door(
        self,
        listener: Listener,
        token: bytes,
        encryption: str,
        question: str,
        waiting: list[str],
        wait: str,
        bytes_max: int,
    ) -> Doorkeeper:
        """As the core's."""
        del token, encryption
        return Doorkeeper(listener, question, tuple(waiting), wait, bytes_max)

    def Step(self, number: int, *_: object, **options: object) -> SimpleNamespace:  # noqa: N802
        """As the core's; the number is what counts here."""
        del options
        return SimpleNamespace(number=number)

    def shared_state(self, state: object) -> bytes:
        """As the core's."""
        if self.gives is not None:
            self.gives(self.network.machine.running.process)
        return unpack(bytes(state)).pack(shared=True)

    def Session(  # noqa: N802
        self, listener: Listener, mesh: SimpleNamespace, text: str, options: object
    ) -> "CoreSession":
        """As the core's."""
        del options
        return CoreSession(self, listener, mesh, text)


class CoreSession:
    """Stands in for `_core.Session`: one rank of a mesh. Connects, or raises DeltawireError."""

    def __init__(self, core: Core, listener: Listener, mesh: SimpleNamespace, text: str) -> None:
        self.spec, self.closed = text, False
        self._core, self._rank = core, mesh.rank
        self._mesh = self._connect(listener, mesh)
        self._own = self._mesh.ranks[self._rank]

    def _connect(self, listener: Listener, mesh: SimpleNamespace) -> Mesh:
        network = self._core.network
        machine = network.machine
        process = machine.running.process
        self._core.begin(mesh.epoch, mesh.place)
        gathering = self._core.gatherings.setdefault(
            mesh.place, _Gathering(self._core, mesh.world_size, mesh.epoch)
        )
        if gathering.epoch != mesh.epoch:
            raise make_error("Mismatch", f"another epoch meets at {mesh.place}")
        own = gathering.come[mesh.rank] = _Attendant(process, mesh.rank)
        until = machine.now + mesh.seconds
        while own.result is None:
            gathering.look()
            if own.result is None and machine.now >= until:
                missing = gathering.missing()
                suspect = missing[0] if len(missing) == 1 else None
                gathering.fail(
                    make_error("Timeout", f"ranks {missing} did not connect", suspect), process
                )
            if own.result is None and mesh.interrupted():
                lost = make_error("Aborted", f"rank {mesh.rank} was interrupted", mesh.rank)
                gathering.fail(lost, process)
            if own.result is None:
                gathering.news.wait(machine.now + _LOOK)
        network.forget(listener)
        if isinstance(own.result, DeltawireError):
            raise own.result
        if own.result not in self._core.meshes:
            self._core.meshes.append(own.result)
        return own.result

    def submit(self, tensors: list, step: object, timeout_ms: int, end: Callable) -> None:
        """A step of one tensor; `end` gets an error or a report."""
        [(_, address, _, shape)] = tensors
        counts = dict.fromkeys(("element_count", "bytes_sent", "raw_bytes"), 1)
        seconds = dict.fromkeys(("encode_seconds", "exchange_seconds", "decode_seconds"), 0.0)
        report = SimpleNamespace(**counts, **seconds, digest=0, finite=True, flow={}, spans=[])

        def tell(error: DeltawireError | None) -> None:
            end(error, None if error else report)

        tensor = address, math.prod(shape)
        self._mesh.submit(self._rank, tensor, step.number, 1e-3 * timeout_ms, tell)

    def abort(self, reason: str | DeltawireError) -> None:
        """Ends the mesh."""
        self._mesh.fail(make_error("Aborted", str(reason), self._rank), 0.0)

    def close(self) -> None:
        """Leaves it. Idempotent."""
        if not self.closed:
            self.closed = True
            self._mesh.leave(self._rank)

    def explain(self, tensors: list, step: int) -> list[SimpleNamespace]:
        """What the residuals hold, for events."""
        del tensors, step
        return [SimpleNamespace(residual_norm=float(self._own.residuals.own))]

    def save(self) -> bytes:
        """The residuals."""
        return self._own.residuals.pack()

    def load(self, state: bytes) -> None:
        """What `save` gave."""
        self._own.residuals = unpack(bytes(state))

    def load_resized(
        self, states: list, tensors: list, place: tuple[int, int], continued: list[int]
    ) -> None:
        """As the core's: a rank's own count 1/N before and 1/M now; those of means go to rank 0."""
        del tensors
        held = [unpack(bytes(state)) if len(state) else None for state in states]
        marks = {each.mark for each in held if each is not None}
        if len(marks) > 1:
            self._core.note(f"residuals of different steps are joined: {sorted(marks)}")
        before = continued[place[0]]
        own = held[before].own if before >= 0 and held[before] is not None else Fraction(0)
        owed = sum((each.owed for each in held if each is not None), Fraction(0))
        self._own.residuals = Residuals(
            own * place[1] / len(states),
            owed if place[0] == 0 else Fraction(0),
            marks.pop() if marks else (-1, -1),
        )
