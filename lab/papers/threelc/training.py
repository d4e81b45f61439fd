"""A training through a parameter server, played by one process: every push and every pull is
encoded, with the residuals of 3LC's section 3."""

import math

import deltawire
import numpy as np
import torch

from lab.papers.declaration import Metrics, Settings
from lab.papers.workloads import Workload, make_workload, pushes_of

_POINTS = 12  # of a curve


class Server:
    """The model, its optimizer, and the copy that all workers have.

    It encodes what the copy still lacks; so the pull's residual is the difference itself
    (docs/design/parameter-server.md).
    """

    def __init__(self, workload: Workload, scale: Settings, cell: Settings, seed: int) -> None:
        self._network, self._feedback = workload.network, cell["feedback"]
        named = dict(workload.network.named_parameters())
        self._master = {name: p.detach().clone() for name, p in named.items()}
        self._optimizer = torch.optim.SGD(
            self._master.values(), lr=scale["lr"], momentum=0.9, weight_decay=1e-4
        )
        self._pull = deltawire.Channel(cell["spec"], error_feedback=False, seed=seed + 1)
        self._view = {name: p.detach().numpy() for name, p in named.items()}

    def step(self, means: dict[str, np.ndarray], rate: float) -> int:
        """One step with the mean gradients, in place of the workers' copies; returns the bytes of a
        pull."""
        for name, parameter in self._master.items():
            parameter.grad = torch.from_numpy(means[name])
        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.step()
        change = {name: p.numpy() - self._view[name] for name, p in self._master.items()}
        message = self._pull.encode(change)
        self._pull.decode(message, self._view)
        if not self._feedback:
            for name, parameter in self._master.items():
                parameter.copy_(torch.from_numpy(self._view[name]))
        return len(message)


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """Accuracy, and bits per value of pushes and pulls."""
    torch.set_num_threads(1)
    workers, every = scale["workers"], cell["every"]
    share, highest = cell["share"] or scale["longer"], scale["lr"]
    if cell["share"] is None:
        highest = scale["longer_lr"]
    steps = max(every, round(scale["steps"] * share))
    workload = make_workload(
        scale["network"], workers=workers, batch=scale["batch"], seed=seed, test=scale["test"]
    )
    network = workload.network
    with torch.no_grad():
        server = Server(workload, scale, cell, seed)
    push = pushes_of(workload, cell["spec"], workers, seed)
    values = sum(p.numel() for p in network.parameters())
    found = _Curves(steps, values)
    for step in range(0, steps - every + 1, every):
        means, pushed, loss = push(every)
        with torch.no_grad():
            # A cosine without restarts, to a hundredth of the rate.
            falling = 0.505 + 0.495 * math.cos(math.pi * step / steps)
            pulled = server.step(means, highest * falling)
        found.add(step + every, pushed / every, pulled / every, loss)
    return found.metrics(workload.quality(network), with_curves=cell["share"] == 1)


class _Curves:
    """Bits per value and losses, as means of about a twelfth of the training each."""

    def __init__(self, steps: int, values: int) -> None:
        self._width, self._values = max(1, steps // _POINTS), values
        self._rows: list[tuple[float, float, float, float]] = []

    def add(self, step: int, pushed: float, pulled: float, loss: float) -> None:
        """Counts a step: a push's and a pull's bytes."""
        bits = 8 / self._values
        self._rows.append((step, bits * pushed, bits * pulled, loss))

    def metrics(self, accuracy: float, with_curves: bool) -> Metrics:
        """All that is kept of a training; no figure has the curves of shorter ones."""
        rows = np.array(self._rows)
        width = max(1, self._width * len(rows) // max(1, int(rows[-1, 0])))
        pieces = [rows[i : i + width] for i in range(0, len(rows), width)]
        push, pull, loss = (
            [[float(piece[-1, 0]), float(piece[:, column].mean())] for piece in pieces]
            for column in (1, 2, 3)
        )
        push_bits, pull_bits = float(rows[:, 1].mean()), float(rows[:, 2].mean())
        curves = {"push_curve": push, "pull_curve": pull, "loss_curve": loss}
        return {
            **{"accuracy": accuracy, "push_bits": push_bits, "pull_bits": pull_bits},
            **{"bits": (push_bits + pull_bits) / 2, "ratio": 64 / (push_bits + pull_bits)},
            **(curves if with_curves else {}),
        }
