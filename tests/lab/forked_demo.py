"""The demo in processes that are forked from one that has everything imported already.

A fresh interpreter takes seconds to import PyTorch, and so does a fork server of the demo's own.
Here the fork server of the tests gives the controlling process, which forks its workers itself; all
else is as a user has it: processes, sessions, signals, lines and logs. `test_demo.fresh_demo` has
fresh interpreters.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FORKSERVER = multiprocessing.get_context("forkserver")


def as_a_user(arguments: list[str]) -> int:
    """Runs the demo as `python -m lab.demo` does."""
    from lab.demo.__main__ import main

    sys.argv = ["lab.demo", *arguments]
    return main()


class Demo:
    """A running demo. It writes its output to files in `folder`, which no other demo may use."""

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
    """Runs a demo from its start to its end."""
    with started(folder, arguments, way) as demo:
        return demo.ended()


@contextlib.contextmanager
def started(folder: Path, arguments: list[str], way: Callable = as_a_user) -> Iterator[Demo]:
    """A running demo, which is ended with the `with` block, whatever happens in it."""
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
    from lab.ranks import launcher

    launcher.context = multiprocessing.get_context("fork")
    sys.exit(way(arguments))
