"""Step time of DDP with the hook (fp32 codec) against plain DDP, on unshaped loopback.

LeNet5-Caffe (431,080 parameters), batch 64, random images. All ranks hold all models and change
between them every few steps, so that all see the same machine; the ratio is of medians over blocks.
Plain DDP runs twice in every round: the ratio of plain to itself shows how much of it is noise.
DDP with torch's own hook for the all-reduce shows what any hook in Python costs; with --codec auto,
which finds nothing to gain on loopback, so does the hook.

    PYTHONPATH=build/release/python python bench/ddp_overhead.py
    PYTHONPATH=build/release/python python bench/ddp_overhead.py --codec 3lc:s=1.75 --ranks 2

Prints one line of JSON as its last line. Takes about a minute.
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


def one_step(model, optimizer, images, labels) -> float:
    """Milliseconds of one whole training step."""
    start = time.perf_counter()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    return 1e3 * (time.perf_counter() - start)


def block(contender, data, steps) -> float:
    """Median milliseconds a step of one block; the first step, which warms caches, isn't
    counted."""
    dist.barrier()
    times = [one_step(*contender, *data) for _ in range(steps + 1)]
    return statistics.median(times[1:])


def run_rank(rank: int, options: argparse.Namespace, store: str, results) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks
    )
    generator = torch.Generator().manual_seed(rank)
    data = (
        torch.randn(options.batch, 1, 28, 28, generator=generator),
        torch.randint(0, 10, (options.batch,), generator=generator),
    )
    contenders = {}
    for name in ("plain", "plain again", "torch's hook", "hook"):
        model = DistributedDataParallel(lenet5())
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
    parser.add_argument("--batch", type=int, default=64, help="per rank (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="a block (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="of blocks (default: %(default)s)")
    options = parser.parse_args()
    if min(options.ranks - 1, options.batch, options.steps, options.rounds - 1) < 1:
        parser.error("needs at least 2 ranks, 2 rounds, 1 step and a batch of 1")

    blocks, metrics = result_of_ranks(run_rank, options)
    report(options, blocks, metrics)


def report(options: argparse.Namespace, blocks: dict, metrics: dict) -> None:
    hook = ratio_of(blocks["hook"], blocks["plain"])
    torchs = ratio_of(blocks["torch's hook"], blocks["plain"])
    noise = ratio_of(blocks["plain again"], blocks["plain"])
    medians = {name: round(statistics.median(times), 2) for name, times in blocks.items()}
    print(f"LeNet5-Caffe, {options.ranks} ranks on {os.cpu_count()} cores, batch {options.batch}")
    for name, ms in medians.items():
        print(f"  {name:12} {ms:8.2f} ms a step (median of {options.rounds} blocks)")
    print(f"  hook ({options.codec}) / plain: {hook['ratio']} (quartiles {hook['quartiles']})")
    print(f"  torch's hook / plain: {torchs['ratio']} (quartiles {torchs['quartiles']})")
    print(f"  plain / plain:       {noise['ratio']} (quartiles {noise['quartiles']})")
    keys = ("encode_ms", "exchange_ms", "decode_ms")
    costs = {key: round(metrics[key], 3) for key in keys if metrics.get(key) is not None}
    ratios = {"hook_to_plain": hook, "torchs_to_plain": torchs, "plain_to_plain": noise}
    print(json.dumps({"ms": medians, **ratios, **costs}))


if __name__ == "__main__":
    main()
