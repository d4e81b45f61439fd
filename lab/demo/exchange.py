"""The ways in which a row exchanges gradients or weights, behind one interface: DDP's own
all-reduce, deltawire's hook on gradients, and weight updates after local steps.

Each has `model` (what to call with a batch), `take_step` (instead of optimizer.step),
`finish` (after the last step), `last_record` (of the latest exchange), `bytes_sent`, `error_text`
and `close`.
"""

from collections.abc import Callable

import deltawire.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab.demo.methods import Method
from lab.demo.modelled_link import ModelledLink
from lab.demo.settings import Settings
from lab.ranks.links import BURST_BYTES, ring_bytes


def _nothing() -> None:
    """What is left to exchange after the last step, where every step has exchanged its own."""


class _DeltawireExchange:
    """Through the hook or LocalSteps. Bytes are the transport's, with headers and votes.

    Args:
        model, take_step, finish: see above.
        session: the hook or LocalSteps.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        session: object,
        take_step: Callable[[], object],
        finish: Callable[[], object] = _nothing,
    ) -> None:
        self.model, self.take_step, self.finish = model, take_step, finish
        self._session = session
        self._bytes_at_start = session.metrics()["traffic_bytes_sent"]

    def last_record(self) -> dict:
        """encode_ms, exchange_ms, decode_ms and digest of the latest exchange."""
        return self._session.step_records[-1]

    def bytes_sent(self) -> float:
        """Sent by this rank since the start."""
        return self._session.metrics()["traffic_bytes_sent"] - self._bytes_at_start

    def error_text(self, cause: Exception) -> str:
        """What the training loop's exception means."""
        return str(self._session.last_error or cause)

    def close(self) -> None:
        """Joins the communication thread."""
        self._session.close()


class _PlainExchange:
    """DDP's own all-reduce. Its bytes are calculated: the ring's, without any header."""

    finish = staticmethod(_nothing)
    error_text = staticmethod(str)

    def __init__(
        self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, settings: Settings
    ) -> None:
        self.model, self._optimizer = model, optimizer
        world_size = dist.get_world_size()
        rate = None if settings.namespaces else settings.bytes_per_second
        self._link = ModelledLink(world_size, rate)
        self._steps = 0
        elements = sum(parameter.numel() for parameter in model.parameters())
        self._bytes_a_step = ring_bytes(4 * elements, world_size)
        model.register_comm_hook(None, self._link.native_hook)

    def take_step(self) -> None:
        """Takes the optimizer's step and counts it."""
        self._optimizer.step()
        self._steps += 1

    def last_record(self) -> dict:
        """The last step's exchange_ms; nothing is encoded."""
        return {
            "encode_ms": 0.0,
            "exchange_ms": self._link.take_exchange_ms(),
            "decode_ms": 0.0,
            "digest": 0,
        }

    def bytes_sent(self) -> float:
        """Sent by this rank since the start, calculated."""
        return self._steps * self._bytes_a_step

    def close(self) -> None:
        """Joins the link's thread."""
        self._link.close()


def make_exchange(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    method: Method,
    settings: Settings,
    interface: str,
) -> _DeltawireExchange | _PlainExchange:
    """Sets up the method's exchange; every rank calls it."""
    link = None  # the transport shapes it, unless it is real or not limited
    if settings.bytes_per_second is not None and not settings.namespaces:
        link = deltawire.LinkShape(settings.bytes_per_second, BURST_BYTES)
    connection = {"timeout": settings.timeout, "interface": interface, "link": link}
    if method.local_steps:
        trainer = deltawire.torch.LocalSteps(
            network, optimizer, steps=method.local_steps, reducer=method.spec, **connection
        )
        return _DeltawireExchange(network, trainer, trainer.step, trainer.exchange)
    model = DistributedDataParallel(network)
    if method.spec is None:
        return _PlainExchange(model, optimizer, settings)
    by_rule = settings.by_rule(method)
    takes_optimizer = by_rule or deltawire.uses_significance(method.spec)
    hook = deltawire.torch.register(
        model,
        method.spec,
        optimizer=optimizer if takes_optimizer else None,
        momentum="rate" if by_rule else "optimizer",
        **connection,
    )
    return _DeltawireExchange(model, hook, optimizer.step)
