"""The two ways that a row exchanges gradients, behind one face: deltawire's hook and DDP's
all-reduce.
"""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab.demo.settings import Settings
from lab.links import BURST_BYTES, ring_bytes
from lab.methods import Method
from lab.modelled_link import ModelledLink


class DeltawireExchange:
    """A row through deltawire.torch. Bytes are its transport's, headers and votes included."""

    def __init__(
        self, model: DistributedDataParallel, method: Method, settings: Settings, interface: str
    ) -> None:
        import deltawire.torch  # here: plain DDP runs without the compiled extension

        link = None
        if settings.bytes_per_second is not None and not settings.namespaces:
            link = deltawire.LinkShape(settings.bytes_per_second, BURST_BYTES)
        self._hook = deltawire.torch.register(
            model, method.spec, timeout=settings.timeout, interface=interface, link=link
        )
        self._bytes_at_start = self._hook.metrics()["traffic_bytes_sent"]

    def after_step(self) -> dict:
        """The step's encode_ms, exchange_ms, decode_ms and digest."""
        return self._hook.step_records[-1]

    def bytes_sent(self) -> float:
        """By this rank since the start."""
        return self._hook.metrics()["traffic_bytes_sent"] - self._bytes_at_start

    def error_text(self, cause: Exception) -> str:
        """What the training loop's exception means."""
        return str(self._hook.last_error or cause)

    def close(self) -> None:
        """Joins the hook's thread."""
        self._hook.close()


class PlainExchange:
    """DDP's own all-reduce. Its bytes are calculated: the ring's, without any header."""

    def __init__(self, model: DistributedDataParallel, settings: Settings) -> None:
        world_size = dist.get_world_size()
        rate = None if settings.namespaces else settings.bytes_per_second
        self._link = ModelledLink(world_size, rate)
        self._steps = 0
        elements = sum(parameter.numel() for parameter in model.parameters())
        self._bytes_a_step = ring_bytes(4 * elements, world_size)
        model.register_comm_hook(None, self._link.native_hook)

    def after_step(self) -> dict:
        """The step's exchange_ms; nothing is encoded."""
        self._steps += 1
        return {
            "encode_ms": 0.0,
            "exchange_ms": self._link.take_exchange_ms(),
            "decode_ms": 0.0,
            "digest": 0,
        }

    def bytes_sent(self) -> float:
        """By this rank since the start, calculated."""
        return self._steps * self._bytes_a_step

    def error_text(self, cause: Exception) -> str:
        """What the training loop's exception means."""
        return str(cause)

    def close(self) -> None:
        """Joins the link's thread."""
        self._link.close()


def make_exchange(
    model: DistributedDataParallel, method: Method, settings: Settings, interface: str
) -> DeltawireExchange | PlainExchange:
    """Registers the method's hook on the model; every rank calls it."""
    if method.spec is None:
        return PlainExchange(model, settings)
    return DeltawireExchange(model, method, settings, interface)
