"""Plants one mutant at a time in a copy of the tree, builds, tests, and takes it out again."""

import hashlib
import os
import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import layer_tests
from mutant_rules import Fault
from tree_copy import Shell, refresh, tail

BUILD_SECONDS = 3600
FIRST_RUN_SECONDS = 1800  # the time limit of the tests without a mutant


class Failed(Exception):
    """Nothing can be judged; the message says why."""


@dataclass(frozen=True)
class Mutant(Fault):
    """A fault and where it is planted."""

    layer: str
    path: str

    def diff(self) -> str:
        """The change as a diff for a reader."""
        old, new = self.old.strip(), self.new.strip()
        return f"{self.path}:{self.line}: {self.rule}\n    - {old}\n    + {new}"

    def key(self) -> tuple[str, str, str, int]:
        """What identifies it from run to run."""
        return self.path, self.old, self.new, self.line


@dataclass(frozen=True)
class Result(Mutant):
    """The verdict on a mutant: an entry of the results file."""

    verdict: str
    seconds: float
    equivalent: str = ""


class Trial:
    """Judges the mutants of a layer, in as many copies of the tree as there are jobs."""

    def __init__(self, root: Path, layer: str, shell: Shell, jobs: int):
        self._root, self._layer, self._shell, self._jobs = root, layer, shell, jobs
        self._tests = layer_tests.tests_of(layer, max(1, (os.cpu_count() or 1) // jobs))
        self._copies: queue.Queue[Path] = queue.Queue()
        self._unspoilt: dict[Path, str] = {}  # for each copy, its programs' digest without a mutant
        self._limit = 0.0

    def prepare(self) -> float:
        """Makes the copies, builds and runs their tests, and returns the seconds the tests took."""
        slowest = 0.0
        for number in range(self._jobs):
            copy = self._root / "build" / "mutants" / f"copy-{number}"
            refresh(self._root, copy)
            self._must_pass(copy, self._tests.prepare, BUILD_SECONDS)
            self._must_pass(copy, self._tests.build, BUILD_SECONDS)
            start = time.monotonic()
            self._must_pass(copy, self._tests.run, FIRST_RUN_SECONDS)
            slowest = max(slowest, time.monotonic() - start)
            self._unspoilt[copy] = self._programs(copy)
            self._copies.put(copy)
        self._limit = self._tests.grace + 5 * slowest
        return slowest

    def judge(self, mutants: list[Mutant]) -> Iterator[Result]:
        """Yields results as they come. After Ctrl-C it leaves no command running."""
        with ThreadPoolExecutor(self._jobs) as pool:
            waiting = [pool.submit(self._try_one, mutant) for mutant in mutants]
            try:
                for future in as_completed(waiting):
                    yield future.result()
            except BaseException:
                self._shell.stop()
                pool.shutdown(cancel_futures=True)
                raise

    def _must_pass(self, copy: Path, command: str, seconds: float) -> None:
        status, output = self._shell.run(command, copy, seconds)
        if status != 0:
            raise Failed(f"{self._layer}: `{command}` failed without any mutant:\n{tail(output)}")

    def _programs(self, copy: Path) -> str:
        total = hashlib.sha256()
        for program in sorted(copy.glob(self._tests.programs)):
            if program.is_file():
                total.update(program.read_bytes())
        return total.hexdigest()

    def _try_one(self, mutant: Mutant) -> Result:
        """Plants a mutant, builds and tests, and takes the mutant out again whatever happens."""
        copy = self._copies.get()
        start = time.monotonic()
        file = copy / mutant.path
        original = file.read_bytes()
        lines = original.decode().split("\n")
        lines[mutant.line - 1] = mutant.new
        try:
            file.write_text("\n".join(lines), encoding="utf-8")
            verdict = self._verdict(copy, mutant.path)
        finally:
            file.write_bytes(original)
            self._copies.put(copy)
        seconds = round(time.monotonic() - start, 1)
        return Result(**asdict(mutant), verdict=verdict, seconds=seconds)

    def _verdict(self, copy: Path, path: str) -> str:
        status, _ = self._shell.run(self._tests.build, copy, BUILD_SECONDS)
        if status != 0:
            return "refused"
        if not path.endswith(".py") and self._programs(copy) == self._unspoilt[copy]:
            return "same"
        near = layer_tests.nearest(self._layer, path, copy, self._tests.run)
        for command in filter(None, (near, self._tests.run)):
            status, _ = self._shell.run(command, copy, self._limit)
            if status != 0:
                return "killed"
        return "lived"
