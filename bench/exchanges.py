"""Whole exchanges: `Session.all_reduce` beside torch's all-reduce over Gloo, in the same processes.

    PYTHONPATH=build/release/python python bench/exchanges.py
    PYTHONPATH=build/release/python python bench/exchanges.py --ranks 4 --values 1000000 \
        --over memory unix tcp tls --specs "direct(fp32)" "ring(fp32)" "direct(bf16)" 3lc

Gloo, which sums and does not divide, and the sessions take turns, step by step, so that all meet
the same machine. The time of a step is that of the slowest rank, its processor time the mean of the
ranks', all threads and the kernel's work for them included; both are medians, in milliseconds, and
in brackets as multiples of Gloo's. Before a session is measured its mean is compared with Gloo's,
with fp32 and two ranks bit for bit, and all ranks must have the same bits. Gloo uses TCP over
loopback; `--over` says what the sessions use: shared memory (the default on one machine), Unix
sockets, TCP, or TLS over TCP. Prints a Markdown table for each number of ranks.
"""

import argparse
import hashlib
import os
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import deltawire
import numpy as np
import torch
import torch.distributed as dist
from spawned_ranks import result_of_ranks

TOKEN = "a token of this benchmark alone"
WARM = 3  # steps before the first that counts
LOSSLESS = {"fp32", "direct(fp32)", "ring(fp32)", "gather(fp32)"}


def session_over(over: str, spec: str, rank: int, ranks: int) -> deltawire.Session:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = [held.getsockname()[1]]
    dist.broadcast_object_list(port)
    os.environ["DELTAWIRE_LOCAL_SOCKETS"] = "on" if over in {"memory", "unix"} else "off"
    os.environ["DELTAWIRE_SHARED_MEMORY"] = "on" if over == "memory" else "off"
    return deltawire.Session(
        spec,
        rank=rank,
        world_size=ranks,
        address=f"127.0.0.1:{port[0]}",
        token=TOKEN,
        encryption="required" if over == "tls" else "off",
    )


def check(spec: str, mean: np.ndarray, expected: np.ndarray, ranks: int) -> None:
    """Exits where a mean is none. Of a lossy one much may come later: it points the same way."""
    digests: list[Any] = [None] * ranks
    dist.all_gather_object(digests, hashlib.sha256(mean.tobytes()).hexdigest())
    if len(set(digests)) > 1:
        raise SystemExit(f"{spec}: the ranks have different means")
    if spec in LOSSLESS:
        is_mean = np.allclose(mean, expected, rtol=1e-5, atol=1e-9)
        is_mean &= ranks > 2 or np.array_equal(mean, expected)
    else:
        is_mean = np.dot(mean, expected) > 0
    if not is_mean:
        raise SystemExit(f"{spec}: not the mean")


def timed(step: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds of a step on the wall and of the processor, over all ranks."""
    dist.barrier()
    processor, start = time.process_time(), time.perf_counter()
    step()
    wall, used = time.perf_counter() - start, time.process_time() - processor
    slowest, total = torch.tensor([1e3 * wall]), torch.tensor([1e3 * used])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    dist.all_reduce(total)
    return slowest.item(), total.item() / dist.get_world_size()


def run_rank(rank: int, options: argparse.Namespace, results) -> None:
    torch.set_num_threads(1)
    sessions = {
        (over, spec): session_over(over, spec, rank, options.ranks)
        for over in options.over
        for spec in options.specs
    }
    rows = []
    for count in options.values:
        given = 1e-3 * np.random.default_rng(rank).standard_normal(count, dtype=np.float32)
        array, tensor = given.copy(), torch.from_numpy(given.copy())

        def native(tensor=tensor) -> None:
            dist.all_reduce(tensor)

        def own(session, array=array) -> None:
            session.all_reduce({f"w{array.size}": array})

        native()
        expected = tensor.numpy() / np.float32(options.ranks)
        steps: dict[Any, Callable[[], Any]] = {"gloo": native}
        for key, session in sessions.items():
            array[:] = given
            own(session)
            check(key[1], array, expected, options.ranks)
            steps[key] = lambda session=session: own(session)
        turns = options.steps or max(9, min(200, int(1e8 / count)))
        taken: dict[Any, list] = {name: [] for name in steps}
        for turn in range(turns + WARM):
            for name, step in steps.items():
                array[:] = given  # means of means would vanish
                tensor[:] = torch.from_numpy(given)
                each = timed(step)
                if turn >= WARM:
                    taken[name].append(each)
        medians = {
            name: tuple(map(statistics.median, zip(*each, strict=True)))
            for name, each in taken.items()
        }
        rows.append((count, turns, medians))
    if rank == 0:
        results.send(rows)
    dist.barrier()
    for session in sessions.values():
        session.close()


def report(ranks: int, options: argparse.Namespace, rows: list) -> None:
    keys = [(over, spec) for over in options.over for spec in options.specs]
    titles = [f"`{spec}`, {over}" for over, spec in keys]
    print(f"\n{ranks} ranks; ms a step (of Gloo's); processor ms a rank (of Gloo's)\n")
    print("| values (steps) | Gloo | " + " | ".join(titles) + " |")
    print("|---" * (len(keys) + 2) + "|")
    for count, turns, medians in rows:
        wall, processor = medians["gloo"]
        cells = [f"{count:,} ({turns})", f"{wall:.2f}; {processor:.2f}"]
        for key in keys:
            mine, used = medians[key]
            share = used / max(processor, 1e-3)
            cells.append(f"{mine:.2f} ({mine / wall:.2f}); {used:.2f} ({share:.2f})")
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], metavar="N")
    parser.add_argument(
        "--values", type=int, nargs="+", metavar="N", default=[1000, 100_000, 10**6, 8 * 10**6]
    )
    parser.add_argument("--specs", nargs="+", default=["direct(fp32)"], metavar="SPEC")
    parser.add_argument(
        "--over", nargs="+", default=["memory"], choices=["memory", "unix", "tcp", "tls"]
    )
    parser.add_argument("--steps", type=int, help="that count (default: by the values)")
    given = parser.parse_args()
    if min(*given.ranks, *given.values, 2) < 1 or min(given.ranks) < 2:
        parser.error("needs at least 2 ranks and 1 value")
    for ranks in given.ranks:
        options = argparse.Namespace(**{**vars(given), "ranks": ranks})
        report(ranks, options, result_of_ranks(run_rank, options))


if __name__ == "__main__":
    main()
