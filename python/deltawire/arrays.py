"""Callers' arrays as NumPy arrays: NumPy's own, and everything that supports DLPack."""

import sys
from collections.abc import Sequence

import numpy as np

from deltawire import arguments
from deltawire.errors import invalid, wrong_dtype

# The dtypes that the core supports, by its names and NumPy's.
DTYPES = "float32", "bfloat16", "float16"


class BFloat16Bits(np.ndarray):
    """The bits of bfloat16 values, for which NumPy has no dtype without ml_dtypes."""


def dtype_of(array: np.ndarray) -> str:
    """The core's name of the dtype, or NumPy's if the core has none."""
    return "bfloat16" if isinstance(array, BFloat16Bits) else array.dtype.name


def _is_torchs(array) -> bool:
    return "torch" in sys.modules and isinstance(array, sys.modules["torch"].Tensor)


def as_numpy(name: str, array) -> np.ndarray:
    """`array` itself, or a view of its memory by DLPack (of a PyTorch or JAX array on the CPU).

    Raises:
        DTypeError (a TypeError): it is neither, or NumPy doesn't support its dtype or device.
    """
    if isinstance(array, np.ndarray):
        return array
    if not hasattr(array, "__dlpack__"):
        raise wrong_dtype(
            f"'{name}' is a {type(array).__name__}, neither a NumPy array nor one that supports "
            "DLPack; convert it with np.asarray"
        )
    try:
        # Before 2.9 PyTorch has no way to say by DLPack that an array may be written.
        return array.numpy() if _is_torchs(array) else np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as cause:
        raise wrong_dtype(
            f"NumPy can't view '{name}', a {type(array).__name__} ({cause}); give a float32 "
            "array on the CPU that does not require a gradient"
        ) from None


def check_float32(what: str, array) -> None:
    """Raises DTypeError for anything but a NumPy array of float32 in the machine's byte order."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or not array.dtype.isnative:
        kind = repr(array.dtype) if isinstance(array, np.ndarray) else type(array).__name__
        raise wrong_dtype(
            f"{what} must be a float32 NumPy array, not {kind}; convert with .astype(np.float32)"
        )


def check_dense(name: str, tensor) -> None:
    """Raises DTypeError for a sparse tensor of PyTorch."""
    if str(tensor.layout) != "torch.strided":
        raise wrong_dtype(
            f"'{name}' is sparse ({tensor.layout}), and patches take dense tensors: pass its "
            "to_dense()"
        )


def _with_bfloat16(name: str, array) -> np.ndarray:
    """`as_numpy`, but also of PyTorch tensors of bfloat16."""
    if not _is_torchs(array) or str(array.dtype) != "torch.bfloat16":
        return as_numpy(name, array)
    # The view would no longer say that the tensor requires a gradient.
    bits = array if array.requires_grad else array.view(sys.modules["torch"].int16)
    return as_numpy(name, bits).view(BFloat16Bits)


def to_read(name: str, array) -> np.ndarray:
    """A C-contiguous array of a dtype that codecs take; copied only if it is in another order."""
    # NumPy's scalars are not arrays, but are read like arrays.
    found = np.asarray(array) if isinstance(array, np.generic) else _with_bfloat16(name, array)
    if dtype_of(found) not in DTYPES or not found.dtype.isnative:
        raise wrong_dtype(
            f"'{name}' is {found.dtype!r}; codecs take float32, float16 and bfloat16 (of ml_dtypes "
            "or PyTorch) in the machine's byte order: convert with .astype(np.float32)"
        )
    # A scalar array stays one, and bits of bfloat16 stay bits.
    return found if found.flags.c_contiguous else found.copy(order="C")


def to_write(name: str, array, dtypes: Sequence[str] = DTYPES[:1]) -> np.ndarray:
    """The same memory, which must be of one of these dtypes, by default float32, C-contiguous and
    writable, so that its owner sees what is written."""
    found = (_with_bfloat16 if "bfloat16" in dtypes else as_numpy)(name, array)
    if dtype_of(found) not in dtypes or not found.dtype.isnative:
        raise wrong_dtype(
            f"'{name}' is {found.dtype!r}; it is written in place and must be "
            f"{' or '.join(dtypes)} in the machine's byte order"
        )
    for right, words in (
        (found.flags.c_contiguous, "not C-contiguous; np.ascontiguousarray makes one that is"),
        (found.flags.writeable, "read-only; give a copy"),
    ):
        if not right:
            raise invalid(f"'{name}' is written in place and is {words}")
    return found


def check_names(arrays) -> None:
    """Raises unless `arrays` is a non-empty mapping of names to arrays."""
    if not hasattr(arrays, "items") or not arrays:
        raise invalid("give at least one array, by name, in a dict")
    for name in arrays:
        if not isinstance(name, str):
            raise invalid(f"the name {name!r} of an array is not a string")
        arguments.check_unicode(name)
