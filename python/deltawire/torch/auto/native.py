"""DDP's own all-reduce, and a sample of the gradients that it carries."""

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from deltawire.torch.auto import codec_figures
from deltawire.torch.ddp.parameters import Exchanged


def all_reduce(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future:
    """torch's own hook: the mean in place. A Future in any case, with the error where there is one:
    DDP survives no exception of a hook."""
    try:
        return default_hooks.allreduce_hook(group, bucket)
    except Exception as cause:
        failed = torch.futures.Future()
        failed.set_exception(cause)
        return failed


class Sample:
    """This rank's gradients of one step, as exchanges cut them; of a large model a part of them.

    Attributes:
        buckets: of each, [(name, elements)] of its tensors.
        value_bytes: of each bucket's values, as the all-reduce sends them.
        parts: float32 copies.
    """

    def __init__(self, exchanged: Exchanged) -> None:
        self._exchanged = exchanged
        elements = sum(parameter_elements(shape) for _, shape, _ in exchanged.tensors)
        self._share = min(1.0, codec_figures.MOST_VALUES / max(1, elements))
        self.buckets: list[list[tuple[str, int]]] = []
        self.value_bytes: list[int] = []
        self.parts: dict[str, np.ndarray] = {}
        self._finite = True

    def add(self, bucket: dist.GradBucket) -> None:
        """Before the all-reduce, which replaces the gradients."""
        if bucket.index() == 0:
            self.buckets, self.value_bytes, self.parts, self._finite = [], [], {}, True
        named = zip(bucket.parameters(), bucket.gradients(), strict=True)
        tensors = [(self._exchanged.name_of(parameter), gradient) for parameter, gradient in named]
        self.value_bytes.append(bucket.buffer().element_size())
        self.buckets.append([(name, gradient.numel()) for name, gradient in tensors])
        for name, gradient in tensors:
            flat = gradient.detach().reshape(-1)
            self._finite = self._finite and bool(torch.isfinite(flat).all())
            most = int(self._share * flat.numel()) + 1
            for first, count in codec_figures.sample_places(flat.numel(), most):
                part = flat[first : first + count]
                self.parts[f"{name}@{first}"] = part.to(torch.float32, copy=True).numpy()

    @property
    def usable(self) -> bool:
        """Codecs can be measured on it: it is there, and finite."""
        return bool(self.parts) and self._finite


def parameter_elements(shape: tuple[int, ...]) -> int:
    """Of a tensor of that shape."""
    return int(np.prod(shape, dtype=np.int64))
