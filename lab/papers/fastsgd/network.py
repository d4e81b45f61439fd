"""FastSGD's section 4.4: a small network whose gradients are compressed, with all workers in one
process."""

import numpy as np
import torch

from lab.papers.declaration import Metrics, Settings
from lab.papers.workloads import make_workload, pushes_of

_POINTS = 12  # of the curve


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """The training loss, and the bytes of a gradient."""
    torch.set_num_threads(1)
    workers, steps = scale["workers"], scale["steps"]
    workload = make_workload(
        "mlp/mnist", workers=workers, batch=scale["batch"], seed=seed, test=scale["test"]
    )
    network = workload.network
    optimizer = torch.optim.Adam(network.parameters(), lr=scale["lr"])
    push = pushes_of(workload, cell["codec"], workers, seed)
    losses, sent = [], 0.0
    for _ in range(steps):
        means, pushed, loss = push(1)
        sent += pushed
        for name, parameter in network.named_parameters():
            parameter.grad = torch.from_numpy(means[name])
        optimizer.step()
        losses.append(loss)
    width = max(1, steps // _POINTS)
    curve = [
        [min(begin + width, steps), float(np.mean(losses[begin : begin + width]))]
        for begin in range(0, steps, width)
    ]
    quality = workload.quality(network)
    return {
        **{"loss": curve[-1][1], "accuracy": quality, "curve": curve},
        "step_bytes": sent / steps,
    }
