"""Memory of a device that the core knows by its address, and waiting for the device."""

import bisect
import contextlib
import threading
import time

import numpy as np
import torch

from deltawire.errors import make_error

_POLL_SECONDS = 5e-5


def until(event: torch.cuda.Event | None, timeout: float, rank: int | None, what: str) -> None:
    """Waits for the event. Raises DeltawireError ("Timeout"), which says what is late on `rank`."""
    deadline = time.monotonic() + timeout
    while event is not None and not event.query():
        if time.monotonic() > deadline:
            text = f"{what} after {timeout:g} s: the GPU is busy with something else, or hangs"
            raise make_error("Timeout", text, rank)
        time.sleep(_POLL_SECONDS)


class DeviceMemory:
    """Memory between `add` or `allocate` and `release`, and copies from and to it.

    Thread rule: as `DeviceParts`.

    Attributes:
        device: where the memory is.
        stream: where work on it goes; None on the CPU.
    """

    def __init__(self, device: torch.device, timeout: float, rank: int | None) -> None:
        self.device = device
        # Before what backward has launched: others wait for what is coded.
        self.stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
        self._timeout, self._rank = timeout, rank
        self._lock = threading.Lock()
        self._bases: list[int] = []  # sorted; guarded by the lock, like the next
        self._regions: dict[int, torch.Tensor] = {}

    def allocate(self, count: int) -> int:
        """The address of float32 zeros."""
        with self.own_stream():
            return self.add(torch.zeros(max(count, 1), dtype=torch.float32, device=self.device))

    def release(self, address: int) -> None:
        """Gives memory back, or forgets it."""
        with self._lock:
            if self._regions.pop(address, None) is not None:
                self._bases.remove(address)

    def fill(self, address: int, count: int, value: float) -> None:
        """Sets float32 values."""
        with self.own_stream():
            self.at(address, count).fill_(value)

    def multiply(self, address: int, count: int, factor: float) -> None:
        """Multiplies float32 values."""
        with self.own_stream():
            self.at(address, count).mul_(factor)

    def upload(self, values: np.ndarray, address: int) -> None:
        """Copies from the host."""
        with self.own_stream():
            self.at(address, len(values)).copy_(self.to_device(torch.from_numpy(values)))

    def download(self, address: int, values: np.ndarray) -> None:
        """Copies to the host."""
        with self.own_stream():
            on_host = self.to_host(self.at(address, len(values)), "a copy of residuals")
            torch.from_numpy(values).copy_(on_host)

    def own_stream(self) -> contextlib.AbstractContextManager:
        """Where its work goes."""
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def add(self, memory: torch.Tensor) -> int:
        """Makes memory known; its address."""
        address = memory.data_ptr()
        with self._lock:
            if address not in self._regions:
                bisect.insort(self._bases, address)
            self._regions[address] = memory.view(-1).view(torch.uint8)
        return address

    def at(self, address: int, count: int, dtype: str = "float32") -> torch.Tensor:
        """The tensor that is there."""
        with self._lock:
            base = self._bases[bisect.bisect_right(self._bases, address) - 1]
            region = self._regions[base]
        first = address - base
        kind = getattr(torch, dtype)
        return region[first : first + count * kind.itemsize].view(kind)

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the device, which is not waited for; on the CPU the tensor itself."""
        if self.stream is None:
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def to_host(
        self, tensor: torch.Tensor, what: str = "what the GPU encodes or decodes"
    ) -> torch.Tensor:
        """A copy on the host, which is waited for; on the CPU the tensor itself. Raises
        DeltawireError ("Timeout"), which says that `what` is late."""
        if self.stream is None:
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()
        event.record(self.stream)
        until(event, self._timeout, self._rank, f"{what} was not there")
        return host
