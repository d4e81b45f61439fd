"""The demo in processes that are forked from one that has everything imported already.

A fresh interpreter takes seconds to import PyTorch, and a run of the demo has three. Here the
fork server that the ranks of tests/torch stand on gives its controlling process, which forks its
workers; all else is as a user has it: own processes, own sessions, signals, lines and logs.
`test_demo.fresh_demo` has fresh interpreters.
"""

import contextlib
import math
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FORKSERVER = multiprocessing.get_context("forkserver")


def as_a_user(arguments: list[str]) -> int:
    """What `python -m lab.demo` does."""
    from lab.demo.__main__ import main

    sys.argv = ["lab.demo", *arguments]
    return main()


class Demo:
    """A running demo. Its output lies in files of `folder`, which no other demo may have."""

    def __init__(self, folder: Path, arguments: list[str], way: Callable = as_a_user) -> None:
        self._said = [folder / "stdout", folder / "stderr"]
        self._process = _FORKSERVER.Process(
            target=_control, args=(list(map(str, arguments)), self._said, way)
        )
        self._process.start()
        self.pid = self._process.pid

    def wait(self, timeout: float) -> int:
        """The exit status, negative after a signal."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"the demo didn't end in {timeout} s"
        return self._process.exitcode

    def ended(self, timeout: float = 150) -> subprocess.CompletedProcess:
        """Waits for the end."""
        status = self.wait(timeout)
        return subprocess.CompletedProcess("demo", status, *self.said())

    def said(self) -> list[str]:
        """Standard output and standard error so far."""
        return [file.read_text() if file.exists() else "" for file in self._said]

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def ended(
    folder: Path, arguments: list[str], way: Callable = as_a_user
) -> subprocess.CompletedProcess:
    """A demo from its start to its end."""
    with started(folder, arguments, way) as demo:
        return demo.ended()


@contextlib.contextmanager
def started(folder: Path, arguments: list[str], way: Callable = as_a_user) -> Iterator[Demo]:
    """A demo that ends with the block, whatever happens in it."""
    demo = Demo(folder, arguments, way)
    try:
        yield demo
    finally:
        demo.kill()
        demo.wait(20)


def _control(arguments: list[str], said: list[Path], way: Callable) -> None:
    """The controlling process."""
    os.setsid()
    os.chdir(ROOT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, file in enumerate(said, start=1):
        with file.open("wb") as output:
            os.dup2(output.fileno(), descriptor)
    from lab.demo import crew

    crew.subprocess = types.SimpleNamespace(
        Popen=_start, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    sys.exit(way(arguments))


def _start(command: list[str], **options):
    """A worker in a network namespace is started by another program, as a user has it."""
    start = _Worker if command[0] == sys.executable else subprocess.Popen
    return start(command, **options)


class _Worker:
    """What `lab.demo.crew` asks of a subprocess.Popen."""

    def __init__(self, command, *, stdin, stdout, stderr, pass_fds, start_new_session, env) -> None:
        assert command[1] == "-m" and start_new_session and stdout is stderr
        self._status: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            _work(command[2:], stdout.fileno(), pass_fds, env)

    def poll(self) -> int | None:
        if self._status is None:
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._status

    def wait(self, timeout: float = math.inf) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("worker", timeout)
            time.sleep(0.01)
        return self._status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self._pid, signal.SIGKILL)


def _work(command: list[str], output: int, pass_fds: list[int], env: dict[str, str]) -> None:
    """Runs a module as its program, with no more of the controlling process than exec leaves."""
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        for descriptor in {*map(int, os.listdir("/proc/self/fd"))} - {0, 1, 2, *pass_fds}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        os.environ.clear()
        os.environ.update(env)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.argv = command
        runpy.run_module(command[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)
