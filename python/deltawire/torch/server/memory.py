"""The CPU's memory of served parameters: their own, or pinned copies of those on a GPU."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from deltawire.errors import wrong_dtype
from deltawire.torch.core.device.memory import until
from deltawire.torch.core.device.parts import refuse_capture
from deltawire.torch.core.device.staging import is_forced


class ServedMemory:
    """The memory that the core reads and writes in place of parameters, in their order.

    Parameters on the CPU are that memory themselves. A parameter on a CUDA device has a pinned copy
    as large as it, and all of them share one pinned buffer for gradients, as large as the largest.
    Values go to a parameter on the device's current stream, and its gradient comes from there.

    Thread rule: one thread at a time, that of the training loop or of backward.

    Args:
        names: of the parameters, for messages.
        parameters: float32, dense in memory.
        rank: this one, whom errors name.
    """

    def __init__(
        self, names: Sequence[str], parameters: Sequence[torch.nn.Parameter], rank: int
    ) -> None:
        self._names, self._parameters, self._rank = names, parameters, rank
        self._flat = [_flat(each) for each in parameters]
        staged = [is_forced() or each.device.type != "cpu" for each in parameters]
        self._hosts = {at: _pinned(self._flat[at]) for at, is_ in enumerate(staged) if is_}
        self._sent: dict[int, torch.cuda.Event] = {}  # of copies to the device, which read a host
        largest = max((each.numel() for each in self._hosts.values()), default=0)
        pinned = any(host.is_pinned() for host in self._hosts.values())
        self._gradient = torch.empty(largest, dtype=torch.float32, device="cpu", pin_memory=pinned)
        for at, host in self._hosts.items():
            host.copy_(self._flat[at])

    def place(self, index: int) -> tuple[int, int]:
        """Address and bytes of a parameter's values, where the core finds them."""
        values = self._hosts.get(index, self._flat[index])
        return values.data_ptr(), values.nbytes

    def gradient(self, index: int, timeout: float) -> np.ndarray:
        """A parameter's gradient in the order of the parameter's memory, flat, on the CPU; zeros if
        it has none. Valid until the next call.

        Raises DTypeError for a sparse one, DeltawireError if a device doesn't get to its copy
        within so many seconds ("Timeout"), or while a CUDA graph is being captured ("State").
        """
        name, parameter = self._names[index], self._parameters[index]
        gradient = parameter.grad
        if gradient is None:
            return np.zeros(parameter.numel(), np.float32)
        if gradient.layout != torch.strided:
            raise wrong_dtype(
                f"the gradient of parameter '{name}' is sparse; ParameterServer takes dense ones: "
                "leave sparse=True out"
            )
        refuse_capture(gradient.device)
        if gradient.stride() != parameter.stride():
            gradient = torch.empty_like(parameter).copy_(gradient)
        if index not in self._hosts:
            return _flat(gradient).numpy()
        host = self._gradient[: gradient.numel()]
        host.copy_(_flat(gradient), non_blocking=True)
        self._wait(_event_on(gradient.device), timeout, f"the gradient of parameter '{name}'")
        return host.numpy()

    @contextlib.contextmanager
    def written(self, timeout: float, indices: Sequence[int] | None = None) -> Iterator[None]:
        """Within it the core may write to parameters, all of them by default. Those on a device get
        the new values at the end, in the device's current stream.

        Raises DeltawireError ("Timeout") if a device has not yet taken what was written before.
        """
        staged = [at for at in (self._hosts if indices is None else indices) if at in self._hosts]
        for at in staged:
            what = f"parameter '{self._names[at]}'"
            self._wait(self._sent.pop(at, None), timeout, f"what was sent to {what}")
        yield
        for at in staged:
            with torch.no_grad():
                self._flat[at].copy_(self._hosts[at], non_blocking=True)
            event = _event_on(self._flat[at].device)
            if event is not None:
                self._sent[at] = event

    def _wait(self, event: torch.cuda.Event | None, timeout: float, what: str) -> None:
        until(event, timeout, self._rank, f"{what} was not copied")


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A view of its memory."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def _pinned(like: torch.Tensor) -> torch.Tensor:
    pinned = like.device.type == "cuda"
    return torch.empty(like.numel(), dtype=torch.float32, device="cpu", pin_memory=pinned)


def _event_on(device: torch.device) -> torch.cuda.Event | None:
    """Of what is in the device's current stream; None on the CPU."""
    if device.type == "cpu":
        return None
    return torch.cuda.current_stream(device).record_event()
