"""README's programs run as they stand there, in the environment that torchrun would give them.

Rank 0 is a fresh interpreter, as the user's ranks are; the others are forked from one that has
PyTorch, whose import takes seconds.
"""

import multiprocessing
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sharded import IS_SUPPORTED

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
PROGRAMS = re.findall(
    r"```python\n# (\S+); start it with: torchrun --nproc-per-node=(\d+) \S+\n(.*?)```",
    README,
    re.S,
)


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_readme_has_programs_and_no_fragments():
    assert len(PROGRAMS) == README.count("```python") == 3


def run_program(name, folder, settings):
    """In a process of its own."""
    os.chdir(folder)
    os.environ.update(settings)
    with open(f"said-{settings['RANK']}", "wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    runpy.run_path(name, run_name="__main__")


def check_words(said, code):
    if "print(" in code:
        ratio = re.search(r"^(\d+) times fewer bytes than float32$", said, re.M)
        assert ratio and int(ratio[1]) > 2, said


@pytest.mark.parametrize(("name", "world", "code"), PROGRAMS, ids=[row[0] for row in PROGRAMS])
def test_program_runs(name, world, code, tmp_path):
    if "fully_shard" in code and not IS_SUPPORTED:
        pytest.skip("this PyTorch has no set_all_reduce_hook")
    (tmp_path / name).write_text(code)
    settings = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "WORLD_SIZE": world,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    context = multiprocessing.get_context("forkserver")
    places = [settings | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(int(world))]
    first = subprocess.Popen(
        [sys.executable, name],
        cwd=tmp_path,
        env=os.environ | places[0],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    others = [
        context.Process(target=run_program, args=(name, tmp_path, place), daemon=True)
        for place in places[1:]
    ]
    try:
        for rank in others:
            rank.start()
        said, _ = first.communicate(timeout=100)
        assert first.returncode == 0, said
        check_words(said, code)
        for number, rank in enumerate(others, start=1):
            rank.join(20)
            said = (tmp_path / f"said-{number}").read_text()
            assert rank.exitcode == 0, said
            check_words(said, code)
    finally:
        first.kill()
        first.wait()
        for rank in others:
            rank.kill()
