#!/usr/bin/env python3
"""Bytes of a store of versions (deltawire.weight_store), for a model that AdamW trains.

    .venv/bin/python bench/weight_versions.py [--weights 2000000] [--versions 65]

Gradients are noise, with AdamW's moments over it (0.9, 0.999); float32 weights are kept next to the
bfloat16 ones that are published. The learning rates are chosen for the shares of bfloat16 weights
that change in a step. Bytes do not depend on the machine.
"""

import argparse
import tempfile

import torch
from deltawire import weight_store

RATES = (2.7e-7, 2.4e-6, 1.6e-5)
SPANS = (8, 64)


def train(weights: int, rate: float):
    """bfloat16 weights after each step, from a state in which the moments have settled."""
    draw = torch.Generator().manual_seed(1)
    master = 0.02 * torch.randn(weights, generator=draw)
    first, second = torch.zeros(weights), torch.full((weights,), 1.0)
    for step in range(-20, 1 << 30):
        gradient = torch.randn(weights, generator=draw)
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        master.addcdiv_(first, second.sqrt(), value=-rate)
        if step >= 0:
            yield master.bfloat16()


def measure(weights: int, versions: int, rate: float) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder, weight_store.Store(folder) as store:
        changed = 0
        before = None
        for number, now in zip(range(versions), train(weights, rate), strict=False):
            store.publish({"weights": now}, number)
            if before is not None:
                changed += int((now.view(torch.int16) != before.view(torch.int16)).sum())
            before = now
        files = {
            (file.base, version.version): file.bytes
            for version in store.versions()
            for file in version.files
        }
    steps = versions - 1
    share = changed / steps / weights
    one = [files[number - 1, number] for number in range(1, versions)]
    merged = [f"{files[0, span]:,} ({files[0, span] / sum(one[:span]):.0%})" for span in SPANS]
    cells = [
        f"{100 * share:.2f} %",
        f"{sum(one) / len(one):,.0f}",
        f"{8 * sum(one) / changed:.1f}",
        *merged,
        f"{files[None, 0]:,}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--weights", type=int, default=2_000_000)
    parser.add_argument("--versions", type=int, default=65)
    options = parser.parse_args()
    if options.versions <= max(SPANS):
        parser.error(f"--versions must be above {max(SPANS)}")
    print("| change in a step | a version | bits a change | 8 merged | 64 merged | snapshot |")
    print("|---|---|---|---|---|---|")
    for rate in RATES:
        print(measure(options.weights, options.versions, rate), flush=True)


if __name__ == "__main__":
    main()
