"""The release build, packages made of it, and programs of two ranks that were linked with it."""

import os
import signal
import subprocess
from pathlib import Path

from ports import kept_ports, number_of

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DELTAWIRE_BUILD", ROOT / "build" / "release"))
EXAMPLE = ROOT / "examples" / "cpp" / "train.cc"
TIMEOUT = 280  # seconds, of one command: compilers on a busy machine
TOGETHER = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def run(*command: object, **options) -> str:
    """What the command prints; it must succeed."""
    how = TOGETHER | {"timeout": TIMEOUT, "check": False} | options
    done = subprocess.run([*map(str, command)], **how)
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def refused(*command: object, **options) -> str:
    """What the command, which must fail, says that is wrong, in one line."""
    told = {"capture_output": True, "text": True, "timeout": TIMEOUT, **options}
    done = subprocess.run([*map(str, command)], check=False, **told)
    assert done.returncode != 0, done.stdout
    return " ".join(done.stderr.split())


def install(prefix: Path) -> Path:
    """An installation that has been moved since."""
    first = prefix.with_name(prefix.name + "-first")
    run("cmake", "--install", BUILD, "--prefix", first)
    first.rename(prefix)
    return prefix


def run_ranks(commands: list[list[object]], **options) -> tuple[list[int], list[str]]:
    """The exit status and the output of each of these processes, which run at the same time."""
    how = TOGETHER | options
    ranks = [subprocess.Popen([*map(str, command)], **how) for command in commands]
    try:
        texts = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [rank.returncode for rank in ranks], texts


def train_two_ranks(*program: object, rendezvous: bool = False, **options) -> None:
    """Both ranks of an example learn the same weights, with fewer bytes. The example takes a rank,
    and the endpoints of all or, with a rendezvous, their number and where rank 0 listens."""
    with kept_ports(2) as kept:
        endpoints = [f"127.0.0.1:{number_of(held)}" for held in kept]
        others = ["2", endpoints[0]] if rendezvous else endpoints
        codes, texts = run_ranks([[*program, rank, *others] for rank in range(2)], **options)
    assert codes == [0, 0], texts
    # "w[0] = 1.0002, loss 1.5e-05, 13.5 times fewer bytes than float32"
    weights = [text.split(",")[0] for text in texts]
    assert weights[0] == weights[1], texts
    assert abs(float(weights[0].removeprefix("w[0] = ")) - 1) < 0.01, texts
    for text in texts:
        assert float(text.split(", ")[2].split()[0]) > 4, text


def lose_a_rank(program: Path, **options) -> None:
    """Of three ranks of an elastic example the last is killed; the others learn the same weights
    to the end. The example takes where rank 0 listens, a rank, and their number."""
    with kept_ports(1) as kept:
        door = f"127.0.0.1:{number_of(kept[0])}"
        codes, texts = run_ranks([[program, door, rank, 3] for rank in range(3)], **options)
    assert codes == [0, 0, -signal.SIGKILL], texts
    # "w[0] = 0.99994, rank 1 of 2, epoch 1"
    weights = [text.split(",")[0] for text in texts]
    assert weights[0] == weights[1], texts
    assert abs(float(weights[0].removeprefix("w[0] = ")) - 1) < 0.01, texts
    for rank, text in enumerate(texts[:2]):
        assert text.endswith(f", rank {rank} of 2, epoch 1\n"), text
