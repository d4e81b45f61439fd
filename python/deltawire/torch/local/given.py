"""A state as arrays by name, as members of an elastic session give it to a process that joins."""

import io

import numpy as np
import torch
from torch.utils._pytree import tree_map, tree_map_only

from deltawire.errors import corrupt

_REST = "rest"  # the state without the values of its tensors
_MARK = "deltawire: tensor"


def packed(state: object) -> dict[str, np.ndarray]:
    """Arrays of bytes: one for each tensor of nested dicts, lists and tuples, in their order, which
    is the same on all ranks, and one for all else. Tensors of the CPU are not copied."""
    arrays: dict[str, np.ndarray] = {}

    def replaced(tensor: torch.Tensor) -> tuple:
        held = tensor.detach().cpu().contiguous()
        name = f"tensor {len(arrays)}"
        arrays[name] = held.reshape(-1).view(torch.uint8).numpy()
        return _MARK, name, held.dtype, tuple(held.shape)

    file = io.BytesIO()
    torch.save(tree_map_only(torch.Tensor, replaced, state), file)
    arrays[_REST] = np.frombuffer(file.getvalue(), np.uint8)
    return arrays


def unpacked(arrays: dict[str, np.ndarray]) -> object:
    """What was `packed`, on the CPU. Raises DeltawireError (Corrupt)."""

    def is_tensor(value: object) -> bool:
        return isinstance(value, tuple) and len(value) == 4 and value[0] == _MARK

    def restored(value: object) -> object:
        if not is_tensor(value):
            return value
        _, name, dtype, shape = value
        return torch.from_numpy(arrays[name].copy()).view(dtype).reshape(shape)

    try:
        rest = torch.load(io.BytesIO(arrays[_REST].tobytes()), weights_only=True)
        return tree_map(restored, rest, is_leaf=is_tensor)
    except Exception as error:
        raise corrupt(f"another member's state can't be read: {error}") from error
