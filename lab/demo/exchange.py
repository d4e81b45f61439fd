"""The ways in which a row exchanges gradients or weights, behind one interface: DDP's own
all-reduce, deltawire's hook on gradients, and weight updates after local steps.

Each has `model` (what to call with a batch), `take_step` (instead of optimizer.step),
`finish` (after the last step), `last_record` (of the latest exchange), `bytes_sent`, `error_text`
and `close`.
"""

import deltawire.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab.demo.methods import Method
from lab.demo.modelled_link import ModelledLink
from lab.demo.settings import Settings
from lab.ranks.links import BURST_BYTES, ring_bytes


def _shaped_link(settings: Settings):
    """How the transport shapes its link; None if the link is real or not limited."""
    if settings.bytes_per_second is None or settings.namespaces:
        return None
    return deltawire.LinkShape(settings.bytes_per_second, BURST_BYTES)


class _Exchange:
    """The base of exchanges of gradients during the backward pass."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self._optimizer = optimizer

    def take_step(self) -> None:
        """Takes the optimizer's step; the gradients have already been exchanged."""
        self._optimizer.step()

    def finish(self) -> None:
        """Nothing is left to exchange."""

    def error_text(self, cause: Exception) -> str:
        """What the training loop's exception means."""
        return str(cause)


class _DeltawireExchange(_Exchange):
    """The base of exchanges with the hook and with LocalSteps. Bytes are the transport's, with
    headers and votes."""

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, session: object
    ) -> None:
        super().__init__(model, optimizer)
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


class HookExchange(_DeltawireExchange):
    """Gradients, in every step, through deltawire.torch.register."""

    def __init__(
        self,
        model: DistributedDataParallel,
        optimizer: torch.optim.Optimizer,
        method: Method,
        settings: Settings,
        interface: str,
    ) -> None:
        by_rule = settings.by_rule(method)
        takes_optimizer = by_rule or deltawire.uses_significance(method.spec)
        session = deltawire.torch.register(
            model,
            method.spec,
            timeout=settings.timeout,
            interface=interface,
            link=_shaped_link(settings),
            optimizer=optimizer if takes_optimizer else None,
            momentum="rate" if by_rule else "optimizer",
        )
        super().__init__(model, optimizer, session)


class LocalStepsExchange(_DeltawireExchange):
    """Weight updates after a few steps of each rank's own optimizer."""

    def __init__(
        self,
        network: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        method: Method,
        settings: Settings,
        interface: str,
    ) -> None:
        trainer = deltawire.torch.LocalSteps(
            network,
            optimizer,
            steps=method.local_steps,
            reducer=method.spec,
            timeout=settings.timeout,
            interface=interface,
            link=_shaped_link(settings),
        )
        super().__init__(network, optimizer, trainer)

    def take_step(self) -> None:
        """Takes the optimizer's step, and after the last of a round exchanges."""
        self._session.step()

    def finish(self) -> None:
        """Exchanges the changes of a last, shorter round."""
        self._session.exchange()


class PlainExchange(_Exchange):
    """DDP's own all-reduce. Its bytes are calculated: the ring's, without any header."""

    def __init__(
        self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, settings: Settings
    ) -> None:
        super().__init__(model, optimizer)
        world_size = dist.get_world_size()
        rate = None if settings.namespaces else settings.bytes_per_second
        self._link = ModelledLink(world_size, rate)
        self._steps = 0
        elements = sum(parameter.numel() for parameter in model.parameters())
        self._bytes_a_step = ring_bytes(4 * elements, world_size)
        model.register_comm_hook(None, self._link.native_hook)

    def take_step(self) -> None:
        """Takes the optimizer's step and counts it."""
        super().take_step()
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
) -> HookExchange | LocalStepsExchange | PlainExchange:
    """Sets up the method's exchange; every rank calls it."""
    if method.local_steps:
        return LocalStepsExchange(network, optimizer, method, settings, interface)
    model = DistributedDataParallel(network)
    if method.spec is None:
        return PlainExchange(model, optimizer, settings)
    return HookExchange(model, optimizer, method, settings, interface)
