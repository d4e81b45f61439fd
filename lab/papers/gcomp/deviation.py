"""GComp's volume, and what it changes in a training, with all workers in one process."""

import math

import deltawire
import numpy as np
import torch
from deltawire.torch import significance_of

from lab.papers.declaration import Metrics, Settings
from lab.papers.workloads import make_workload

CUTS = {
    "cut": "truncate:bits=14",  # 18 bits of the mantissa are cut
    "last bit": "truncate:bits=31",
}
SKIPPED = 8  # iterations from exchange to exchange
_POINTS = 12  # of a curve


def _optimizer(network: torch.nn.Module, name: str, rates: Settings) -> torch.optim.Optimizer:
    if name == "SGD":
        return torch.optim.SGD(network.parameters(), lr=rates["SGD"])
    return torch.optim.AdamW(network.parameters(), lr=rates["AdamW"], weight_decay=0.01)


class _Trial:
    """One training; `way` is "plain", "gcomp", one of CUTS, or "skip"."""

    def __init__(self, way: str, scale: Settings, cell: Settings, seed: int) -> None:
        self._way, self._scale = way, scale
        self._workload = make_workload(
            cell["workload"], workers=scale["workers"], batch=scale["batch"], seed=seed, test=500
        )
        self._network = self._workload.network
        self._optimizer = _optimizer(self._network, cell["optimizer"], cell["rates"])
        self._rate = cell["rates"][cell["optimizer"]]
        self._chance = [np.random.default_rng([seed, rank]) for rank in range(scale["workers"])]
        self._kept = [torch.zeros_like(p) for p in self._network.parameters()]
        self.losses: list[float] = []
        self.shares: list[float] = []  # of float32's bytes, by step
        self.dense_shares: list[float] = []  # the same without an embedding
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
        count, embedded = [0, 0, 0], [0, 0, 0]  # bytes, values, bytes with four levels
        for rank in range(workers):
            self._network.zero_grad()
            inputs, targets = self._workload.draw(rank, self._chance[rank])
            error = self._workload.loss(self._network(inputs), targets)
            error.backward()
            loss += error.item() / workers
            for i, (name, parameter) in enumerate(self._network.named_parameters()):
                assert parameter.grad is not None
                gradient = parameter.grad
                if self._way == "gcomp":
                    of = embedded if name.startswith("embedding") else count
                    gradient = self._through(gradient, seen[i], of, marked and rank == 0)
                elif cut := CUTS.get(self._way):
                    file = deltawire.encode(gradient.numpy(), cut)
                    gradient = torch.from_numpy(deltawire.decode(file))
                sums[i] += gradient / workers
        self.losses.append(loss)
        if self._way == "gcomp":
            self.dense_shares.append(count[0] / count[1] / 4)
            count = list(map(sum, zip(count, embedded, strict=True)))
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

    def quality(self) -> float:
        """On held-out examples."""
        return self._workload.quality(self._network)

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
    scale = {**scale, **cell["changes"]}
    trials = {way: _Trial(way, scale, cell, seed).run() for way in ("plain", *cell["ways"])}
    plain = np.array(trials["plain"].losses)
    found: Metrics = {
        f"{way}_variance": float(np.square(np.array(trials[way].losses) - plain).mean())
        for way in cell["ways"]
    }
    width = max(1, scale["steps"] // _POINTS)
    if "gcomp" in trials:
        found |= _shares(trials["gcomp"], width)
        for way in ("cut", "skip"):
            theirs = max(found[f"{way}_variance"], 1e-30)
            found[f"less_than_{way}"] = 100 * (1 - found["gcomp_variance"] / theirs)
    found |= {"first_loss": plain[0], "last_loss": float(plain[-width:].mean())}
    return {**found, "quality": trials["plain"].quality()}


def _shares(trial: _Trial, width: int) -> Metrics:
    """The means of all steps and of the last `width`, in %, and a curve."""
    pieces = [trial.shares[i : i + width] for i in range(0, len(trial.shares), width)]
    curve = [
        [min((i + 1) * width, len(trial.shares)), 100 * float(np.mean(piece))]
        for i, piece in enumerate(pieces)
    ]
    return {
        "share": 100 * float(np.mean(trial.shares)),
        "dense_share": 100 * float(np.mean(trial.dense_shares)),
        "last_share": curve[-1][1],
        "paper_share": 100 * float(np.mean(trial.paper_shares)),
        "share_curve": curve,
    }
