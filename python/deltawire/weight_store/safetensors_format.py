"""The safetensors format: 8 bytes with the header's length, a JSON header, and the tensors' bytes.

The package `safetensors` isn't used: it hands out arrays, and NumPy has none for bfloat16 and
float8; the store needs the bytes where they are, a header that it can check against limits, and
headers that are the same bytes on every machine.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from deltawire import foreign_json
from deltawire.errors import make_error

MAX_HEADER_BYTES = 100_000_000  # as the package safetensors has it
_MAX_TENSORS = 1 << 20
_MAX_DIMENSIONS = 64
_ALIGNMENT = 8


class DType(NamedTuple):
    """A dtype of safetensors that patches know.

    Attributes:
        kind: the name of its weights in patches.
        bytes: of an element.
    """

    kind: str
    bytes: int


DTYPES = {
    "F32": DType("float32", 4),
    "BF16": DType("bfloat16", 2),
    "F16": DType("float16", 2),
    "F8_E4M3": DType("float8_e4m3", 1),
    "F8_E5M2": DType("float8_e5m2", 1),
    "F8_E4M3FNUZ": DType("float8_e4m3", 1),
    "F8_E5M2FNUZ": DType("float8_e5m2", 1),
    "F8_E8M0": DType("int8", 1),
    "I8": DType("int8", 1),
    "U8": DType("int8", 1),
    "BOOL": DType("int8", 1),
    "I16": DType("int16", 2),
    "U16": DType("int16", 2),
    "I32": DType("int32", 4),
    "U32": DType("int32", 4),
    # Patches take eight bytes as two elements.
    "I64": DType("int32", 8),
    "U64": DType("int32", 8),
    "F64": DType("int32", 8),
    "C64": DType("int32", 8),
}


class Entry(NamedTuple):
    """A tensor of a file: dtype as safetensors spells it, shape, and bytes in the file."""

    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray


class SafetensorsFile(NamedTuple):
    """A file's metadata, and its tensors in the order of their data."""

    metadata: dict[str, str]
    entries: dict[str, Entry]


def tensor_bytes(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of a tensor.

    Raises:
        DTypeError: a dtype that patches don't know.
    """
    if dtype not in DTYPES:
        raise make_error("UnsupportedDType", f"patches don't know safetensors' dtype {dtype!r}")
    return math.prod(shape) * DTYPES[dtype].bytes


def header_of(tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]):
    """The first bytes of a file whose tensors, each a dtype and a shape, have this order."""
    fields: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, (dtype, shape) in tensors.items():
        end = at + tensor_bytes(dtype, shape)
        fields[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    return len(header).to_bytes(8, "little") + header


def in_file_order(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[str]:
    """Names in the order in which a snapshot has their data: widest dtype first, so that all are
    aligned."""
    return sorted(tensors, key=lambda name: (-DTYPES[tensors[name][0]].bytes, name.encode()))


def parse(where: str, data: np.ndarray) -> SafetensorsFile:
    """A file's tensors; `data` is the whole file as bytes, and `where` names it in errors.

    Raises:
        DeltawireError: code "Truncated", "Corrupt" or "Limit".
    """
    if len(data) < 8:
        raise make_error("Truncated", f"{where} has {len(data)} bytes, fewer than a header")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > MAX_HEADER_BYTES:
        raise make_error("Limit", f"{where} claims a header of {length:,} bytes")
    if length > len(data) - 8:
        raise make_error("Truncated", f"{where} ends within its header")
    fields = _fields(where, data[8 : 8 + length])
    if len(fields) > _MAX_TENSORS:
        raise make_error("Limit", f"{where} has {len(fields):,} tensors")
    metadata = fields.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise make_error("Corrupt", f"{where}: the metadata are not texts")
    return SafetensorsFile(metadata, _entries(where, fields, data[8 + length :]))


def names_in(where: str, header: np.ndarray) -> frozenset[str]:
    """Names of the tensors in a header, without the 8 bytes of its length.

    Raises:
        DeltawireError: code "Corrupt".
    """
    return frozenset(_fields(where, header)) - {"__metadata__"}


def _fields(where: str, header: np.ndarray) -> dict:
    try:
        fields = foreign_json.parse(header.tobytes())
    except ValueError as error:
        raise make_error("Corrupt", f"{where} has no valid header: {error}") from None
    if not isinstance(fields, dict):
        raise make_error("Corrupt", f"{where}: the header is no JSON object")
    return fields


def _entries(where: str, fields: dict[str, object], data: np.ndarray) -> dict[str, Entry]:
    """The tensors of the header's fields, which must cover the data without gap or overlap."""
    found = [(*_span(where, name, field), name) for name, field in fields.items()]
    found.sort(key=lambda each: each[:2])
    entries = {}
    at = 0
    for begin, end, dtype, shape, name in found:
        if begin != at:
            raise make_error("Corrupt", f"{where}: before '{name[:200]}' is a gap or an overlap")
        if end > len(data):
            raise make_error("Truncated", f"{where} ends before '{name[:200]}' does")
        entries[name] = Entry(dtype, shape, data[begin:end])
        at = end
    if at != len(data):
        raise make_error("Corrupt", f"{where} has {len(data) - at} bytes that are no tensor's")
    return entries


def _span(where: str, name: str, field: object) -> tuple[int, int, str, tuple[int, ...]]:
    """Where a tensor begins and ends, its dtype and its shape."""
    if not isinstance(field, dict) or set(field) != {"dtype", "shape", "data_offsets"}:
        raise make_error("Corrupt", f"{where}: '{name[:200]}' is not described as a tensor")
    dtype, shape, offsets = field["dtype"], field["shape"], field["data_offsets"]
    if not _are_counts(shape) or len(shape) > _MAX_DIMENSIONS:
        raise make_error("Corrupt", f"{where}: '{name[:200]}' has no valid shape")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise make_error("Corrupt", f"{where}: '{name[:200]}' has no valid place")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise make_error(
            "UnsupportedDType",
            f"{where}: '{name[:200]}' is {str(dtype)[:200]}, which patches don't know",
        )
    if offsets[1] - offsets[0] != tensor_bytes(dtype, shape):
        raise make_error("Corrupt", f"{where}: '{name[:200]}' has a size that isn't its shape's")
    return offsets[0], offsets[1], dtype, tuple(shape)


def _are_counts(values: object) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)
