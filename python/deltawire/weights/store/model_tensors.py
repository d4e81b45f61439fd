"""A model's weights as bytes: dicts of NumPy arrays or PyTorch tensors, and modules."""

import functools
import sys
import types
from collections.abc import Mapping

import numpy as np

from deltawire import _core, arguments, arrays
from deltawire.errors import invalid, wrong_dtype
from deltawire.weights.store.stored_model import (
    DTYPES,
    Entry,
    TensorDigest,
    digest_of,
    tensor_bytes,
)

# By the names of NumPy, ml_dtypes and PyTorch.
_NAMES = {
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
    "complex64": "C64",
}
_CALLED = {name: called for called, name in _NAMES.items()}
_MOST_WORK = 100_000  # of NumPy, to find out whether two tensors share memory


class ModelTensor:
    """One tensor of a model, in the caller's memory.

    Attributes:
        name: in the model.
        dtype: as safetensors spells it.
        shape: its dimensions.
    """

    def __init__(self, name: str, array) -> None:
        self.name = name
        self._array = array
        self._torch = _is_tensor(name, array)
        if not self._torch and not isinstance(array, np.ndarray):
            raise wrong_dtype(
                f"'{name}' is a {type(array).__name__}, neither a NumPy array nor a PyTorch "
                "tensor: leave it out of what you pass"
            )
        called = str(array.dtype).removeprefix("torch.")
        if called not in _NAMES or not (self._torch or array.dtype.isnative):
            raise wrong_dtype(f"'{name}' is {called}: patches don't know it")
        self.dtype = _NAMES[called]
        self.shape = tuple(array.shape)

    def read(self) -> np.ndarray:
        """Its bytes: the memory itself if that is contiguous and the CPU's, otherwise a copy."""
        if self._torch:
            import torch

            flat = self._array.detach().cpu().contiguous().reshape(-1)
            return flat.view(torch.uint8).numpy()
        return np.ascontiguousarray(self._array).reshape(-1).view(np.uint8)

    def copy_to(self, data: np.ndarray) -> None:
        """Copies its bytes to `data`."""
        if self._torch and len(data):
            import torch

            copy = torch.from_numpy(data).view(self._array.dtype).reshape(self.shape)
            copy.copy_(self._array.detach())
        elif not self._torch:
            data.view(self._array.dtype).reshape(self.shape)[...] = self._array

    def write(self, data: np.ndarray) -> None:
        """Stores bytes that came from `read` and have changed since."""
        if self._in_place():
            return  # `read` gave the memory itself
        if self._torch:
            import torch

            changed = torch.from_numpy(data).view(self._array.dtype).reshape(self.shape)
            with torch.inference_mode() if self._array.is_inference() else torch.no_grad():
                self._array.copy_(changed)
        else:
            self._array[...] = data.view(self._array.dtype).reshape(self.shape)

    def check_writable(self) -> None:
        """Raises InvalidArgumentError if `write` would fail, or write one element over another."""
        if not self._torch and not self._array.flags.writeable:
            raise invalid(f"'{self.name}' can't be written")
        if overlaps_itself(self.shape, self._strides(), self._element_bytes()):
            raise invalid(
                f"'{self.name}' can't be written: its elements share memory, as expand() makes "
                "them; give the model a contiguous copy of it"
            )

    def _in_place(self) -> bool:
        if self._torch:
            return self._array.device.type == "cpu" and self._array.is_contiguous()
        return self._array.flags.c_contiguous

    def extent(self) -> tuple[str, int, int]:
        """The device, and the first address and the one behind the last of its memory."""
        reach = [(size - 1) * step for size, step in zip(self.shape, self._strides(), strict=True)]
        low = self._address() + sum(min(0, bytes_) for bytes_ in reach)
        high = self._address() + sum(max(0, bytes_) for bytes_ in reach) + self._element_bytes()
        return str(self._array.device) if self._torch else "cpu", low, high

    def shares_memory(self, other: "ModelTensor") -> bool:
        """Whether some byte is of both tensors, whose device is the same."""
        try:
            return np.shares_memory(self._places, other._places, _MOST_WORK)
        except np.exceptions.TooHardError:
            return True

    @functools.cached_property
    def _places(self) -> np.ndarray:
        """An array with the addresses of all bytes, which may be another device's: NumPy compares
        them, nobody reads there."""
        interface = {
            "version": 3,
            "typestr": "|u1",
            "data": (self._address(), True),
            "shape": (*self.shape, self._element_bytes()),
            "strides": (*self._strides(), 1),
        }
        return np.asarray(types.SimpleNamespace(__array_interface__=interface))

    def _address(self) -> int:
        if self._torch:
            return self._array.data_ptr()
        return self._array.__array_interface__["data"][0]

    def _element_bytes(self) -> int:
        return DTYPES[self.dtype].bytes

    def _strides(self) -> tuple[int, ...]:
        """In bytes."""
        if not self._torch:
            return self._array.strides
        return tuple(step * self._array.element_size() for step in self._array.stride())

    def same_memory(self) -> tuple:
        """Equal for two names of one tensor."""
        return (*self.extent(), self.dtype, self.shape, self._strides())


class Model:
    """The tensors of a model, each once.

    A tensor that has several names (tied weights) is stored under the first of them in the order of
    their bytes.

    Attributes:
        tensors: by the name under which they are stored.
        tied: further names, and the stored name of each.
    """

    def __init__(self, model: object) -> None:
        self.tensors: dict[str, ModelTensor] = {}
        self.tied: dict[str, str] = {}
        named = _named(model)
        seen: dict[tuple, str] = {}
        for name in sorted(named, key=str.encode):
            tensor = ModelTensor(name, named[name])
            empty = not tensor_bytes(tensor.dtype, tensor.shape)
            first = name if empty else seen.setdefault(tensor.same_memory(), name)
            if first == name:
                self.tensors[name] = tensor
            else:
                self.tied[name] = first
        self._refuse_overlaps()

    def _refuse_overlaps(self) -> None:
        """A tensor that shares part of its memory with another can't be written alone."""
        extents = sorted(
            (*tensor.extent(), name)
            for name, tensor in self.tensors.items()
            if tensor_bytes(tensor.dtype, tensor.shape)
        )
        reaching: list[tuple[str, int, int, str]] = []  # behind where the next begins
        for after in extents:
            reaching = [each for each in reaching if each[0] == after[0] and each[2] > after[1]]
            for before in reaching:
                if self.tensors[before[3]].shares_memory(self.tensors[after[3]]):
                    raise invalid(
                        f"'{before[3]}' and '{after[3]}' share memory without being the same "
                        "tensor: pass a contiguous copy of one of them"
                    )
            reaching.append(after)

    def digest(self) -> str:
        """The model's digest, 16 hexadecimal digits. Hashes all weights."""
        return digest_of(
            {
                name: TensorDigest(each.dtype, each.shape, weights_digest(each.dtype, each.read()))
                for name, each in self.tensors.items()
            }
        )


def overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...], element: int = 1) -> bool:
    """Whether two elements of a tensor are, or may be, at one address, as expand() puts them.
    `strides` and `element`, an element's length, count the same unit."""
    if 0 in shape:
        return False
    within = element
    for step, size in sorted(zip(map(abs, strides), shape, strict=True)):
        if size > 1 and step < within:
            return True
        within += (size - 1) * step
    return False


def weights_digest(dtype: str, data: np.ndarray) -> int:
    """`deltawire.patches.digest` of bytes."""
    return _core.weights_digest(data, DTYPES[dtype].kind)


def framework_of(name: str | None) -> str:
    """ "torch" or "numpy"; for None PyTorch where it is installed."""
    if name is None:
        try:
            import torch  # noqa: F401
        except ImportError:
            return "numpy"
        return "torch"
    if name not in ("numpy", "torch"):
        raise invalid(f"framework={name!r}: it is 'torch' or 'numpy'")
    return name


def arrays_of(
    tensors: Mapping[str, Entry], tied: Mapping[str, str], framework: str
) -> dict[str, object]:
    """Arrays or tensors by all their names, in the memory of `tensors`."""
    made = {name: array_of(*entry, framework) for name, entry in tensors.items()}
    return made | {name: made[stored] for name, stored in tied.items()}


def array_of(dtype: str, shape: tuple[int, ...], data: np.ndarray, framework: str):
    """Bytes as an array of NumPy or a tensor of PyTorch, the same memory."""
    called = _CALLED[dtype]
    if framework == "torch":
        import torch

        kind = getattr(torch, called)
        if not len(data):  # which has no stride that `view` would take
            return torch.empty(shape, dtype=kind, device="cpu")
        return torch.from_numpy(data).view(kind).reshape(shape)
    try:
        known = np.dtype(called)
    except TypeError:
        try:
            import ml_dtypes
        except ImportError:
            raise wrong_dtype(
                f"NumPy has no {called}: install ml_dtypes, or load with framework='torch'"
            ) from None
        known = np.dtype(getattr(ml_dtypes, called))
    return data.view(known).reshape(shape)


def _is_tensor(name: str, array) -> bool:
    """Whether it is a tensor of PyTorch whose bytes can be read."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return False
    if hasattr(array, "placements"):
        raise wrong_dtype(
            "the weights are sharded (DTensor): pass full_tensor() of each, or to_local() if each "
            "rank has a store of its own"
        )
    arrays.check_dense(name, array)
    if array.is_meta:
        raise invalid(
            f"'{name}' is on the device meta and has no values: give the model memory first, with "
            'to_empty(device="cpu")'
        )
    return True


def _named(model: object) -> Mapping[str, object]:
    """Names and arrays of a dict, or of what a module's state_dict() names."""
    if isinstance(model, Mapping):
        named = dict(model)
        for name, value in named.items():
            if isinstance(value, Mapping):  # a checkpoint has the weights beside other things
                raise invalid(
                    f"{name!r} is a dict within the dict of weights: pass the weights alone, "
                    f"[{name!r}] if they are in it"
                )
    elif hasattr(model, "named_parameters") and hasattr(model, "state_dict"):
        named = _of_module(model)
    else:
        raise invalid(
            f"weights are a dict of arrays or tensors, or a module, not {type(model).__name__}"
        )
    if not named:
        raise invalid("the model has no weights")
    for name in named:
        if not isinstance(name, str) or name == "__metadata__":
            raise invalid(f"{name!r} is not a name of a tensor")
        arguments.check_unicode(name)
    plain = {plain_name(name): value for name, value in named.items()}
    if len(plain) < len(named):
        raise invalid("two tensors have one name without '_orig_mod'")
    return plain


def _of_module(model) -> dict[str, object]:
    """A module's tensors by the names that they have without wrappers."""
    while (inner := _wrapped_in(model)) is not None:
        model = inner
    # Not the state dict's own tensors: hooks may have replaced them by copies.
    own = dict(model.named_parameters(remove_duplicate=False))
    own |= dict(model.named_buffers(remove_duplicate=False))
    named = {}
    for name, value in model.state_dict().items():
        if name.rpartition(".")[2] == "_extra_state":
            raise wrong_dtype(
                f"'{name}' is what the module's get_extra_state() gives, which is no weight: pass "
                "a dict of the rest, {n: t for n, t in module.state_dict().items() if not "
                "n.endswith('_extra_state')}"
            )
        named[name] = own.get(name, value)
    return named


def _wrapped_in(model):
    """The module in DistributedDataParallel, DataParallel or torch.compile; None if it is bare."""
    bases = {base.__name__ for base in type(model).__mro__ if base.__module__.startswith("torch.")}
    if bases & {"DistributedDataParallel", "DataParallel"}:
        return model.module
    return getattr(model, "_orig_mod", None)


def plain_name(name: str) -> str:
    """A module's or tensor's name without what torch.compile adds, so that what is stored fits the
    model with and without it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")
