"""Threads that run one at a time, on a virtual clock: a seed decides which one, and for how long
the others wait. Time passes when all of them wait."""

import heapq
import itertools
import random
import threading
import types
from collections.abc import Callable

_READING = (
    1e-6  # seconds that it takes to read the clock: time passes for a loop that never waits, too
)
_LATENCY = 2e-3  # seconds that a thread may have to wait for a processor


class Ended(BaseException):
    """Unwinds a thread whose process is dead, or whose simulation is over."""


class Task:
    """A thread of a simulated process; it runs while it has the baton."""

    def __init__(self, machine: "Machine", process: int, body: Callable[[], None]) -> None:
        self.process = process
        self.ended = False
        self.doomed = False
        self.token = 0  # events with an older one have been overtaken
        self.over = Signal(machine)
        self.baton = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, args=(machine, body), daemon=True)

    def _run(self, machine: "Machine", body: Callable[[], None]) -> None:
        self.baton.acquire()
        machine.running = self
        try:
            if not self.doomed:
                body()
        except Ended:
            pass
        except BaseException as error:  # the code that is simulated has a fault
            machine.problems.append(f"process {self.process}: {type(error).__name__}: {error}")
        self.ended = True
        self.over.notify()
        machine.control.release()


class Signal:
    """What threads wait for. It may end a wait for no reason."""

    def __init__(self, machine: "Machine") -> None:
        self._machine = machine
        self._waiting: list[Task] = []

    def wait(self, until: float | None) -> None:
        """Until it is notified, or until then."""
        task = self._machine.running
        self._waiting.append(task)
        try:
            self._machine.block(until)
        finally:
            self._waiting.remove(task)

    def notify(self) -> None:
        """Wakes all that wait."""
        for task in self._waiting:
            self._machine.wake(task)


class Machine:
    """All threads and the time.

    Attributes:
        now: the virtual time in seconds.
        draw: the seed's decisions.
        running: the thread that runs.
        frozen: processes whose threads don't run.
        stalled: processes whose Python threads don't run, for another one keeps the GIL.
        problems: exceptions that ended a thread.
        events: how many there were.
    """

    def __init__(self, seed: int) -> None:
        self.now = 1000.0
        self.draw = random.Random(seed)
        self.running: Task | None = None
        self.control = threading.Semaphore(0)
        self.frozen: set[int] = set()
        self.stalled: set[int] = set()
        self.problems: list[str] = []
        self.events = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._tasks: list[Task] = []
        self._held: list[tuple[Task, int]] = []  # of frozen processes

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Calls `action` then, on no thread."""
        heapq.heappush(self._queue, (self.now + seconds, next(self._numbers), action))

    def start(self, process: int, body: Callable[[], None]) -> Task:
        """A new thread of that process."""
        task = Task(self, process, body)
        self._tasks.append(task)
        task.thread.start()
        self.wake(task)
        return task

    def block(self, until: float | None) -> None:
        """The running thread waits until it is woken, or until then."""
        task = self._live()
        task.token += 1
        if until is not None:
            self._wake_after(task, max(0.0, until - self.now))
        self.running = None
        self.control.release()
        task.baton.acquire()
        self.running = task
        self._live()

    def _live(self) -> Task:
        if self.running is None or self.running.doomed:
            raise Ended
        return self.running

    def wake(self, task: Task) -> None:
        """Ends its wait."""
        self._wake_after(task, 0.0)

    def _wake_after(self, task: Task, seconds: float) -> None:
        token = task.token
        latency = _LATENCY * self.draw.random() ** 4
        self.after(seconds + latency, lambda: self._resume(task, token))

    def _resume(self, task: Task, token: int) -> None:
        if task.ended or task.token != token:
            return
        if task.process in self.frozen | self.stalled:
            self._held.append((task, token))
            return
        self._switch_to(task)

    def _switch_to(self, task: Task) -> None:
        task.token += 1
        task.baton.release()
        self.control.acquire()
        self.running = None

    def thaw(self, process: int) -> None:
        """The process' threads run again."""
        held, self._held = self._held, []
        for task, token in held:
            if task.process == process:
                self.after(
                    _LATENCY * self.draw.random(), lambda t=task, n=token: self._resume(t, n)
                )
            else:
                self._held.append((task, token))

    def run(self, goes_on: Callable[[], bool], seconds: float) -> bool:
        """Until `goes_on` is False; returns False if that takes longer."""
        end = self.now + seconds
        while goes_on():
            if not self._queue or self.now > end:
                return False
            when, _, action = heapq.heappop(self._queue)
            self.now = max(self.now, when)
            self.events += 1
            action()
        return True

    def end(self) -> None:
        """Unwinds all threads."""
        for task in self._tasks:
            while not task.ended:
                task.doomed = True
                self._switch_to(task)
            task.thread.join()

    def time(self) -> types.SimpleNamespace:
        """What stands in for the module `time`."""

        def monotonic() -> float:
            self.now += _READING
            return self.now

        return types.SimpleNamespace(
            monotonic=monotonic, sleep=lambda seconds: self.block(self.now + seconds)
        )

    def threading(self) -> types.SimpleNamespace:
        """What stands in for the module `threading`."""
        return types.SimpleNamespace(
            Thread=lambda target, args=(), name="", daemon=True: _Thread(self, target, args),
            Lock=lambda: _Lock(self),
            Event=lambda: _Event(self),
            current_thread=lambda: self.running,
        )


class _Thread:
    def __init__(self, machine: Machine, target: Callable, args: tuple) -> None:
        self._machine, self._body = machine, lambda: target(*args)
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._machine.start(self._machine.running.process, self._body)

    def join(self, timeout: float | None = None) -> None:
        until = None if timeout is None else self._machine.now + timeout
        while self.is_alive() and (until is None or self._machine.now < until):
            self._task.over.wait(until)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._task

    __hash__ = object.__hash__


class _Lock:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._free = machine, Signal(machine)
        self._held = False

    def acquire(self, blocking: bool = True) -> bool:
        while self._held:
            if not blocking:
                return False
            self._free.wait(None)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        self._free.notify()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Event:
    def __init__(self, machine: Machine) -> None:
        self._machine, self._changed = machine, Signal(machine)
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._changed.notify()

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else self._machine.now + timeout
        while not self._is_set and (until is None or self._machine.now < until):
            self._changed.wait(until)
        return self._is_set
