"""Step time of DDP with the hook (fp32 codec) against plain DDP, on unshaped loopback.

LeNet5-Caffe (431,080 parameters), batch 64, random images; or `--layers` of a million parameters
each, whose exchange is most of a step. All ranks hold all models and change
between them every few steps, so that all see the same machine; the ratio is of medians over blocks,
in wall time and in processor time of rank 0, all threads. Plain DDP runs twice in every round: the
ratio of plain to itself shows how much of it is noise.
DDP with torch's own hook for the all-reduce shows what any hook in Python costs.

    python bench/ddp_overhead.py
    python bench/ddp_overhead.py --codec 3lc:s=1.75 --ranks 2
    python bench/ddp_overhead.py --ranks 2 --layers 25 --batch 4

The last line is JSON, also with what --codec auto has chosen. Takes about a minute.
"""

import argparse
import json
import os
import statistics
import time

import deltawire.torch
import torch
import torch.distributed as dist
from spawned_ranks import result_of_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

AUTO_DECIDES = 70  # steps, by which "auto" has measured and chosen


def lenet5() -> nn.Module:
    """LeNet-5 as in Caffe's MNIST example."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )


def million_layers(count: int) -> nn.Module:
    """For LeNet-5's data: layers of 1,000 x 1,000, but the first and the last."""
    torch.manual_seed(1)
    middle = (nn.Linear(1000, 1000, bias=False) for _ in range(count))
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1000), *middle, nn.Linear(1000, 10))


def one_step(model, optimizer, images, labels) -> float:
    """Milliseconds of one whole training step."""
    start = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    return 1e3 * (time.perf_counter() - start)


def block(contender, data, steps) -> tuple[float, float]:
    """Milliseconds a step of one block: the median of wall time, the mean of processor time. The
    first step, which warms caches, isn't counted."""
    dist.barrier()
    one_step(*contender, *data)
    before = time.process_time()
    times = [one_step(*contender, *data) for _ in range(steps)]
    return statistics.median(times), 1e3 * (time.process_time() - before) / steps


def run_rank(rank: int, options: argparse.Namespace, results) -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(rank)
    data = (
        torch.randn(options.batch, 1, 28, 28, generator=generator),
        torch.randint(0, 10, (options.batch,), generator=generator),
    )
    contenders = {}
    for name in ("plain", "plain again", "torch's hook", "hook"):
        model = million_layers(options.layers) if options.layers else lenet5()
        model = DistributedDataParallel(model)
        contenders[name] = model, torch.optim.SGD(model.parameters(), lr=0.01)
    contenders["torch's hook"][0].register_comm_hook(None, default_hooks.allreduce_hook)
    hook = deltawire.torch.register(contenders["hook"][0], options.codec)
    for contender in contenders.values():
        block(contender, data, AUTO_DECIDES if options.codec == "auto" else 5)
    blocks = {name: [] for name in contenders}
    for turn in range(options.rounds):
        names = list(contenders)
        first = turn % len(names)  # nobody is always first
        for name in names[first:] + names[:first]:
            blocks[name].append(block(contenders[name], data, options.steps))
    if rank == 0:
        results.send((blocks, hook.metrics()))
    dist.barrier()
    hook.close()


def ratio_of(over: list[float], under: list[float]) -> dict:
    """The ratio of medians, and the middle half of the ratios block by block."""
    pairs = [a / b for a, b in zip(over, under, strict=True)]
    low, _, high = statistics.quantiles(pairs, n=4)
    return {
        "ratio": round(statistics.median(over) / statistics.median(under), 3),
        "quartiles": [round(low, 3), round(high, 3)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=4, help="processes (default: %(default)s)")
    parser.add_argument("--codec", default="fp32", help="spec of the hook (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=0, help="of a million, instead of LeNet-5")
    parser.add_argument("--batch", type=int, default=64, help="per rank (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="a block (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="of blocks (default: %(default)s)")
    options = parser.parse_args()
    if min(options.ranks - 1, options.batch, options.steps, options.rounds - 1) < 1:
        parser.error("needs at least 2 ranks, 2 rounds, 1 step and a batch of 1")

    blocks, metrics = result_of_ranks(run_rank, options)
    report(options, blocks, metrics)


def report(options: argparse.Namespace, blocks: dict, metrics: dict) -> None:
    model = f"{options.layers} layers of a million" if options.layers else "LeNet5-Caffe"
    print(f"{model}, {options.ranks} ranks on {os.cpu_count()} cores, batch {options.batch}")
    print(f"ms a step (median of {options.rounds} blocks), and by plain's (quartiles)")
    figures = {}
    for at, clock in enumerate(("wall", "processor")):
        times = {name: [block[at] for block in each] for name, each in blocks.items()}
        medians = {name: round(statistics.median(each), 2) for name, each in times.items()}
        to_plain = {name: ratio_of(each, times["plain"]) for name, each in times.items()}
        for name, by in to_plain.items():
            print(f"  {clock:9} {name:12} {medians[name]:8.2f} {by['ratio']} {by['quartiles']}")
        figures[clock] = {"ms": medians, "to_plain": to_plain}
    keys = ("encode_ms", "exchange_ms", "decode_ms")
    costs = {key: round(metrics[key], 3) for key in keys if metrics.get(key) is not None}
    chosen = {key: metrics[key] for key in ("choice", "plans") if key in metrics}  # of "auto"
    print(json.dumps({**figures, **costs, **chosen}))


if __name__ == "__main__":
    main()
