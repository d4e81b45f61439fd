"""FastSGD's section 4.4: a small network whose gradients are compressed, with all workers in one
process."""

import deltawire
import numpy as np
import torch

from lab.papers.declaration import Metrics, Settings
from lab.papers.workloads import make_workload

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
    channels = [
        deltawire.Channel(cell["codec"], rank=rank, world_size=workers, seed=seed)
        for rank in range(workers)
    ]
    chance = [np.random.default_rng([seed, rank]) for rank in range(workers)]
    losses, sent = [], 0
    for _ in range(steps):
        sums = {name: np.zeros_like(p.detach().numpy()) for name, p in network.named_parameters()}
        loss = 0.0
        for rank, channel in enumerate(channels):
            network.zero_grad()
            inputs, targets = workload.draw(rank, chance[rank])
            error = workload.loss(network(inputs), targets)
            error.backward()
            loss += error.item() / workers
            message = channel.encode({n: p.grad.numpy() for n, p in network.named_parameters()})
            channel.decode(message, sums, scale=1 / workers)
            sent += len(message)
        for name, parameter in network.named_parameters():
            parameter.grad = torch.from_numpy(sums[name])
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
        "step_bytes": sent / steps / workers,
    }
