"""A training step as a CUDA graph: one launch instead of some hundred."""

from collections.abc import Callable

import torch

_WARM_UP = 3  # PyTorch asks for some passes before a capture


class CapturedStep:
    """Forward and backward pass and the optimizer's step, for batches of one shape.

    Steps of several networks must follow each other on one stream: their graphs share cuBLAS's
    workspace, and graphs that ran at once on several streams hung the GPU.

    Args:
        network: on a GPU; its weights may be replaced in place between two steps.
        optimizer: with `capturable=True`; its state must stay where it is.
        loss: of network and batch.
        like: a batch.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor],
        like: torch.Tensor,
    ) -> None:
        self._batch = like.clone()
        (group,) = optimizer.param_groups
        self._rate = group["lr"] = torch.zeros((), device=like.device)
        aside, current = torch.cuda.Stream(like.device), torch.cuda.current_stream(like.device)
        aside.wait_stream(current)
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                network.zero_grad()
                loss(network, self._batch).backward()
            if not optimizer.state:
                _make_state(optimizer)
        current.wait_stream(aside)
        network.zero_grad()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            loss(network, self._batch).backward()
            optimizer.step()

    def __call__(self, batch: torch.Tensor, rate: float) -> None:
        """One step with this learning rate."""
        self._batch.copy_(batch)
        self._rate.fill_(rate)
        self._graph.replay()


def _make_state(optimizer: torch.optim.Optimizer) -> None:
    """Zeros for all moments: a step of gradients and a rate of zero changes no weight."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.zero_()
    optimizer.step()
    for state in optimizer.state.values():
        state["step"].zero_()
