"""How ranks meet at rank 0's address: those of C, C++ and Python, and those who come again."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import deltawire
import numpy as np
import pytest
from hosts import hosts

from bench.long_lines import ADDRESS, line
from lab.ranks.namespaces import enter_namespace

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DELTAWIRE_BUILD", ROOT / "build" / "release"))
PROGRAM = BUILD / "tests" / "multiproc" / "deltawire_session_rank"
SECRET = "a secret of the tests, of no special length"
DELAY_LINE = BUILD / "bench" / "delay_line"
LANGUAGES = ("c", "c++", "python")
LIMIT = 90  # seconds, of a rank on a busy machine
RANK = """
import os, sys, deltawire, numpy as np
rank, world_size, address, spec, least = sys.argv[1:]
values = np.full(1000, rank, np.float32)
try:
    with deltawire.Session(
        spec, rank=int(rank), world_size=int(world_size), address=address,
        min_elements=int(least), timeout=20.0, connect_timeout=float(os.environ.get("LIMIT", 20)),
    ) as session:
        session.all_reduce({"x": values})
        print(f"mean {values[0]:g}")
except deltawire.DeltawireError as error:
    print(f"{error.code}: {error}")
"""


@contextmanager
def rank_of(language: str, *place: object, by: tuple = ()) -> Iterator[subprocess.Popen]:
    """A process that is a rank, started `by` a command; place: rank, world size, address, spec,
    min_elements."""
    program = [sys.executable, "-c", RANK] if language == "python" else [str(PROGRAM), language]
    with subprocess.Popen(
        [*by, *program, *map(str, place)],
        env=os.environ | {"DELTAWIRE_TOKEN": SECRET, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(*ranks: subprocess.Popen) -> list[str]:
    return [rank.communicate(timeout=LIMIT)[0] for rank in ranks]


@pytest.mark.parametrize("languages", list(itertools.product(LANGUAGES, repeat=2)), ids="-".join)
def test_ranks_of_all_languages_meet(address: str, languages: tuple[str, str]) -> None:
    place = (2, address, "3lc", 256)
    with rank_of(languages[0], 0, *place) as first, rank_of(languages[1], 1, *place) as other:
        assert said(first, other) == 2 * ["mean 0.5\n"]


@pytest.mark.parametrize(
    "spec,least,words",
    [
        ("bf16", 256, 'rank 2 has the settings "direct(bf16)", rank 0 and another have "direct('),
        ("3lc", 7, '"min_elements=7", rank 0 and another have "min_elements=256"'),
    ],
)
def test_the_odd_one_of_three_languages_is_named_by_all(
    address: str, spec: str, least: int, words: str
) -> None:
    place = (3, address)
    with (
        rank_of("c", 0, *place, "3lc", 256) as first,
        rank_of("c++", 1, *place, "3lc", 256) as second,
        rank_of("python", 2, *place, spec, least) as odd,
    ):
        for text in said(first, second, odd):
            assert text.startswith("Mismatch: ") and words in text


@pytest.mark.skipif(not DELAY_LINE.exists(), reason="a long line needs bench/delay_line")
@pytest.mark.parametrize("there", [(0, 1), (1,)], ids=["one is missing", "a stranger listens"])
def test_a_line_that_is_too_long_for_the_time_is_named(there: tuple[int, ...]) -> None:
    with hosts(), line(DELAY_LINE, "cubic", ["200", "0", "20"]) as names, ExitStack() as held:
        place = 3, f"{ADDRESS[0]}:29600", "3lc", 256
        if 0 not in there:  # only one who dials knows the distance then
            thread = held.enter_context(ThreadPoolExecutor(1))
            thread.submit(enter_namespace, names[0]).result()
            held.enter_context(thread.submit(socket.create_server, (ADDRESS[0], 29600)).result())
        by = {rank: ("ip", "netns", "exec", names[rank], "env", "LIMIT=6") for rank in there}
        ranks = [rank_of("python", rank, *place, by=by[rank]) for rank in there]
        for text in said(*map(held.enter_context, ranks)):
            assert re.match(r"Timeout: .* \(A round trip takes 4.. ms, .* connect_timeout", text)


def session(rank, world_size, address, **more) -> deltawire.Session:
    more = {"token": SECRET, "timeout": 20.0, "connect_timeout": 40.0} | more
    return deltawire.Session("fp32", rank=rank, world_size=world_size, address=address, **more)


def average(rank, world_size, address) -> float:
    with session(rank, world_size, address) as door:
        values = np.full(300, rank, np.float32)
        door.all_reduce({"x": values})
        return float(values[0])


def dial(address: str) -> socket.socket:
    """To rank 0, once it listens."""
    host, port = address.rsplit(":", 1)
    end = time.monotonic() + LIMIT
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=LIMIT)
        except OSError:
            assert time.monotonic() < end, "rank 0 never listened"
            time.sleep(0.02)


def test_ctrl_c_ends_the_wait_for_others(address: str) -> None:
    with rank_of("python", 0, 2, address, "3lc", 256) as alone:
        dial(address).close()
        alone.send_signal(signal.SIGINT)
        assert said(alone) == [""]
        assert alone.returncode == -signal.SIGINT
