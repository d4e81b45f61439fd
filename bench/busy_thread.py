"""What a thread that runs Python costs a step of DDP, plain and with the hook, over loopback.

A data loader's thread is such a thread: it holds Python's interpreter lock (the GIL), and lets go
of it every 5 ms (sys.getswitchinterval). Whoever else needs it waits so long, each time.

An MLP of five layers in five buckets. All ranks hold all models and change between them, and
between a busy thread and none, every few steps, so that all see the same machine. "no lock" is a
thread as busy that holds no lock: what it costs is the processor's time alone.

    PYTHONPATH=build/release/python python bench/busy_thread.py
    PYTHONPATH=build/release/python python bench/busy_thread.py --codec int8 --ranks 4 --auto

Prints one line of JSON as its last line. Takes about a minute.
"""

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import threading
import time

import deltawire.torch
import torch
import torch.distributed as dist
from spawned_ranks import result_of_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LOADS = ("idle", "busy", "no lock")


class Load:
    """A thread that is busy while it is asked to be."""

    def __init__(self) -> None:
        self._kind = "idle"
        self._working = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    @contextlib.contextmanager
    def of(self, kind: str):
        self._kind = kind
        if kind != "idle":
            self._working.set()
        yield
        self._working.clear()

    def _run(self) -> None:
        long = bytes(1 << 22)
        while self._working.wait():
            if self._kind == "no lock":
                hashlib.blake2b(long)
            else:
                sum(each * each for each in range(1000))


def layers(width: int) -> nn.Module:
    torch.manual_seed(1)
    made = [each for _ in range(5) for each in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*made)


def one_step(model, optimizer, inputs, wanted) -> float:
    """Milliseconds of one whole training step."""
    start = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), wanted).backward()
    optimizer.step()
    return 1e3 * (time.perf_counter() - start)


def block(contender, data, steps) -> list[float]:
    """Milliseconds of each step of one block; the first one, which warms caches, isn't counted."""
    dist.barrier()
    return [one_step(*contender, *data) for _ in range(steps + 1)][1:]


def run_rank(rank: int, options: argparse.Namespace, store: str, results) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks
    )
    generator = torch.Generator().manual_seed(rank)
    shape = options.batch, options.width
    data = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    contenders, hooks = {}, []
    bucket_mb = 4 * options.width * (options.width + 1) / 2**20
    for name in ("plain", options.codec, *(["auto"] if options.auto else [])):
        model = DistributedDataParallel(layers(options.width), bucket_cap_mb=bucket_mb)
        contenders[name] = model, torch.optim.SGD(model.parameters(), lr=0.01)
        if name != "plain":
            hooks.append(deltawire.torch.register(model, name))
    for contender in contenders.values():
        block(contender, data, 60 if options.auto else 5)  # by then auto has chosen
    load, times = Load(), {(name, kind): [] for name in contenders for kind in LOADS}
    for turn in range(options.rounds):
        order = list(times)
        for name, kind in order[turn % len(order) :] + order[: turn % len(order)]:
            with load.of(kind):
                times[name, kind] += block(contenders[name], data, options.steps)
    if rank == 0:
        results.send((times, [hook.spec for hook in hooks]))
    dist.barrier()
    for hook in hooks:
        hook.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--codec", default="3lc", help="spec of the hook (default: %(default)s)")
    parser.add_argument("--auto", action="store_true", help='measure "auto", too')
    parser.add_argument("--width", type=int, default=512, help="of layers (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="per rank (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="a block (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=12, help="of blocks (default: %(default)s)")
    options = parser.parse_args()
    if min(options.ranks - 1, options.batch, options.steps, options.rounds, options.width) < 1:
        parser.error("needs at least 2 ranks, and 1 of everything else")

    times, specs = result_of_ranks(run_rank, options)
    report(options, times, specs)


def report(options: argparse.Namespace, times: dict, specs: list[str]) -> None:
    print(f"{options.ranks} ranks on {os.cpu_count()} cores, hooks: {', '.join(specs)}")
    print(f"ms a step of {options.rounds * options.steps}, and times that of idle")
    # What other programs on the machine cost, the fastest steps have paid least.
    figures = {"median": statistics.median, "fastest tenth": _fastest_tenth}
    rows = {}
    for figure, of in figures.items():
        for name in dict.fromkeys(name for name, _ in times):
            row = {kind: round(of(times[name, kind]), 2) for kind in LOADS}
            rows[f"{name}, {figure}"] = row
            said = (f"{kind} {ms:.2f} ({ms / row['idle']:.2f})" for kind, ms in row.items())
            print(f"  {figure:14} {name:8} {', '.join(said)}")
    print(json.dumps(rows))


def _fastest_tenth(times: list[float]) -> float:
    return statistics.quantiles(times, n=10)[0]


if __name__ == "__main__":
    main()
