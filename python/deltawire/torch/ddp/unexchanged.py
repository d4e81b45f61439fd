"""Notices backward passes that should have been exchanged, and were not."""

import logging
import weakref
from collections.abc import Callable

import torch
from torch.utils._pytree import tree_leaves

from deltawire.torch.core.backward_pass import after_backward
from deltawire.torch.ddp.parameters import DDPParameters

logger = logging.getLogger("deltawire")


class Unexchanged:
    """Looks, after each backward pass of an output whose forward pass was to be exchanged, whether
    a bucket came. If none did and gradients have changed, they are this rank's alone. DDP says
    nothing then.

    Thread rule: the training loop and its backward pass.

    Args:
        parameters: the model's.
        rank: for the warning.
        give_up: ends the exchange on every rank.

    Attributes:
        buckets: how many have come; the hook counts them.
    """

    def __init__(
        self, parameters: DDPParameters, rank: int, give_up: Callable[[Exception], None]
    ) -> None:
        self.buckets = 0
        self._parameters = parameters
        self._rank = rank
        self._give_up = give_up
        self._within = False  # a backward pass, of whose outputs one is enough
        self._before: tuple[int, list] = 0, []
        self._warned = False

    def watch(self, outputs: object) -> None:
        """Called after such a forward pass."""
        self._within = False  # whatever an exception has left
        begins = weakref.WeakMethod(self._begins)
        for each in tree_leaves(outputs):
            if isinstance(each, torch.Tensor) and each.grad_fn is not None:
                each.register_hook(lambda _: None if (call := begins()) is None else call())

    def _begins(self) -> None:
        if not self._within:
            self._within = True
            self._before = self.buckets, self._versions()
            after_backward(lambda: after_backward(self._look))  # behind DDP's own

    def _look(self) -> None:
        self._within = False
        buckets, versions = self._before
        if self.buckets != buckets or self._versions() == versions:
            return
        try:
            self._parameters.check_accumulators()
        except Exception as cause:
            self._give_up(cause)
            raise
        if not self._warned:
            self._warned = True
            logger.warning(
                "rank %d: a backward pass exchanged nothing, although its forward pass was to be "
                "exchanged: its gradients are this rank's alone, and replicas that step with them "
                "drift apart; a second backward pass of one forward pass is never exchanged "
                "(docs/guides/troubleshooting.md)",
                self._rank,
            )

    def _versions(self) -> list:
        """Changes with every gradient. (torch.autograd.grad changes none.)"""
        gradients = [each.grad for each in self._parameters.all]
        return [None if each is None else (id(each), each._version) for each in gradients]
