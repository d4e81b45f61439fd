"""README's programs run as they stand there, in the environment that torchrun would give them."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert len(PROGRAMS) == README.count("```python") == 2


@pytest.mark.parametrize(("name", "world", "code"), PROGRAMS, ids=[row[0] for row in PROGRAMS])
def test_program_runs(name, world, code, tmp_path):
    (tmp_path / name).write_text(code)
    settings = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "WORLD_SIZE": world,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, name],
            cwd=tmp_path,
            env=os.environ | settings | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(int(world))
    ]
    try:
        for rank in ranks:
            said, _ = rank.communicate(timeout=100)
            assert rank.returncode == 0, said
            if "print(" in code:
                ratio = re.search(r"^(\d+) times fewer bytes than float32$", said, re.M)
                assert ratio and int(ratio[1]) > 2, said
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
