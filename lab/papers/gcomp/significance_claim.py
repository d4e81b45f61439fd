"""GComp's claim, for each of its seven optimizers: cutting gradients by their significance does not
change the weights; a uniform cut of 18 bits does.

    python -m lab.papers.gcomp.significance_claim [--steps 200] [--json out/significance-claim.json]

One process trains LeNet5 on Fashion-MNIST from the same start on the same batches four times:
- without compression: the weights w that the others are compared with;
- "last bit": every gradient with its lowest mantissa bit cleared, instead of compression. Training
  amplifies any difference, and this shows what the smallest possible one grows to: gaps of this
  size are no evidence about compression;
- "auto": each gradient through gcomp, cut by the optimizer's significance (GComp, section 5.1);
- "cut=18": each gradient through gcomp with 18 of the 23 mantissa bits rounded off (the paper's
  single level, which it cuts).
The weight gap is ||w - w'||2 / ||w||2 after some of the steps. The one-step gap is the same after
one step from equal weights, moments and gradients, the maximum over all steps: it shows the effect
of compression before training amplifies it. The loss gap is |loss - loss'|, the mean over the
steps. Bytes are those of the .dw files, headers included, of all gradients of all steps. Runs are
deterministic: the same command gives the same table.
"""

import argparse
import copy
import dataclasses
import functools
import json
import statistics
import sys
from collections.abc import Callable
from operator import sub
from pathlib import Path

import deltawire
import numpy as np
import torch
from deltawire.torch import significance_of

from lab.command.program import main_of, make_parser
from lab.data.batches import Batches
from lab.data.idx import DEBIAN_FASHION_MNIST, load_image_set
from lab.data.images import DataError, ImageSet
from lab.models.lenet import make_lenet

# Decay as in Caffe's lenet_solver.prototxt; rates that train this network in 200 steps.
_DECAY = 5e-4
_SGD = functools.partial(torch.optim.SGD, weight_decay=_DECAY)
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": functools.partial(_SGD, lr=0.05),
    "Momentum": functools.partial(_SGD, lr=0.01, momentum=0.9),
    "Nesterov": functools.partial(_SGD, lr=0.01, momentum=0.9, nesterov=True),
    "AdaGrad": functools.partial(torch.optim.Adagrad, lr=0.01, weight_decay=_DECAY),
    "RMSProp": functools.partial(torch.optim.RMSprop, lr=0.001, weight_decay=_DECAY),
    "Adam": functools.partial(torch.optim.Adam, lr=0.001, weight_decay=_DECAY),
    "AdamW": functools.partial(torch.optim.AdamW, lr=0.001, weight_decay=0.01),
}
WAYS = ("last bit", "auto", "cut=18")


@dataclasses.dataclass
class Run:
    """The results of one training.

    Attributes:
        weights: all parameters, flat, by the number of steps.
        losses: of every step's batch.
        bytes_sent: of all encoded gradients; 0 without compression.
        one_step_gaps: by way, for the training without compression.
    """

    weights: dict[int, torch.Tensor]
    losses: list[float]
    bytes_sent: int
    one_step_gaps: dict[str, float]


def through(way: str, gradient: torch.Tensor, significance: torch.Tensor) -> tuple:
    """(the gradient as the receiver decodes it, encoded bytes)."""
    if way == "last bit":
        bits = gradient.contiguous().numpy().view(np.uint32) & np.uint32(0xFFFFFFFE)
        return torch.from_numpy(bits.view(np.float32)), 0
    if way == "auto":
        file = deltawire.encode(
            gradient.numpy(), "gcomp:cut=auto", significance=significance.numpy()
        )
    else:
        file = deltawire.encode(gradient.numpy(), f"gcomp:{way}")
    return torch.from_numpy(deltawire.decode(file)), len(file)


def train(images: ImageSet, optimizer_of: Callable, way: str | None, settings) -> Run:
    """One training; `way` None: without compression."""
    model = make_lenet(settings.seed)
    optimizer = optimizer_of(model.parameters())
    batches = Batches(images, seed=settings.seed, batch=settings.batch, place=(0, 1))
    run = Run({}, [], 0, dict.fromkeys(WAYS, 0.0))
    for step in range(settings.steps):
        pixels, labels = batches.at(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        run.losses.append(loss.item())
        if way is None:
            compressed = {other: one_step(optimizer, other) for other in WAYS}
            optimizer.step()
            for other, weights in compressed.items():
                gap = relative_gap(weights, weights_of(optimizer))
                run.one_step_gaps[other] = max(run.one_step_gaps[other], gap)
        else:
            run.bytes_sent += compress_gradients(optimizer, way)
            optimizer.step()
        if step + 1 in marks(settings):
            run.weights[step + 1] = weights_of(optimizer)
    return run


def marks(settings) -> list[int]:
    """After how many steps weights are compared: few, some, all."""
    return sorted({count for count in (10, 50) if count < settings.steps} | {settings.steps})


def compress_gradients(optimizer: torch.optim.Optimizer, way: str) -> int:
    """Replaces each gradient by the one that the receiver decodes. Returns the encoded bytes."""
    bytes_sent = 0
    for parameter in optimizer.param_groups[0]["params"]:
        seen = significance_of(optimizer, parameter)
        parameter.grad, encoded = through(way, parameter.grad, seen)
        bytes_sent += encoded
    return bytes_sent


def one_step(optimizer: torch.optim.Optimizer, way: str) -> torch.Tensor:
    """The weights after one step with compressed gradients; the optimizer does not change."""
    # A copied optimizer has copied parameters, but not their gradients.
    copied = copy.deepcopy(optimizer)
    pairs = zip(copied.param_groups[0]["params"], optimizer.param_groups[0]["params"], strict=True)
    for parameter, original in pairs:
        parameter.grad = original.grad.clone()
    compress_gradients(copied, way)
    copied.step()
    return weights_of(copied)


def weights_of(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """A copy of all parameters, flat, in float64."""
    return torch.cat([p.detach().flatten().double() for p in optimizer.param_groups[0]["params"]])


def relative_gap(weights: torch.Tensor, exact: torch.Tensor) -> float:
    """||w - w'||2 / ||w||2."""
    return ((weights - exact).norm() / exact.norm()).item()


def compare(images: ImageSet, name: str, settings) -> list[dict]:
    """The rows of one optimizer."""
    exact = train(images, OPTIMIZERS[name], None, settings)
    uncompressed = 4 * exact.weights[settings.steps].numel() * settings.steps
    rows = []
    for way in WAYS:
        run = train(images, OPTIMIZERS[name], way, settings)
        rows.append(
            {
                "optimizer": name,
                "gradients": way,
                "one_step_gap": exact.one_step_gaps[way],
                "weight_gaps": {
                    str(count): relative_gap(run.weights[count], exact.weights[count])
                    for count in marks(settings)
                },
                "loss_gap": statistics.fmean(map(abs, map(sub, run.losses, exact.losses))),
                "last_loss": run.losses[-1],
                "last_loss_uncompressed": exact.losses[-1],
                "bytes_sent": run.bytes_sent or uncompressed,
                "times_smaller": uncompressed / (run.bytes_sent or uncompressed),
            }
        )
    return rows


def table(rows: list[dict]) -> str:
    """Markdown."""
    counts = list(rows[0]["weight_gaps"])
    titles = ["optimizer", "gradients", "one-step gap", *(f"gap after {c}" for c in counts)]
    titles += ["mean loss gap", "MB", "times smaller"]
    lines = [titles, ["---"] * len(titles)]
    for row in rows:
        gaps = [row["one_step_gap"], *row["weight_gaps"].values(), row["loss_gap"]]
        sizes = [f"{row['bytes_sent'] / 1e6:.1f}", f"{row['times_smaller']:.2f}"]
        lines.append([row["optimizer"], row["gradients"], *(f"{gap:.1e}" for gap in gaps), *sizes])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.gcomp.significance_claim", __doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS), metavar="NAME"
    )
    parser.add_argument("--data", type=Path, default=DEBIAN_FASHION_MNIST, help="four idx files")
    parser.add_argument("--json", type=Path, default=Path("out/significance-claim.json"))
    settings = parser.parse_args(arguments)
    if settings.steps < 1 or settings.batch < 1:
        parser.error("--steps and --batch must be at least 1")
    return settings


def run(settings: argparse.Namespace) -> None:
    """Prints the table, writes the JSON."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    images = load_image_set(settings.data)
    rows = []
    for name in settings.optimizers:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += compare(images, name, settings)
    print(table(rows))
    settings.json.parent.mkdir(parents=True, exist_ok=True)
    chosen = {"steps": settings.steps, "batch": settings.batch, "seed": settings.seed}
    settings.json.write_text(json.dumps({**chosen, "rows": rows}, indent=2) + "\n")


main = main_of("lab.papers.gcomp.significance_claim", parse, run, DataError)


if __name__ == "__main__":
    sys.exit(main())
