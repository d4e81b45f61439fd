"""Doors and lines between simulated processes: messages in order, delayed, and held back while a
path is down."""

import collections
import dataclasses
import weakref
from collections.abc import Callable

from deltawire.errors import DeltawireError, make_error

from lab.elastic_simulation.machine import Machine, Signal

Address = tuple[str, int]

_LOOK = 0.05  # seconds between two looks of a thread of the core
_TELL_PAUSE = 0.5  # between two texts on a line that is kept


@dataclasses.dataclass
class _Path:
    """From one process to another."""

    down: int = 0  # how many faults cut it
    last: float = 0.0  # when the last message arrives
    waiting: list[Callable[[], None]] = dataclasses.field(default_factory=list)


class Network:
    """Who listens where, and what is on the way.

    Args:
        delay: seconds that a message takes, at least; up to as much more.

    Attributes:
        dead: processes whose machine has hung up.
        off: processes whose machine has no power.
        decides: called when a process listens for the mesh of a view, by the host first.
    """

    def __init__(self, machine: Machine, delay: float) -> None:
        self.machine = machine
        self._delay = delay
        self._paths: dict[tuple[int, int], _Path] = collections.defaultdict(_Path)
        self._listeners: dict[Address, Listener] = {}
        self._lines: list[_End] = []
        self._ports = 40_000
        self.dead: set[int] = set()
        self.off: set[int] = set()
        self.decides: Callable[[int], None] | None = None

    def hears(self, one: int, other: int) -> bool:
        """Whether messages arrive in both directions."""
        return self._paths[one, other].down == self._paths[other, one].down == 0

    def carry(self, source: int, target: int, action: Callable[[], None]) -> None:
        """Calls `action` when a message would arrive, in order."""
        path = self._paths[source, target]
        delay = self._delay * (1 + self.machine.draw.random())
        path.last = max(path.last, self.machine.now + delay)
        self.machine.after(path.last - self.machine.now, lambda: self._arrive(path, action))

    def _arrive(self, path: _Path, action: Callable[[], None]) -> None:
        if path.down or path.waiting:
            path.waiting.append(action)
        else:
            action()

    def once_thawed(self, process: int, action: Callable[[], None]) -> None:
        """Calls `action`, which a thread of the core does, unless the process is frozen or dead."""
        if process in self.machine.frozen:
            if process not in self.dead | self.off:
                self.machine.after(_LOOK, lambda: self.once_thawed(process, action))
        else:
            action()

    def cut(self, source: int, target: int) -> None:
        """Nothing arrives any more."""
        self._paths[source, target].down += 1

    def heal(self, source: int, target: int) -> None:
        """What was held back is sent again."""
        path = self._paths[source, target]
        path.down -= 1
        if path.down == 0:
            waiting, path.waiting = path.waiting, []
            for action in waiting:
                self.carry(source, target, action)

    def listen(self, process: int, address: Address | None) -> "Listener":
        """At that address, or at a free one of the process."""
        self._ports += 1
        listener = Listener(self, process, address or (f"10.0.0.{process}", self._ports))
        self._listeners[listener.endpoint] = listener
        return listener

    def forget(self, listener: "Listener") -> None:
        """Nobody listens there any more."""
        if self._listeners.get(listener.endpoint) is listener:
            del self._listeners[listener.endpoint]

    def owner_of(self, address: Address) -> int | None:
        """The process that listens there."""
        listener = self._listeners.get(address)
        return None if listener is None else listener.process

    def listener_at(self, address: Address) -> "Listener | None":
        """Likewise."""
        return self._listeners.get(address)

    def connect(self, one: int, other: int) -> tuple["_End", "_End"]:
        """Two ends of a line."""
        ends = _End(self, one), _End(self, other)
        ends[0].far, ends[1].far = ends[1], ends[0]
        self._lines += ends
        return ends

    def kill(self, process: int) -> None:
        """The process has died: its machine hangs up."""
        self.dead.add(process)
        for listener in list(self._listeners.values()):
            if listener.process == process:
                self.forget(listener)
        for line in self._lines:
            if line.process == process:
                line.close()
        self._lines = [line for line in self._lines if not line.closed]

    def call(self, process: int, address: Address, seconds: float) -> "Line":
        """`call_at_door`."""
        call = _Call(self, process, address)
        until = self.machine.now + seconds
        while call.line is None and not call.refused and self.machine.now < until:
            call.news.wait(until)
        if call.line is not None:
            return call.line
        call.given_up = True
        if call.refused:
            raise make_error("PeerLost", f"nobody listens at {address}")
        raise make_error("Timeout", f"no answer from {address}")


class _Call:
    """A caller at a door, until it is answered."""

    def __init__(self, network: Network, process: int, address: Address) -> None:
        self.network, self.process, self.address = network, process, address
        self.news = Signal(network.machine)
        self.line: Line | None = None
        self.refused = self.given_up = False
        owner = network.owner_of(address)
        self._owner = int(address[0].rsplit(".", 1)[1]) if owner is None else owner
        network.carry(process, self._owner, self._arrive)

    def _arrive(self) -> None:
        listener = self.network.listener_at(self.address)
        if listener is None:
            self.refuse()
        elif listener.process in self.network.machine.frozen:
            if listener.process not in self.network.off and not self.given_up:
                self.network.machine.after(_LOOK, self._arrive)
        elif listener.keeper is not None and (keeper := listener.keeper()) is not None:
            keeper.take(self)

    def refuse(self) -> None:
        self.network.carry(self._owner, self.process, self._hear_refusal)

    def _hear_refusal(self) -> None:
        self.refused = True
        self.news.notify()

    def answer(self, by: int) -> "Line":
        """By the process at the door; returns its end."""
        here, there = self.network.connect(by, self.process)
        self.network.carry(by, self.process, lambda: self._take(there))
        return Line(here)

    def _take(self, end: "_End") -> None:
        if self.given_up:
            end.close()
            return
        self.line = Line(end)
        self.news.notify()


class Listener:
    """Stands in for `_core.Listener`."""

    def __init__(self, network: Network, process: int, endpoint: Address) -> None:
        self.network, self.process, self.endpoint = network, process, endpoint
        self.keeper: weakref.ref[Doorkeeper] | None = None  # of a door


class Doorkeeper:
    """Stands in for `_core.Doorkeeper`: it answers whatever the threads of Python do."""

    def __init__(
        self, listener: Listener, question: str, waiting: tuple[str, ...], wait: str, most: int
    ) -> None:
        self.endpoint = listener.endpoint
        self._listener, self._question, self._waiting = listener, question, waiting
        self._wait, self._most = wait, most
        self._answer = ""
        self._fresh: list[Line] = []
        self._visits: collections.deque[tuple[Line, bytes]] = collections.deque()
        self._news = Signal(listener.network.machine)
        listener.keeper = weakref.ref(self)

    def __del__(self) -> None:
        self._listener.network.forget(self._listener)
        for line in self._fresh:
            line.end.on_news = None

    def describe(self, answer: str) -> None:
        """As the core's."""
        self._answer = answer

    def next(self, timeout_ms: int) -> "tuple[Line, bytes] | None":
        """As the core's."""
        until = self._listener.network.machine.now + 1e-3 * timeout_ms
        while not self._visits:
            if self._listener.network.machine.now >= until:
                return None
            self._news.wait(until)
        return self._visits.popleft()

    def take(self, call: _Call) -> None:
        """Somebody calls."""
        if not call.given_up:
            line = call.answer(self._listener.process)
            self._fresh.append(line)
            own = weakref.ref(self)
            line.end.on_news = lambda: own()._hear(line)

    def _hear(self, line: "Line") -> None:
        try:
            message = line.receive(self._most, 0)
            if message is not None and message.decode() == self._question:
                line.send(self._answer.encode(), 0)
                return
        except DeltawireError:
            message = b""  # it has hung up
        if message is None:
            return
        line.end.on_news = None
        self._fresh.remove(line)
        if message.decode().startswith(self._waiting):
            line.keep(self._wait)
        if message:
            self._visits.append((line, message))
            self._news.notify()


class _End:
    """Of a line."""

    def __init__(self, network: Network, process: int) -> None:
        self.network, self.process = network, process
        self.far: _End | None = None
        self.closed = False
        self._ended = False  # the other end's hanging up has arrived
        self._inbox: collections.deque[bytes] = collections.deque()
        self._news = Signal(network.machine)
        self.on_news: Callable[[], None] | None = None  # of a keeper

    def close(self) -> None:
        """Hangs up. Idempotent."""
        far, self.far = self.far, None
        if not self.closed and far is not None:
            self.closed = True
            self.network.carry(self.process, far.process, far.end)

    def end(self) -> None:
        """The other end has hung up."""
        self._ended = True
        self._tell()

    def deliver(self, message: bytes) -> None:
        """A message has arrived."""
        self._inbox.append(message)
        self._tell()

    def _tell(self) -> None:
        self._news.notify()
        if self.on_news is not None:
            self.network.once_thawed(self.process, self._hear)

    def _hear(self) -> None:
        if self.on_news is not None:
            self.on_news()

    def send(self, message: bytes) -> None:
        if self.closed or self._ended:
            raise make_error("PeerLost", "the other end has hung up")
        far = self.far
        self.network.carry(self.process, far.process, lambda: far.deliver(message))

    def receive(self, bytes_max: int, timeout_ms: int) -> bytes | None:
        machine = self.network.machine
        until = machine.now + 1e-3 * timeout_ms
        while not self._inbox:
            if self.closed or self._ended:
                raise make_error("PeerLost", "the other end has hung up")
            if machine.now >= until:
                return None
            self._news.wait(until)
        message = self._inbox.popleft()
        if len(message) > bytes_max:
            raise make_error("Limit", "the message is too long")
        return message


class Line:
    """Stands in for `_core.KeptLine`: hangs up when nobody has it any more."""

    def __init__(self, end: _End) -> None:
        self.end = end
        self._text: str | None = None
        self._tells = 0  # of several loops the last one counts

    def __del__(self) -> None:
        self.end.close()

    def send(self, message: bytes, timeout_ms: int) -> None:
        """Raises DeltawireError (PeerLost)."""
        del timeout_ms  # there is always room
        self.end.send(message)

    def receive(self, bytes_max: int, timeout_ms: int) -> bytes | None:
        """The next message, or None. Raises DeltawireError (PeerLost, Limit)."""
        return self.end.receive(bytes_max, timeout_ms)

    def keep(self, text: str | None) -> None:
        """As the core's."""
        self._text, self._tells = text, self._tells + 1
        if text is not None:
            machine = self.end.network.machine
            self._tell_after(_LOOK * machine.draw.random())

    def _tell_after(self, seconds: float) -> None:
        own, number = weakref.ref(self), self._tells

        def tell() -> None:
            line = own()
            if line is None or line._tells != number:
                return
            if line.end.process not in line.end.network.machine.frozen:
                try:
                    line.end.send(line._text.encode())
                except DeltawireError:
                    return
            line._tell_after(_TELL_PAUSE)

        self.end.network.machine.after(seconds, tell)
