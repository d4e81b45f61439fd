"""Trains small networks on real data and records their gradients, early, midway and late.

    python -m lab.traces all --size small --out out/traces       the small ones (tests/traces)
    python -m lab.traces lenet5 --record 1-200 --out out/traces  every step of one training

Each training writes a trace (docs/reference/traces.md) to OUT/NAME-OPTIMIZER. All but lenet5, whose
images come from Debian's package dataset-fashion-mnist, read the folder that DELTAWIRE_DATA names.
With one thread, the same command gives the same bytes on the same machine and version of PyTorch.
"""

import argparse
import sys
import time
from pathlib import Path

import deltawire.torch
import torch
from deltawire import DeltawireError

from lab.command.program import main_of, make_parser
from lab.data.images import DataError
from lab.models.trainings import OPTIMIZERS, SIZES, TRAININGS, make_optimizer, make_training


def record(name: str, optimizer_name: str, settings: argparse.Namespace) -> None:
    """Records one training, and prints a summary. Raises DataError, DeltawireError."""
    began = time.monotonic()
    training = make_training(name, settings.size, settings.seed)
    optimizer = make_optimizer(training, optimizer_name)
    count = sum(parameter.numel() for parameter in training.network.parameters())
    last = max(settings.record)
    recording = deltawire.torch.trace(
        training.network,
        settings.out / f"{name}-{optimizer_name}",
        optimizer=optimizer,
        steps=settings.record,
        spec="gcomp:lossless=on",
        name=f"{training.words}, {count:,} parameters, {last} steps, seed {settings.seed}",
    )
    losses = {}
    for step in range(last):
        optimizer.zero_grad()
        loss = training.loss_at(step)
        loss.backward()
        optimizer.step()
        if step + 1 in settings.record:
            losses[step + 1] = loss.item()
    shown = [min(losses), sorted(losses)[len(losses) // 2], max(losses)]
    print(
        f"{name} {optimizer_name}: seed {settings.seed}, {count:,} parameters, losses "
        f"{', '.join(f'{losses[step]:.3f} ({step})' for step in dict.fromkeys(shown))}, "
        f"{len(recording.steps)} steps, {recording.bytes_written / 1e6:.2f} MB, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )


def step_numbers(text: str) -> frozenset[int]:
    """Parses "5,100-102" as {5, 100, 101, 102}."""
    numbers = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers.update(range(int(first), int(last if dash else first) + 1))
    if not numbers or min(numbers) < 1:
        raise ValueError("steps count from 1")
    return frozenset(numbers)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.traces", __doc__)
    parser.add_argument("name", choices=[*TRAININGS, "all"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the traces' folders")
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument(
        "--record",
        type=step_numbers,
        default=frozenset({5, 100, 300}),
        metavar="STEPS",
        help="numbers of steps, counted from 1, e.g. 5,100-102; the last ends the training "
        "(default: 5,100,300)",
    )
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def run(settings: argparse.Namespace) -> None:
    """Trains and records everything that was requested."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    print(f"PyTorch {torch.__version__}, {settings.size} size, seed {settings.seed}", flush=True)
    for name in list(TRAININGS) if settings.name == "all" else [settings.name]:
        for optimizer_name in settings.optimizers:
            record(name, optimizer_name, settings)


main = main_of("lab.traces", parse, run, DataError, DeltawireError)


if __name__ == "__main__":
    sys.exit(main())
