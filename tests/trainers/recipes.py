"""Runs the programs of examples/trainers, with and without the lines for deltawire."""

import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ports import kept_port
from programs import run_program, speak_into

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "trainers"
MARK = re.compile(r"  # deltawire(?:: (?P<plain>.*))?$")
MOST_LINES = 5


def with_ours(name: str) -> str:
    """The program as it is in examples/trainers."""
    return (FOLDER / name).read_text()


def own_lines(name: str) -> list[str]:
    """The lines for deltawire, without their mark."""
    return [MARK.sub("", line) for line in with_ours(name).splitlines() if MARK.search(line)]


def without_ours(name: str) -> str:
    """The program as it was before: marked lines go, or become what the mark says."""
    lines = []
    for line in with_ours(name).splitlines():
        mark = MARK.search(line)
        if mark is None:
            lines.append(line)
        elif mark["plain"]:
            lines.append(line[: len(line) - len(line.lstrip())] + mark["plain"])
    return "\n".join(lines) + "\n"


def lossless(name: str) -> str:
    """The program with a codec that changes nothing, and needs no rule of the optimizer: it must
    train as without."""
    text = with_ours(name)
    assert '"3lc"' in text
    return text.replace('"3lc", optimizer=optimizer', '"3lc"').replace('"3lc"', '"fp32"')


ENVIRONMENT = {
    "MASTER_ADDR": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def _run_rank(program, settings):
    os.chdir(program.parent)
    os.environ.update(settings)
    speak_into(f"said-{settings['RANK_OF_TEST']}")
    run_program(str(program))


def run_ranks(text: str, folder: Path, ranks: list[dict], timeout: float = 100) -> str:
    """What the program said on all ranks, each with its own environment; forked from a server that
    has PyTorch, whose import takes seconds."""
    folder.mkdir()
    program = folder / "program.py"
    program.write_text(text)
    context = multiprocessing.get_context("forkserver")
    with kept_port() as port:
        shared = ENVIRONMENT | {"MASTER_PORT": str(port)}
        processes = []
        for number, own in enumerate(ranks):
            settings = shared | own | {"RANK_OF_TEST": str(number)}
            process = context.Process(target=_run_rank, args=(program, settings), daemon=True)
            processes.append(process)
        _run_all(processes, timeout)
    said = [(folder / f"said-{n}").read_text() for n in range(len(ranks))]
    assert [process.exitcode for process in processes] == [0] * len(ranks), "\n".join(said)
    return "".join(said)


def _run_all(processes: list, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


def torchrun_ranks(world: int) -> list[dict]:
    """Each rank's environment, as torchrun would set it."""
    return [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        for rank in range(world)
    ]


def run_command(command: list[str], folder: Path, settings: dict | None = None) -> str:
    """Runs a command, which must succeed; returns its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | ENVIRONMENT | {"PYTHON": sys.executable} | (settings or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def torchrun(text: str, folder: Path, world: int = 2) -> str:
    """What the program said, started by torchrun."""
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(text)
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    with kept_port() as port:
        return run_command([*launch, f"--master-port={port}", "program.py"], folder)


def losses(said: str) -> dict[int, float]:
    """By rank, what the program printed last. Ranks share a pipe: a newline may come late."""
    found = {
        int(rank): float(loss) for rank, loss in re.findall(r"rank (\d+): loss (\d+\.\d{6})", said)
    }
    assert found, said
    return found


def check_against_plain(ours: str, exact: str | None, plain: str, world: int = 2) -> None:
    """Compares the output of runs with "3lc", with "fp32" (if there was one) and without
    deltawire."""
    found, expected = losses(ours), losses(plain)
    same = expected if exact is None else losses(exact)
    assert sorted(found) == sorted(same) == sorted(expected) == list(range(world))
    for rank, loss in expected.items():
        assert same[rank] == pytest.approx(loss, rel=1e-4), "fp32 trains as without"
    # Of all ranks: one rank's is that of one batch. Before the first step it is about 1.
    assert sum(found.values()) < 1.3 * sum(expected.values()) + 0.1 * world, "3lc trains, too"
    assert found != same, "3lc is not fp32"


def check_ratio(said: str, world: int = 2) -> None:
    """Every rank says how many times fewer bytes it has sent."""
    ratios = re.findall(r"([0-9.]+) times fewer bytes than float32", said)
    assert len(ratios) >= world and all(float(ratio) > 4 for ratio in ratios), said
