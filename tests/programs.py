"""Runs a user's program in processes that are forked with PyTorch imported, which takes seconds."""

import multiprocessing
import os
import runpy
import sys
import tempfile
from pathlib import Path

_ended: list[dict] = []


def run_program(program: str, arguments: tuple[str, ...] = ()) -> dict:
    """Runs it as `python program arguments` would; returns its globals.

    They live until the process exits, as a program's own do. Dropped earlier, a DDP model would
    hold the last reference to a destroyed process group: PyTorch 2.13 then joins the group's thread
    while it holds the GIL, for which that thread may be waiting.
    """
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).resolve().parent))
    _ended.append(runpy.run_path(program, run_name="__main__"))
    return _ended[-1]


def speak_into(path: str | Path) -> None:
    """Standard output and error of this process, and of those that it starts, go to a file."""
    with open(path, "wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)


def _run_alone(path: str, program: str, arguments: tuple[str, ...]) -> None:
    speak_into(path)
    run_program(program, arguments)


def output_of(program: Path, *arguments: str, timeout: float = 110) -> str:
    """What the program prints as a forked process; it must end well."""
    with tempfile.NamedTemporaryFile("r") as said:
        process = multiprocessing.get_context("forkserver").Process(
            target=_run_alone, args=(said.name, str(program), arguments)
        )
        process.start()
        try:
            process.join(timeout)
            text = said.read()
            assert process.exitcode == 0, text
        finally:
            process.kill()
    return text
