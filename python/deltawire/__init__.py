"""deltawire: the state changes of distributed training in far fewer bytes.

Here, on NumPy arrays: the codecs; `Channel`, which keeps residuals from step to step; `Session`, in
which ranks average arrays; the optimizers; and traces: recorded gradients. For training with
PyTorch see `deltawire.torch`.
"""

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from deltawire import _core, arguments, arrays
from deltawire._core import CodecInfo, LinkShape, ParameterInfo, __version__
from deltawire.channel import Channel, Sender
from deltawire.errors import (
    DeltawireError,
    DTypeError,
    ExcludedError,
    InvalidArgumentError,
    NoMemoryError,
    QuorumError,
    invalid,
    make_error,
    mismatch,
    wrong_dtype,
)
from deltawire.optimizer import Optimizer
from deltawire.session.session import Session
from deltawire.traces import Trace, TracedGradient, TracedTensor, TraceStep, read_trace

__all__ = [
    "Channel",
    "CodecInfo",
    "DTypeError",
    "DeltawireError",
    "ExcludedError",
    "InvalidArgumentError",
    "NoMemoryError",
    "QuorumError",
    "LinkShape",
    "Optimizer",
    "ParameterInfo",
    "Sender",
    "Session",
    "Trace",
    "TraceStep",
    "TracedGradient",
    "TracedTensor",
    "__version__",
    "canonical_spec",
    "codecs",
    "decode",
    "encode",
    "read_trace",
    "uses_significance",
]


if not TYPE_CHECKING:  # or a checker would accept any name

    def __getattr__(name: str) -> object:
        wrong = f"module {__name__!r} has no attribute {name!r}"
        if name.isidentifier() and find_spec(f"{__name__}.{name}"):
            wrong += f"; it is a module of its own: import {__name__}.{name}"
        raise AttributeError(wrong)


def codecs() -> list[CodecInfo]:
    """All codecs with their parameters, in the order of their numbers on the wire."""
    return _core.registered_codecs()


def canonical_spec(spec: str) -> str:
    """A reducer's spec as text, with pattern and every parameter spelled out.

    "bf16" gives "direct(bf16)". Two reducers with equal canonical specs give equal bytes.

    Args:
        spec: a codec, pattern and codec, or rules, "direct(conv*: 3lc, rest fp32)".

    Raises:
        InvalidArgumentError (a ValueError): unknown pattern, codec or parameter, bad value.
    """
    return arguments.spec_of(spec).text


def uses_significance(spec: str) -> bool:
    """Whether the spec's codec, with its parameters, uses significance (how much of each gradient
    the optimizer can see), so that `encode(significance=)` and
    `deltawire.torch.register(optimizer=)` have an effect.

    Raises:
        InvalidArgumentError (a ValueError): a bad spec.
    """
    return arguments.spec_of(spec).uses_significance


def encode(
    array: np.ndarray, spec: str, *, min_elements: int = 256, significance: np.ndarray | None = None
) -> bytes:
    """Encodes one array as a .dw file.

    A codec that draws random numbers draws the same ones in every call. For the steps of a training
    run use a `Channel`, which draws new ones in each, and keeps residuals.

    Args:
        array: float32 in the machine's byte order, up to 8 dimensions; copied first if it isn't
            C-contiguous.
        spec: codec and parameters, e.g. "3lc:s=1.75".
        min_elements: arrays below this many elements are stored uncompressed.
        significance: how much of each element the optimizer can see (`Optimizer.significance`),
            float32 of the array's shape, for a codec that uses it ("gcomp").

    Raises:
        TypeError: a spec that isn't text; DTypeError: not a float32 array.
        InvalidArgumentError (a ValueError): unknown codec or parameter, value out of range;
            significance of another shape, or for a codec that does not use it.
        DeltawireError: a value that the codec can't carry, e.g. NaN ("NotFinite").
    """
    arrays.check_float32("what encode takes", array)
    arguments.check_count("min_elements", min_elements)
    arguments.check_spec(spec)
    if significance is not None:
        arrays.check_float32("significance", significance)
        if significance.shape != array.shape:
            raise invalid(
                f"significance has shape {significance.shape}, the array {array.shape}; give one "
                "for each element"
            )
        arguments.require_use(_core.Spec(spec), "significance")
        significance = np.ascontiguousarray(significance)
    # ascontiguousarray would turn a scalar array into one of a single dimension.
    contiguous = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    return _core.encode_file(contiguous, spec, min_elements, significance)


def decode(
    data: bytes, *, max_elements: int = 1 << 28, out: np.ndarray | None = None
) -> np.ndarray:
    """Decodes a .dw file (any bytes-like object) to a float32 array of the encoded shape.

    Args:
        data: the whole file; hostile bytes are safe.
        max_elements: larger arrays are refused ("Limit") before memory is allocated for them,
            because a few bytes can claim any size. Not looked at with `out`.
        out: the array to decode into, and to return: float32 of the file's shape, C-contiguous,
            apart from `data`. None allocates one, which for 100 MB takes as long as decoding.
            After an error its values are unspecified.

    Raises:
        DeltawireError: "Truncated", "Corrupt", "UnsupportedVersion", "Mismatch" (also an `out` of
            another shape), "Limit"; "InvalidArgument" for an `out` that can't be written to.
        DTypeError (a TypeError): the file holds another dtype, or `out` has another.
    """
    flat = np.frombuffer(data, dtype=np.uint8)
    header = _core.read_file_header(flat)
    if header.dtype != "float32":
        raise wrong_dtype(f"the file holds {header.dtype}; only float32 can be decoded here")
    shape = tuple(header.shape)
    if out is not None:
        room = arrays.to_write("out", out)
        if room.shape != shape:
            raise mismatch(f"out has shape {room.shape}, the file's array {shape}")
        if np.may_share_memory(room, flat):
            raise invalid("out shares memory with the file's bytes")
    elif math.prod(shape) > max_elements:
        raise make_error(
            "Limit",
            f"the file claims {math.prod(shape):,} elements, more than max_elements="
            f"{max_elements:,}; pass a larger max_elements if you trust it",
        )
    else:
        out = room = np.empty(shape, dtype=np.float32)
    _core.decode_file(flat, room)
    return out
