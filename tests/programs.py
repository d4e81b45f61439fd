"""Runs a user's program in this process, for tests that fork processes with PyTorch imported."""

import runpy
import sys

_ended: list[dict] = []


def run_program(program: str, arguments: tuple[str, ...] = ()) -> dict:
    """Runs it as `python program arguments` would; returns its globals.

    They live until the process exits, as a program's own do. Dropped earlier, a DDP model would
    hold the last reference to a destroyed process group: PyTorch 2.13 then joins the group's thread
    while it holds the GIL, for which that thread may be waiting.
    """
    sys.argv = [program, *arguments]
    _ended.append(runpy.run_path(program, run_name="__main__"))
    return _ended[-1]
