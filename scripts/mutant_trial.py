"""One mutant at a time in a copy of the working tree: planted, built, tested, taken out again."""

import contextlib
import filecmp
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from mutant_list import Layer, Mutant, StaleError

BUILD_SECONDS = 1800
FIRST_RUN_SECONDS = 900  # of the tests without a mutant
TAIL_LINES = 30


class Stopped(Exception):
    """Ctrl-C in the middle of a command."""


class Shell:
    """Runs commands, each in a process group of its own, so that all can be ended at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self.stopping = False

    def run(self, command: str, folder: Path, seconds: float) -> tuple[int | None, str]:
        """Exit status (None: the time limit) and output."""
        environment = os.environ | {
            "CCACHE_BASEDIR": str(folder),
            "CCACHE_NOHASHDIR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if shutil.which("ccache"):
            environment |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"}
        with self._lock:
            if self.stopping:
                raise Stopped
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        timed_out = False
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            _kill(process)
            output, _ = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        if self.stopping:
            raise Stopped
        return None if timed_out else process.returncode, output.decode(errors="replace")

    def stop(self) -> None:
        """Ends every command; later ones raise Stopped."""
        with self._lock:
            self.stopping = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def refresh(root: Path, copy: Path) -> None:
    """Makes `copy` hold what git knows of the working tree `root`, changed or not. Files that are
    equal keep their times, so that a second build is short."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    ).stdout.decode()
    wanted = {name for name in listed.split("\0") if name and (root / name).is_file()}
    manifest = copy / ".copied"
    before = set(manifest.read_text().split("\0")) if manifest.is_file() else set()
    for name in before - wanted:
        (copy / name).unlink(missing_ok=True)
    for name in wanted:
        source, target = root / name, copy / name
        if target.is_file() and filecmp.cmp(source, target, shallow=False):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    manifest.write_text("\0".join(sorted(wanted)))
    environment = copy / ".venv"
    if (root / ".venv").exists() and not environment.exists():
        environment.symlink_to((root / ".venv").resolve())


@dataclass
class Outcome:
    """What became of one mutant."""

    mutant: Mutant
    verdict: str
    seconds: float
    output: str


@dataclass
class Laboratory:
    """The copies and what is known of the layers in them."""

    root: Path
    shell: Shell
    jobs: int
    copies: queue.Queue = field(default_factory=queue.Queue)

    def lack(self, layer: Layer) -> str | None:
        """What the machine lacks for a layer, in its list's words; None where it has all."""
        for command in layer.needs:
            status, output = self.shell.run(command, self.root, FIRST_RUN_SECONDS)
            if status != 0:
                return " ".join(output.split()) or f"`{command}` failed"
        return None

    def prepare(self, layer: Layer) -> float | str:
        """Copies, built; seconds of the tests without a mutant, or what is wrong with them."""
        while not self.copies.empty():
            self.copies.get()
        slowest = 0.0
        for number in range(self.jobs):
            copy = self.root / "build" / "mutants" / f"copy-{number}"
            copy.mkdir(parents=True, exist_ok=True)
            refresh(self.root, copy)
            for command in layer.prepare + layer.build:
                status, output = self.shell.run(command, copy, BUILD_SECONDS)
                if status != 0:
                    return f"`{command}` failed without any mutant:\n{tail(output)}"
            start = time.monotonic()
            for command in layer.run:
                status, output = self.shell.run(command, copy, FIRST_RUN_SECONDS)
                if status != 0:
                    return f"`{command}` failed without any mutant:\n{tail(output)}"
            slowest = max(slowest, time.monotonic() - start)
            self.copies.put(copy)
        return slowest

    def try_one(self, layer: Layer, mutant: Mutant, limit: float) -> Outcome:
        """Plants one mutant, builds, tests, and takes it out again whatever happens."""
        copy = self.copies.get()
        start = time.monotonic()
        file = copy / mutant.path
        original = file.read_bytes() if file.is_file() else None
        try:
            if original is None:
                raise StaleError(f"there is no file {mutant.path}")
            file.write_bytes(mutant.applied(original.decode()).encode())
            verdict, output = self._judge(layer, copy, limit)
        except StaleError as error:
            verdict, output = "stale", str(error)
        finally:
            if original is not None:
                file.write_bytes(original)
            self.copies.put(copy)
        return Outcome(mutant, verdict, time.monotonic() - start, output)

    def _judge(self, layer: Layer, copy: Path, limit: float) -> tuple[str, str]:
        output = ""
        for command in layer.build:
            status, output = self.shell.run(command, copy, BUILD_SECONDS)
            if status != 0:
                return "no-build", output
        for command in layer.run:
            status, output = self.shell.run(command, copy, limit)
            if status is None:
                return "time", output
            if status != 0:
                return "killed", output
        return "lived", output


def tail(output: str) -> str:
    """The last lines of a command's output, indented."""
    return "\n".join("    " + line for line in output.splitlines()[-TAIL_LINES:])
