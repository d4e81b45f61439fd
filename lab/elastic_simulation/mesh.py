"""A model of what the core promises of a mesh: a step is committed on all ranks that live and hear
each other, or reverted on all of them (docs/design/commit.md). With a reducer of one value that
keeps residuals, in exact fractions."""

import ctypes
import dataclasses
import json
import math
from collections.abc import Callable
from fractions import Fraction

from deltawire.errors import DeltawireError, make_error

from lab.elastic_simulation.network import Network

_LOOK = 0.05  # seconds between two looks at what is cut or frozen
_SETTLING = 3.0  # seconds to settle without ranks that don't answer


@dataclasses.dataclass
class Residuals:
    """What a rank holds back: of its own gradients, and of means that it owns.

    Attributes:
        mark: the epoch and the number of the step that left them.
    """

    own: Fraction = Fraction(0)
    owed: Fraction = Fraction(0)
    mark: tuple[int, int] = (-1, -1)

    def pack(self, shared: bool = False) -> bytes:
        """As bytes; `shared`: what other ranks need of them."""
        own = "" if shared else str(self.own)
        return json.dumps([own, str(self.owed), *self.mark]).encode()


def unpack(state: bytes) -> Residuals:
    """Of `pack`."""
    own, owed, epoch, step = json.loads(bytes(state))
    return Residuals(Fraction(own or 0), Fraction(owed), (epoch, step))


class Books:
    """What each process held back after its last step, and whether the next mesh has it."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._last: dict[int, tuple[Residuals, int]] = {}

    def write(self, process: int, residuals: Residuals, world_size: int) -> None:
        """After a step."""
        self._last[process] = residuals, world_size

    def compare(self, ranks: list["Rank"], epoch: int) -> None:
        """Before the first step of a mesh: it owes what its processes owed, and no more."""
        held = [self._last[each.process] for each in ranks if each.process in self._last]
        latest = max((residuals.mark for residuals, _ in held), default=None)
        kept = [(own.own / count + own.owed) for own, count in held if own.mark == latest]
        now = [each.residuals.own / len(ranks) + each.residuals.owed for each in ranks]
        if sum(kept) != sum(now):
            self._note(f"epoch {epoch} begins with residuals of {sum(now)}, not {sum(kept)}")


@dataclasses.dataclass
class Rank:
    """Of a mesh, between steps or in one."""

    process: int
    residuals: Residuals = dataclasses.field(default_factory=Residuals)
    step: int | None = None  # that is open
    tensor: tuple[int, int] = (0, 0)  # its address and its elements
    end: Callable | None = None
    staged: tuple[float, Residuals] | None = None
    steps: int = 0  # committed in this mesh
    left: bool = False
    told: bool = False  # of the failure


class Mesh:
    """One epoch's.

    Attributes:
        ranks: in order.
        error: why it failed.
    """

    def __init__(self, network: Network, processes: list[int], epoch: int, books: Books) -> None:
        self.network, self.epoch, self._books = network, epoch, books
        self.ranks = [Rank(process) for process in processes]
        self.error: DeltawireError | None = None
        self._cast: set[int] = set()  # ranks that have cast their ballot on the open step

    def submit(
        self, rank: int, tensor: tuple[int, int], step: int, seconds: float, end: Callable
    ) -> None:
        """A rank takes part in a step; `end` is called with an error, or None."""
        own = self.ranks[rank]
        own.step, own.tensor, own.end, own.staged = step, tensor, end, None
        if self.error is not None:
            self._settle(own)
            return
        self.network.machine.after(seconds, lambda: self._time_out(own, step))
        self._exchange()

    def _exchange(self) -> None:
        steps = {each.step for each in self.ranks}
        if self.error is not None or None in steps or any(each.staged for each in self.ranks):
            return
        if len(steps) > 1:
            self.fail(make_error("Mismatch", f"ranks are at different steps: {steps}"), 0.0)
            return
        if len({each.tensor[1] for each in self.ranks}) > 1:
            self.fail(make_error("Mismatch", "ranks have other shapes"), 0.0)
            return
        processes = [each.process for each in self.ranks]
        cut = any(not self.network.hears(a, b) for a in processes for b in processes if a != b)
        if cut or self.network.machine.frozen & set(processes):
            self.network.machine.after(_LOOK, self._exchange)
            return
        self._reduce(steps.pop())
        draw = self.network.machine.draw
        self._cast.clear()
        for each in self.ranks:
            self.network.machine.after(0.02 * draw.random(), lambda r=each: self._vote(r))

    # Each rank sends half of what is due, whole; the owner sends the mean's multiple of 1/8.
    def _reduce(self, step: int) -> None:
        if all(each.steps == 0 for each in self.ranks):
            self._books.compare(self.ranks, self.epoch)
        count = len(self.ranks)
        sent, left = Fraction(0), []
        for each in self.ranks:
            due = int(ctypes.c_float.from_address(each.tensor[0]).value) + each.residuals.own
            part = Fraction(math.floor(due / 2))
            sent += part
            left.append(due - part)
        mean = sent / count + sum((each.residuals.owed for each in self.ranks), Fraction(0))
        out = Fraction(math.floor(8 * mean), 8)
        for rank, each in enumerate(self.ranks):
            owed = mean - out if rank == step % count else Fraction(0)
            each.staged = float(out), Residuals(left[rank], owed, (self.epoch, step))

    def _vote(self, own: Rank) -> None:
        if self.error is not None or own.process in self.network.machine.frozen or own.left:
            return
        self._cast.add(own.process)
        if len(self._cast) < len(self.ranks):
            return
        for each in self.ranks:  # the last ballot is on its way to all
            self.network.carry(
                own.process, each.process, lambda r=each, s=own.step: self._decide(r, s)
            )

    def _decide(self, own: Rank, step: int) -> None:
        if own.step != step or own.told or own.process in self.network.machine.frozen:
            return
        self._commit(own)

    def _commit(self, own: Rank) -> None:
        value, residuals = own.staged
        address, count = own.tensor
        (ctypes.c_float * count).from_address(address)[:] = [value] * count
        own.residuals, own.staged, own.steps = residuals, None, own.steps + 1
        self._books.write(own.process, residuals, len(self.ranks))
        own.step, end = None, own.end
        end(None)

    def _time_out(self, own: Rank, step: int) -> None:
        if self.error is not None or own.step != step:
            return
        if own.process in self.network.machine.frozen:
            self.network.machine.after(_LOOK, lambda: self._time_out(own, step))
        else:
            late = [rank for rank, each in enumerate(self.ranks) if each.step != step]
            suspect = late[0] if late else None
            self.fail(make_error("Timeout", "a step took too long", suspect), 0.0)

    def lose(self, process: int) -> None:
        """The process has died, and its machine hangs up."""
        for rank, each in enumerate(self.ranks):
            if each.process == process and not each.left:
                each.left = True
                error = make_error("PeerLost", f"rank {rank} was killed or crashed", rank)
                self.fail(error, 0.05 * self.network.machine.draw.random())

    def leave(self, rank: int) -> None:
        """In good order."""
        own = self.ranks[rank]
        if not own.left:
            own.left = True
            self.fail(make_error("PeerLost", f"rank {rank} left in good order", rank), 0.01)

    def fail(self, error: DeltawireError, seconds: float) -> None:
        """The first failure ends it."""
        self.network.machine.after(seconds, lambda: self._fail(error))

    def _fail(self, error: DeltawireError) -> None:
        if self.error is not None:
            return
        self.error = error
        rest = [each for each in self.ranks if not each.left]
        frozen = self.network.machine.frozen & {each.process for each in rest}
        groups = self._groups([each for each in rest if each.process not in frozen])
        slow = _SETTLING if frozen or len(groups) > 1 else 0.0
        verdicts = [self._settle_group(each, slow, None) for each in groups]
        for each in rest:
            # It adopts what the others say when it wakes up, but for a second failure then.
            adopts = verdicts and self.network.machine.draw.random() < 0.9
            if each.process in frozen:
                self._settle_group([each], slow, verdicts[0] if adopts else None)

    # Who hear each other, directly or not.
    def _groups(self, ranks: list[Rank]) -> list[list[Rank]]:
        groups: list[list[Rank]] = []
        for each in ranks:
            near = [
                g for g in groups if any(self.network.hears(each.process, o.process) for o in g)
            ]
            groups = [g for g in groups if g not in near] + [[each, *(o for g in near for o in g)]]
        return groups

    # One verdict for all of them: committed if one of them knows it, otherwise either, once all
    # have voted. Returns whether it is committed.
    def _settle_group(self, group: list[Rank], seconds: float, verdict: bool | None) -> bool:
        most = max(each.steps for each in self.ranks)
        known = any(each.steps == most for each in group) and any(
            e.steps != most for e in self.ranks
        )
        all_voted = len(self._cast) == len(self.ranks) and all(each.staged for each in group)
        draw = self.network.machine.draw
        commits = known or (all_voted and (draw.random() < 0.5 if verdict is None else verdict))

        def settle() -> None:
            for each in group:
                if commits and each.staged is not None and each.step is not None:
                    self._commit(each)
                elif each.step is not None:
                    self._settle(each)

        self.network.machine.after(seconds + 0.02 * draw.random(), settle)
        for each in group:
            each.told = True  # from now on it counts no ballot
        return commits

    def _settle(self, own: Rank) -> None:
        error = self.error
        own.step, own.staged, end = None, None, own.end
        text = f"{error} (a mesh of {len(self.ranks)})"
        told = type(error)(text, error.code, error.suspect)
        self.network.machine.after(0.0, lambda: self._deliver(own, end, told))

    def _deliver(self, own: Rank, end: Callable, error: DeltawireError) -> None:
        if own.process in self.network.machine.frozen:
            self.network.machine.after(_LOOK, lambda: self._deliver(own, end, error))
        else:
            end(error)
