"""`link=` on a real line: ranks that pace their sends at its rate lose next to nothing."""

import contextlib
import os
import secrets
import subprocess
import sys

import pytest
from hosts import hosts

RANKS, VALUES, RATE = 4, 430_000, 1.25e6  # bytes a second; the rank's program has the same
RANK = """
import sys, deltawire, numpy as np
rank, address, rate = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])

def segments():
    lines = open("/proc/thread-self/net/snmp").read().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    counts = dict(zip(names, values))
    return np.array([int(counts["OutSegs"]), int(counts["RetransSegs"])])

with deltawire.Session(
    "direct(bf16)", rank=rank, world_size=4, address=address, connect_timeout=60.0, timeout=60.0,
    link=deltawire.LinkShape(rate),
) as session:
    for turn in range(2):  # in the first one TCP searches for the line's rate
        before = segments()
        session.all_reduce({"x": np.full(430_000, 1.0 + rank, np.float32)})
    print(*(segments() - before))
"""


@pytest.mark.timeout(240)
def test_a_paced_line_loses_next_to_nothing() -> None:
    environment = os.environ | {"DELTAWIRE_TOKEN": secrets.token_hex(32)}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    with hosts(RANKS, RATE) as line, contextlib.ExitStack() as started:
        ranks = []
        for rank in range(RANKS):
            own = [sys.executable, "-c", RANK, str(rank), f"{line.address(0)}:29600", str(RATE)]
            command = [*line.command_prefix(rank), *own]
            ranks.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            )
            started.callback(ranks[-1].wait)
            started.callback(ranks[-1].kill)
        said = [rank.communicate(timeout=200)[0].split() for rank in ranks]
    for sent, again in (map(int, each) for each in said):
        # A rank's bytes, in packets of at most 64 KiB, before the line cuts them into smaller ones.
        assert sent > 2 * VALUES * 1.5 / 65_536
        assert again <= 0.02 * sent
