"""Compares the predictions of `deltawire plan` for the demo's rows with their measured times.

    python -m lab.traces lenet5 --optimizers sgd --record 5,30,60 --out out/traces
    python -m lab.demo --link 30mbit --out out/demo30
    python -m lab.probes.plan_check out/demo30/results.json --input out/traces/lenet5-sgd

The planner gets what is known before a training: the gradients, the link, the cores of a rank, the
time of computing (the row's own compute_ms) and when each bucket is ready, which is measured here,
in one process. Rows that the planner has no model for are left out: local steps (@10) and powersgd.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from lab.command.paths import DELTAWIRE
from lab.command.program import main_of, make_parser
from lab.data.batches import Batches
from lab.data.images import DataError
from lab.demo.methods import PLAIN
from lab.demo.workloads import WORKLOADS, Workload

_LATENCY = "0.05ms"  # loopback; the demo's links have none of their own
_TURNS = 12


class CheckFailed(Exception):
    """The table can't be made; the message is one line that says why."""


def workload_of(settings: dict) -> Workload:
    """The network that the demo trained."""
    for workload in WORKLOADS.values():
        if workload.words == settings["network"]:
            return workload
    raise CheckFailed(f"the network {settings['network']!r} is not one of lab.demo.workloads")


def readiness(network: torch.nn.Module, batch: tuple) -> dict[str, float]:
    """Parameter name -> when its gradient is ready, as a fraction of forward and backward;
    medians."""
    torch.set_num_threads(1)
    images, labels = batch
    made: dict[str, list[float]] = {name: [] for name, _ in network.named_parameters()}
    moments: dict[str, float] = {}
    for name, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda _, name=name: moments.__setitem__(name, time.perf_counter())
        )
    for _ in range(_TURNS):
        network.zero_grad()
        started = time.perf_counter()
        cross_entropy(network(images), labels).backward()
        whole = time.perf_counter() - started
        for name, moment in moments.items():
            made[name].append((moment - started) / whole)
    return {name: statistics.median(shares) for name, shares in made.items()}


class Planner:
    """Runs `deltawire plan` with figures that are measured once."""

    def __init__(self, program: Path, trace: Path, specs: list[str]) -> None:
        self._program = program
        asked = ["--input", trace, "--link", "100mbit", "--codecs", *specs]
        self._measured = self._ask(*asked)

    @property
    def buckets(self) -> list[list[str]]:
        """The names of each bucket's tensors, as DDP will cut them."""
        return [bucket["tensors"] for bucket in self._measured["buckets"]]

    def plan(self, *place: object) -> dict:
        """The plan for one link and number of ranks."""
        figures = json.dumps(self._measured)
        (only,) = self._ask("--figures", "-", *place, given=figures)["plans"]
        return only

    def _ask(self, *arguments: object, given: str = "") -> dict:
        command = [str(self._program), "plan", *map(str, arguments), "--json", "-"]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CheckFailed(done.stderr.strip())
        return json.loads(done.stdout)


def has_model(row: dict) -> bool:
    """Whether the planner has a model of the row."""
    return not row["failed"] and "@" not in row["method"] and "powersgd" not in row["method"]


def table(results: dict, planner: Planner, shares: dict[str, float]) -> str:
    """Markdown: a line for each of the demo's rows that the planner has a model for."""
    settings = results["settings"]
    cores = results["machine"]["cores"] / settings["ranks"]
    lines = ["| method | predicted ms | measured ms | error |", "|---|---|---|---|"]
    for row in results["rows"]:
        if not has_model(row):
            continue
        compute = row["compute_ms"]
        ready = [max(shares[name] for name in bucket) * compute for bucket in planner.buckets]
        plan = planner.plan(
            *("--ranks", settings["ranks"], "--link", f"{settings['link']},{_LATENCY}"),
            *("--compute-ms", compute, "--ready-ms", ",".join(f"{ms:.6f}" for ms in ready)),
            *("--cores", cores),
        )
        steps = {each["codec"]: each["ms_per_step"] for each in plan["rows"]}
        predicted = steps.get(row["method"], plan["plain"]["ms_per_step"])
        error = predicted / row["ms_per_step"] - 1
        lines.append(
            f"| `{row['method']}` | {predicted:.1f} | {row['ms_per_step']:.1f} | {error:+.0%} |"
        )
    return "\n".join(lines)


def run(given: argparse.Namespace) -> None:
    """Prints the table."""
    results = json.loads(given.results.read_text())
    settings = results["settings"]
    workload = workload_of(settings)
    images = workload.load_images(Path(settings["data"]))
    batches = Batches(images, seed=1, batch=settings["batch_per_rank"], place=(0, 1))
    shares = readiness(workload.make_network(1), batches.at(0))
    rows = filter(has_model, results["rows"])
    specs = [row["method"] for row in rows if row["method"] != PLAIN]
    planner = Planner(given.program, given.input, specs)
    if unknown := {name for bucket in planner.buckets for name in bucket} - set(shares):
        raise CheckFailed(f"{given.input} is of another network: it has {min(unknown)}")
    print(table(results, planner, shares))


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.plan_check", __doc__)
    parser.add_argument("results", type=Path, help="a demo's results.json")
    parser.add_argument("--input", type=Path, required=True, help="a trace of its network")
    parser.add_argument("--program", type=Path, default=DELTAWIRE)
    return parser.parse_args(arguments)


main = main_of(
    "lab.probes.plan_check", parse, run, OSError, ValueError, KeyError, DataError, CheckFailed
)


if __name__ == "__main__":
    sys.exit(main())
