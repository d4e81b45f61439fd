"""Rounds of SBC's algorithm 1, with all clients in one process and real frames."""

import numpy as np
import torch
from deltawire import rounds
from deltawire.arguments import spec_of

from lab.papers.declaration import Metrics, Settings
from lab.papers.workloads import Workload, make_workload

_POINTS = 8  # of a curve
_BATCHES = 40  # that give batch normalization its statistics
_MOST_NORM = 5.0  # of the gradient of a text, as in the "medium" model


class Participant:
    """A client: its generator of batches, its optimizer's state, and its residual."""

    def __init__(self, rank: int, cell: Settings, workload: Workload, scale: Settings, seed: int):
        self._client = rounds.Client(cell["spec"], rank=rank, min_elements=cell["least"])
        self._rank, self._workload, self._scale = rank, workload, scale
        self._chance = np.random.default_rng([seed, rank])
        self._kept: dict | None = None

    def reply(self, download: rounds.Download, steps: int, rate: float) -> rounds.Reply:
        """Trains the network, which all clients use in turn."""
        network = self._workload.network
        named = dict(network.named_parameters())
        with torch.no_grad():
            for name, array in self._client.receive(download).items():
                named[name].copy_(torch.from_numpy(array))
        optimizer = self._optimizer(rate)
        for _ in range(steps):
            inputs, targets = self._workload.draw(self._rank, self._chance)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=self._scale.get("bf16", False)):
                loss = self._workload.loss(network(inputs), targets)
            loss.backward()
            if targets.dim() > 1:
                torch.nn.utils.clip_grad_norm_(network.parameters(), _MOST_NORM)
            optimizer.step()
        momentum = {
            name: state[key].numpy()
            for name, parameter in named.items()
            for key in ("exp_avg", "momentum_buffer")
            if (state := optimizer.state[parameter]).get(key) is not None
        }
        sparse = all(rule.info.sparse for rule in spec_of(self._client.spec).rules)
        trained = {name: parameter.detach().numpy() for name, parameter in named.items()}
        masked = [momentum] if sparse and momentum else []
        reply = self._client.reply(trained, self._workload.samples, momentum=masked)
        self._kept = optimizer.state_dict()
        return reply

    def _optimizer(self, rate: float) -> torch.optim.Optimizer:
        parameters = self._workload.network.parameters()
        optimizer: torch.optim.Optimizer
        if self._scale["optimizer"] == "adam":
            optimizer = torch.optim.Adam(parameters, lr=rate, fused=True)
        else:
            optimizer = torch.optim.SGD(parameters, lr=rate, momentum=self._scale["momentum"])
        if self._kept is not None:
            optimizer.load_state_dict(self._kept)
            optimizer.param_groups[0]["lr"] = rate
        return optimizer


def measure(scale: Settings, cell: Settings, seed: int) -> Metrics:
    """Quality, and how many times fewer bytes a client sends than with float32 in every step."""
    torch.set_num_threads(1)
    scale = {**scale, **cell["changes"]}
    iterations = scale["iterations"]
    delay = min(cell["delay"], scale["longest"])
    clients_count = max(2, round(cell["clients"] * scale["clients"]))
    workload = make_workload(
        scale["workload"],
        workers=clients_count,
        batch=scale["batch"] if cell["batch"] is None else cell["batch"],
        seed=seed,
        test=scale["test"],
        split=cell["split"],
    )
    network = workload.network
    start = {name: p.detach().numpy().copy() for name, p in network.named_parameters()}
    # All clients are honest and have equal numbers of samples: none is refused, as in the paper.
    server = rounds.Server(
        start, up=cell["spec"], down=None, max_norm=None, min_elements=cell["least"]
    )
    clients = [Participant(rank, cell, workload, scale, seed) for rank in range(clients_count)]
    curve, sent, done = [], 0, 0
    while done < iterations:
        steps = min(delay, iterations - done)
        rate = scale["lr"] * scale["fall"] ** sum(done >= at * iterations for at in scale["at"])
        server.begin()
        for rank, client in enumerate(clients):
            reply = client.reply(server.download(rank), steps, rate)
            server.take(rank, reply)
            sent += len(reply.frame)
        before, done = done, done + steps
        model = server.finish()
        every = max(1, iterations // _POINTS)
        if done == iterations or done // every > before // every:
            with torch.no_grad():
                for name, parameter in network.named_parameters():
                    parameter.copy_(torch.from_numpy(model[name]))
            curve.append([done, workload.quality(network)])
    values = sum(array.size for array in start.values())
    smaller = 4 * values * iterations / (sent / clients_count)
    found = {"quality": curve[-1][1], "smaller": smaller, "curve": curve}
    if any(isinstance(each, torch.nn.BatchNorm2d) for each in network.modules()):
        _renew_statistics(workload, clients_count, seed)
        found["renewed_quality"] = workload.quality(network)
    return found


def _renew_statistics(workload: Workload, clients: int, seed: int) -> None:
    """Batch normalization's means and variances become those of the mean weights, from batches of
    all clients: what the clients left there is of their own weights, before the mean."""
    for module in workload.network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # a mean of all batches
    chance = np.random.default_rng([seed, clients])
    with torch.no_grad():
        for batch in range(_BATCHES):
            workload.network(workload.draw(batch % clients, chance)[0])
