"""Programs of the documentation, in the environment that torchrun would give their ranks.

Ranks are forked from a process that has PyTorch, whose import takes seconds. Where `fresh`, rank 0
is an interpreter of its own, as the user's ranks are.
"""

import multiprocessing
import os
import sys
from pathlib import Path

from ports import kept_port
from programs import run_program, speak_into


def _run_rank(program, folder, settings, arguments):
    os.chdir(folder)
    os.environ.update(settings)
    speak_into(f"said-{settings['RANK']}")
    run_program(program, arguments)


def _run_fresh(command, folder, settings):
    """Becomes a new interpreter."""
    os.chdir(folder)
    speak_into("said-0")
    os.execve(sys.executable, [sys.executable, *command], os.environ | settings)


def run_ranks(
    program: str,
    world: int,
    folder: Path,
    more: dict[str, str] | None = None,
    arguments: tuple[str, ...] = (),
    fresh: bool = False,
):
    """What each rank says, in rank order; all must end well. The program lies in `folder`."""
    with kept_port() as port:
        return _run_at(port, (program, *arguments), world, folder, more or {}, fresh)


def _run_at(
    port: int, command: tuple[str, ...], world: int, folder: Path, more: dict[str, str], fresh: bool
):
    settings = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    } | more
    context = multiprocessing.get_context("forkserver")
    places = [settings | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
    ranks = [
        context.Process(
            target=_run_rank, args=(command[0], folder, place, command[1:]), daemon=True
        )
        for place in places
    ]
    if fresh:
        ranks[0] = context.Process(target=_run_fresh, args=(command, folder, places[0]))
    try:
        for rank in ranks:
            rank.start()
        texts = []
        for number, rank in enumerate(ranks):
            rank.join(20 if texts else 100)
            texts.append((folder / f"said-{number}").read_text())
            assert rank.exitcode == 0, texts[number]
        return texts
    finally:
        for rank in ranks:
            rank.kill()
