"""GComp's volume, and what it changes in a training, with all workers in one process."""

import math

import deltawire
import numpy as np
import torch
from deltawire.torch import significance_of

from lab.papers.declaration import Metrics, Settings
from lab.papers.workloads import make_workload

CUT = "truncate:bits=14"  # 18 bits of the mantissa are cut
SKIPPED = 8  # iterations from exchange to exchange
_POINTS = 12  # of a curve


def _optimizer(network: torch.nn.Module, name: str, rates: Settings) -> torch.optim.Optimizer:
    if name == "SGD":
        return torch.optim.SGD(network.parameters(), lr=rates["SGD"])
    return torch.optim.AdamW(network.parameters(), lr=rates["AdamW"], weight_decay=0.01)


class _Trial:
    """One training; `way` is "plain", "gcomp", "cut" or "skip"."""

    def __init__(self, way: str, scale: Settings, cell: Settings, seed: int) -> None:
        self._way, self._scale = way, scale
        self._workload = make_workload(
            cell["workload"],
            workers=scale["workers"],
            batch=scale["batch"],
            seed=seed,
            test=1,
        )
        self._network = self._workload.network
        self._optimizer = _optimizer(self._network, cell["optimizer"], cell["rates"])
        self._rate = cell["rates"][cell["optimizer"]]
        self._chance = [np.random.default_rng([seed, rank]) for rank in range(scale["workers"])]
        self._kept = [torch.zeros_like(p) for p in self._network.parameters()]
        self.losses: list[float] = []
        self.shares: list[float] = []  # of float32's bytes, by step
        self.paper_shares: list[float] = []  # with the paper's four levels, at some steps

    def run(self) -> "_Trial":
        steps = self._scale["steps"]
        for step in range(steps):
            falling = 0.505 + 0.495 * math.cos(math.pi * step / steps)
            self._optimizer.param_groups[0]["lr"] = self._rate * falling
            self._step(step, marked=step % max(1, steps // _POINTS) == 0)
        return self

    def _step(self, step: int, marked: bool) -> None:
        workers, loss = self._scale["workers"], 0.0
        parameters = list(self._network.parameters())
        sums = [torch.zeros_like(p) for p in parameters]
        seen: list[torch.Tensor] = []
        if self._way == "gcomp":
            seen = [significance_of(self._optimizer, p) for p in parameters]
        count = [0, 0, 0]  # bytes, values, bytes with four levels
        for rank in range(workers):
            self._network.zero_grad()
            inputs, targets = self._workload.draw(rank, self._chance[rank])
            error = self._workload.loss(self._network(inputs), targets)
            error.backward()
            loss += error.item() / workers
            for i, parameter in enumerate(parameters):
                assert parameter.grad is not None
                gradient = parameter.grad
                if self._way == "gcomp":
                    gradient = self._through(gradient, seen[i], count, marked and rank == 0)
                elif self._way == "cut":
                    file = deltawire.encode(gradient.numpy(), CUT)
                    gradient = torch.from_numpy(deltawire.decode(file))
                sums[i] += gradient / workers
        self.losses.append(loss)
        if self._way == "gcomp":
            self.shares.append(count[0] / count[1] / 4)
            if marked:
                self.paper_shares.append(workers * count[2] / count[1] / 4)
        self._apply(parameters, sums, step)

    @staticmethod
    def _through(
        gradient: torch.Tensor, seen: torch.Tensor, count: list[int], marked: bool
    ) -> torch.Tensor:
        values, significance = gradient.contiguous().numpy(), seen.numpy()
        file = deltawire.encode(values, "gcomp", significance=significance)
        count[0] += len(file)
        count[1] += values.size
        if marked:
            four = deltawire.encode(values, "gcomp:levels=4", significance=significance)
            count[2] += len(four)
        return torch.from_numpy(deltawire.decode(file))

    def _apply(self, parameters: list, sums: list[torch.Tensor], step: int) -> None:
        """A step of the optimizer; with "skip" every eighth, with the mean of what was kept."""
        if self._way == "skip":
            for kept, total in zip(self._kept, sums, strict=True):
                kept += total / SKIPPED
            if (step + 1) % SKIPPED:
                return
            sums = [kept.clone() for kept in self._kept]
            for kept in self._kept:
                kept.zero_()
        for parameter, total in zip(parameters, sums, strict=True):
            parameter.grad = total
        self._optimizer.step()


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """Shares of float32's bytes, and variances of the loss's deviation from a plain training."""
    torch.set_num_threads(1)
    trials = {
        way: _Trial(way, scale, cell, seed).run() for way in ("plain", "gcomp", "cut", "skip")
    }
    plain = np.array(trials["plain"].losses)
    variances = {
        way: float(np.square(np.array(trials[way].losses) - plain).mean())
        for way in ("gcomp", "cut", "skip")
    }
    found = trials["gcomp"]
    width = max(1, scale["steps"] // _POINTS)
    pieces = [found.shares[i : i + width] for i in range(0, len(found.shares), width)]
    curve = [
        [min((i + 1) * width, scale["steps"]), float(np.mean(p))] for i, p in enumerate(pieces)
    ]
    return {
        "share": 100 * float(np.mean(found.shares)),
        "last_share": 100 * curve[-1][1],
        "paper_share": 100 * float(np.mean(found.paper_shares)),
        "share_curve": [[step, 100 * share] for step, share in curve],
        **{f"{way}_variance": variance for way, variance in variances.items()},
        "less_than_cut": 100 * (1 - variances["gcomp"] / max(variances["cut"], 1e-30)),
        "less_than_skip": 100 * (1 - variances["gcomp"] / max(variances["skip"], 1e-30)),
        "first_loss": plain[0],
        "last_loss": float(plain[-width:].mean()),
    }
