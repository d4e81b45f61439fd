"""Training steps of DDP by two ranks that share one GPU, over loopback: ResNet-50 and a transformer
of 150 million parameters, plain (gloo), with torch's hooks and with deltawire's.

    PYTHONPATH=build/release/python python bench/gpu_steps.py
    PYTHONPATH=build/release/python python bench/gpu_steps.py --networks transformer --seconds 20
    PYTHONPATH=build/release/python python bench/gpu_steps.py --link 1     # as root

Before a method is timed, its mean of fixed gradients is compared with plain DDP's and between the
ranks. Bytes are the loopback interface's. Both ranks compute on the same GPU in turns, so that the
steps show what an exchange costs, not how fast two GPUs train. With --link loopback is one of a
network namespace, where `tbf` lets through that rate for each rank.
"""

import argparse
import contextlib
import copy
import json
import os
import pathlib
import statistics
import sys
import time

import deltawire.torch
import torch
import torch.distributed as dist
from device import milliseconds
from spawned_ranks import result_of_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

ALONE, PLAIN, BF16, POWERSGD = "no exchange", "plain", "torch bf16", "torch PowerSGD rank 4"
OURS = ("fp32", "bf16", "gcomp", "int8", "topk:k=1%", "3lc:s=1.75")
ON_TWINS = " on twins"  # as the name without it, but encoded on the GPU
TWINS = tuple(f"{name}{ON_TWINS}" for name in OURS if name != "gcomp")
METHODS = (ALONE, PLAIN, *OURS, BF16, POWERSGD, *TWINS)
WARM_UP = 2  # steps
LOSSLESS = ("fp32", f"fp32{ON_TWINS}", "gcomp")
IN_NAMESPACE = "DELTAWIRE_BENCH_IN_NAMESPACE"


class Images(nn.Module):
    """ResNet-50 on random images of 224 x 224."""

    def __init__(self) -> None:
        from torchvision.models import resnet50

        super().__init__()
        self.network = resnet50()

    BATCH = 32

    def batch(self, size, generator) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randn(size, 3, 224, 224, generator=generator)
        return images, torch.randint(0, 1000, (size,), generator=generator)

    def loss(self, images, labels):
        return nn.functional.cross_entropy(self.network(images), labels)


class Words(nn.Module):
    """A transformer of 14 layers that predicts each next of 256 random words."""

    BATCH, VOCABULARY, WIDTH = 8, 32_000, 768

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            self.WIDTH, 12, 4 * self.WIDTH, 0.0, batch_first=True, norm_first=True
        )
        self.embedding = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.layers = nn.TransformerEncoder(layer, 14, enable_nested_tensor=False)
        self.head = nn.Linear(self.WIDTH, self.VOCABULARY)

    def batch(self, size, generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and what comes next."""
        words = torch.randint(0, self.VOCABULARY, (size, 257), generator=generator)
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()

    def loss(self, words, following):
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
        found = self.head(self.layers(self.embedding(words), mask=mask, is_causal=True))
        return nn.functional.cross_entropy(found.flatten(0, 1), following.flatten())


NETWORKS = {"resnet50": Images, "transformer": Words}


class Task(nn.Module):
    """A network with its loss; with `given` gradients, a loss that has these."""

    def __init__(self, of: nn.Module) -> None:
        super().__init__()
        self.of = of

    def forward(self, *batch, given=None):
        if given is None:
            with torch.autocast(batch[0].device.type, dtype=torch.bfloat16):
                return self.of.loss(*batch)
        pairs = zip(self.parameters(), given, strict=True)
        return sum((parameter * gradient).sum() for parameter, gradient in pairs)


class Method:
    """A model with its way to exchange gradients."""

    def __init__(self, name: str, task: Task) -> None:
        task = copy.deepcopy(task)
        # With several buckets torch's PowerSGD hangs on Gloo: its rounds cross each other.
        options = {"bucket_cap_mb": 4096} if name == POWERSGD else {}
        self.hook = None
        self.model = task
        if name != ALONE:
            self.model = DistributedDataParallel(task, broadcast_buffers=False, **options)
        if name == BF16:
            self.model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        elif name == POWERSGD:
            state = powerSGD_hook.PowerSGDState(None, 4, start_powerSGD_iter=2)
            self.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif (spec := name.removesuffix(ON_TWINS)) in OURS:
            self.hook = deltawire.torch.register(self.model, spec, twins=spec != name)
        self.compressed_after = 2 if name == POWERSGD else 0  # steps
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def means(self, given) -> list[torch.Tensor]:
        """Of fixed gradients, in the first step that is compressed."""
        for _ in range(self.compressed_after + 1):
            self.model.zero_grad()
            self.model(given=given).backward()
        return [parameter.grad for parameter in self.model.parameters()]

    def step(self, batch) -> float:
        """Milliseconds of one."""
        synchronize()
        start = time.perf_counter()
        self.optimizer.zero_grad()
        self.model(*batch).backward()
        self.optimizer.step()
        synchronize()
        return 1e3 * (time.perf_counter() - start)

    def close(self) -> None:
        if self.hook is not None:
            self.hook.close()


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def loopback_bytes() -> int:
    """Sent by the loopback interface of this network namespace so far."""
    lines = pathlib.Path("/proc/self/net/dev").read_text().splitlines()
    (counters,) = (line.partition(":")[2] for line in lines if line.strip().startswith("lo:"))
    return int(counters.split()[8])


def all_ranks(value: float) -> list[float]:
    """Every rank's value."""
    found = [0.0] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def checksum(means: list[torch.Tensor]) -> float:
    """Of every bit; equal tensors have equal ones."""
    parts = (mean.contiguous().view(torch.int32).sum(dtype=torch.int64) for mean in means)
    return float(sum(part.item() * (place + 1) for place, part in enumerate(parts)) % 2**52)


def relative_error(means: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """|means - exact| / |exact|."""
    apart = sum((a.double() - b.double()).square().sum() for a, b in zip(means, exact, strict=True))
    return (apart / sum(b.double().square().sum() for b in exact)).sqrt().item()


def pinned_peak(reset: bool = False) -> float:
    """MiB of pinned memory, at most since the last reset; torch rounds up to powers of two."""
    if not torch.cuda.is_available() or not hasattr(torch.cuda, "host_memory_stats"):
        return 0.0
    if reset:
        with contextlib.suppress(AttributeError):
            torch._C._host_emptyCache()
        torch.cuda.reset_peak_host_memory_stats()
    return torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0) / 2**20


def copies(count: int) -> tuple[float, float]:
    """Milliseconds that so many float32 take to pinned memory and back, whole."""
    if not torch.cuda.is_available():
        return 0.0, 0.0
    device, host = torch.randn(count, device="cuda"), torch.empty(count, pin_memory=True)
    down = milliseconds(lambda: host.copy_(device, non_blocking=True), repeats=3)
    return down, milliseconds(lambda: device.copy_(host, non_blocking=True), repeats=3)


def measured(name: str, task: Task, given, batch, exact, seconds: float) -> tuple[dict, list]:
    """(figures of a method, its means of the given gradients)."""
    pinned_peak(reset=True)
    method = Method(name, task)
    try:
        means = [mean.clone() for mean in method.means(given)] if name != ALONE else []
        row = {"method": name}
        if method.hook is not None:
            row["coded on"] = method.hook.explain().coded_on
        if means:
            row["alike"] = len(set(all_ranks(checksum(means)))) == 1
            row["error"] = relative_error(means, exact) if exact else 0.0
            if not row["alike"] or (name in LOSSLESS and row["error"] != 0):
                raise AssertionError(f"wrong means: {row}")
        for _ in range(WARM_UP):
            last = method.step(batch)
        slowest = max(all_ranks(last))
        steps = max(3, min(30, int(1e3 * seconds / max(slowest, 1e-3))))
        dist.barrier()
        before = loopback_bytes()
        times = [method.step(batch) for _ in range(steps)]
        dist.barrier()
        row["bytes"] = (loopback_bytes() - before) / steps / dist.get_world_size()
        row["ms"], row["steps"] = max(all_ranks(statistics.median(times))), steps
        row["pinned_mib"] = max(all_ranks(pinned_peak()))
        if method.hook is not None:
            last = method.hook.step_records[-1]
            row["record"] = {key: value for key, value in last.items() if key.endswith("_ms")}
            row["buckets"] = last["buckets"]
        return row, means
    finally:
        method.close()


def run_rank(rank: int, options: argparse.Namespace, results) -> None:
    os.environ["LOCAL_WORLD_SIZE"] = str(options.ranks)
    threads = max(1, (os.cpu_count() or 1) // options.ranks)
    torch.set_num_threads(min(threads, 8))
    torch.manual_seed(1)
    task = Task(NETWORKS[options.network]()).to(options.device)
    generator = torch.Generator().manual_seed(rank)
    batch = [
        each.to(options.device) for each in task.of.batch(options.batch or task.of.BATCH, generator)
    ]
    task(*batch).backward()
    given = [parameter.grad.clone() for parameter in task.parameters()]
    task.zero_grad()
    count = sum(each.numel() for each in given)
    found = {"network": options.network, "link": options.link, "parameters": count, "rows": []}
    found["copies_ms"] = copies(count)
    exact: list[torch.Tensor] = []
    for name in options.methods:
        try:
            row, means = measured(name, task, given, batch, exact, options.seconds)
            if name == PLAIN:
                exact = means
        except Exception as cause:  # alike on every rank, or the others' groups time out
            row = {"method": name, "failed": f"{type(cause).__name__}: {cause}".splitlines()[0]}
        found["rows"].append(row)
        if rank == 0:
            print(json.dumps(row), flush=True)
    if rank == 0:
        results.send(found)
    dist.barrier()


def table(found: dict) -> str:
    down, up = found["copies_ms"]
    megabytes = 4 * found["parameters"] / 1e6
    link = f", {found['link']:g} Gbit/s for each rank" if found["link"] else ""
    lines = [
        f"{found['network']}{link}: {found['parameters']:,} parameters; {megabytes:.0f} MB of "
        f"gradients take {down:.1f} ms to pinned memory and {up:.1f} ms back",
        "",
        "| exchange | ms a step | MB sent by a rank | error of the mean | pinned MiB |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        if "failed" in row:
            lines.append(f"| `{row['method']}` | {row['failed'][:160]} | | | |")
            continue
        error = f"{row['error']:.2g}" if "error" in row else "-"
        lines.append(
            f"| `{row['method']}` | {row['ms']:.1f} | {row['bytes'] / 1e6:.1f} | {error} | "
            f"{row['pinned_mib']:.0f} |"
        )
    return "\n".join(lines)


def behind_a_link(gigabits: float, ranks: int) -> None:
    """Starts this program anew in a network namespace whose loopback has the rate for each rank."""
    rate = f"tc qdisc add dev lo root tbf rate {gigabits * ranks:g}gbit burst 1mb latency 100ms"
    command = f'ip link set lo up && {rate} && exec "$@"'
    program = (sys.executable, *sys.argv)
    os.environ[IN_NAMESPACE] = "1"
    os.execvp("unshare", ["unshare", "--net", "sh", "-c", command, "sh", *program])


def main() -> None:
    """Runs each network's ranks, and prints tables and JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of timed steps a method")
    parser.add_argument("--batch", type=int, help="default: 32 images, 8 sequences")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda:0", help="cpu: to try the program")
    parser.add_argument("--link", type=float, help="Gbit/s for each rank; default: unlimited")
    options = parser.parse_args()
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU; --device cpu tries the program without one")
    # All exchanges are to pass through the interface that is limited, and whose bytes are counted.
    os.environ["DELTAWIRE_LOCAL_SOCKETS"] = "off"
    if options.link and IN_NAMESPACE not in os.environ:
        behind_a_link(options.link, options.ranks)
    every = []
    for name in options.networks:
        options.network = name
        try:
            every.append(result_of_ranks(run_rank, options, seconds=25))
        except SystemExit as failed:
            print(f"\n{name}: {failed}; what was measured is above\n", flush=True)
            continue
        print(f"\n{table(every[-1])}\n", flush=True)
    print(json.dumps(every))
    if len(every) < len(options.networks):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
