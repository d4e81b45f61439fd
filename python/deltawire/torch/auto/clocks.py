"""When something happens in a step: on the CPU, or on the device that computes it."""

import time

import torch

from deltawire.torch.core.device.memory import until
from deltawire.torch.core.device.parts import is_captured

_COPIED = 1 << 23  # bytes
_TRIES = 3


class HostClock:
    """Moments are seconds of the CPU's clock."""

    def now(self) -> float:
        """The current moment."""
        return time.perf_counter()

    def is_over(self, moment: float) -> bool:
        """Whether the device has got there."""
        return True

    def wait(self, moment: float) -> None:
        """Waits until then."""

    def seconds(self, begin: float, end: float) -> float:
        """Between two moments that are over."""
        return end - begin


class DeviceClock:
    """Moments are events of a CUDA device, each in the stream that is current where it is asked
    for: that of forward and backward, or one that has waited for a bucket's means. Launched work
    takes no time until the device does it.

    Args:
        device: whose clock it is.
        timeout: seconds that a wait may take.
        rank: this one, whom the error of such a wait names.
    """

    def __init__(self, device: torch.device, timeout: float, rank: int) -> None:
        self._device = device
        self._timeout, self._rank = timeout, rank

    def now(self) -> torch.cuda.Event | None:
        """The moment at which the device has done all work in its current stream; None while a CUDA
        graph is captured, which has none."""
        if is_captured(self._device):
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def is_over(self, moment: torch.cuda.Event) -> bool:
        """Whether the device has got there."""
        return moment.query()

    def wait(self, moment: torch.cuda.Event) -> None:
        """Waits until then. Raises DeltawireError ("Timeout")."""
        until(moment, self._timeout, self._rank, f"{self._device} was not done with a step")

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Between two moments that are over."""
        return 1e-3 * begin.elapsed_time(end)


Clock = HostClock | DeviceClock


def clock_of(device: torch.device, timeout: float, rank: int) -> Clock:
    """The clock of a model on this device; arguments as for `DeviceClock`."""
    return HostClock() if device.type == "cpu" else DeviceClock(device, timeout, rank)


def copy_seconds(device: torch.device, clock: Clock) -> tuple[float, float]:
    """Seconds a byte that copies take (from the device to pinned memory of the CPU, back): the
    fastest of several, on the device's clock, after what is in its current stream."""
    there = torch.zeros(_COPIED, dtype=torch.uint8, device=device)
    pinned = device.type == "cuda"
    here = torch.empty(_COPIED, dtype=torch.uint8, device="cpu", pin_memory=pinned)
    taken = []
    for to, source in [(here, there), (there, here)]:
        times = []
        for _ in range(_TRIES):
            began = clock.now()
            to.copy_(source, non_blocking=True)
            ended = clock.now()
            clock.wait(ended)
            times.append(clock.seconds(began, ended))
        taken.append(min(times) / _COPIED)
    return taken[0], taken[1]
