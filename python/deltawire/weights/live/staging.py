"""Copies of a model's weights, so that training goes on while they are published."""

import numpy as np

from deltawire.weights.store.model_tensors import Model
from deltawire.weights.store.stored_model import Entry, tensor_bytes


class StagedModel:
    """Copies of a model's tensors, in memory that is used again for the next copy.

    Attributes:
        tensors: by the name under which they are stored.
        tied: further names, and the stored name of each.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Entry] = {}
        self.tied: dict[str, str] = {}

    def copy(self, model: Model) -> None:
        """Takes a copy of all weights."""
        copies = {}
        for name, tensor in model.tensors.items():
            size = tensor_bytes(tensor.dtype, tensor.shape)
            before = self.tensors.get(name)
            data = None if before is None else before.data
            if data is None or len(data) != size:
                data = np.empty(size, np.uint8)
            tensor.copy_to(data)
            copies[name] = Entry(tensor.dtype, tensor.shape, data)
        self.tensors, self.tied = copies, dict(model.tied)
