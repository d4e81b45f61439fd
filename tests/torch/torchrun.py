"""Programs of the documentation, in the environment that torchrun would give their ranks.

Rank 0 is a fresh interpreter, as the user's ranks are; the others are forked from one that has
PyTorch, whose import takes seconds.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path

from ports import kept_port


def _run_rank(program, folder, settings, arguments):
    os.chdir(folder)
    os.environ.update(settings)
    with open(f"said-{settings['RANK']}", "wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


def run_ranks(
    program: str,
    world: int,
    folder: Path,
    more: dict[str, str] | None = None,
    arguments: tuple[str, ...] = (),
):
    """What each rank says, in rank order; all must end well. The program lies in `folder`."""
    with kept_port() as port:
        return _run_at(port, (program, *arguments), world, folder, more or {})


def _run_at(port: int, command: tuple[str, ...], world: int, folder: Path, more: dict[str, str]):
    settings = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    } | more
    context = multiprocessing.get_context("forkserver")
    places = [settings | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
    first = subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | places[0],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    others = [
        context.Process(
            target=_run_rank, args=(command[0], folder, place, command[1:]), daemon=True
        )
        for place in places[1:]
    ]
    try:
        for rank in others:
            rank.start()
        texts = [first.communicate(timeout=100)[0]]
        assert first.returncode == 0, texts[0]
        for number, rank in enumerate(others, start=1):
            rank.join(20)
            texts.append((folder / f"said-{number}").read_text())
            assert rank.exitcode == 0, texts[number]
        return texts
    finally:
        first.kill()
        first.wait()
        for rank in others:
            rank.kill()
