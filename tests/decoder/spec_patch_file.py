"""Patch files, read as docs/reference/patch-files.md says and not as the C++ does it."""

import json
import math
import struct
from typing import NamedTuple

import numpy as np
import spec_patch
from spec_hashes import DecodeError, require, xxh64

# By dtype: the type of a patch and the bytes of an element.
DTYPES = {
    **{"F32": (1, 4), "BF16": (2, 2), "F16": (3, 2)},
    **dict.fromkeys(("F8_E4M3", "F8_E4M3FNUZ"), (4, 1)),
    **dict.fromkeys(("F8_E5M2", "F8_E5M2FNUZ"), (5, 1)),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E8M0"), (6, 1)),
    **dict.fromkeys(("I16", "U16"), (7, 2)),
    **dict.fromkeys(("I32", "U32"), (8, 4)),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), (8, 8)),
}
OTHER = 6  # the type of a patch; how many bytes an element has is not known
MOST_HEADER_BYTES = 100_000_000
MOST_TENSORS = 2**20
MOST_DIMS = 64
CHUNK_ELEMENTS = 2**16  # of a digest of weights


class Tensor(NamedTuple):
    dtype: str
    shape: list[int]
    data: bytes


class File(NamedTuple):
    header: bytes
    metadata: dict[str, str]
    tensors: dict[str, Tensor]  # in the order of their data


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON whose keys are all different."""
    require(len(dict(pairs)) == len(pairs), "Corrupt", "a key that is there twice")
    return dict(pairs)


def parsed(header: bytes) -> dict[str, dict]:
    """The JSON of a header."""
    try:
        found = json.loads(header.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise DecodeError("Corrupt", f"a header that is no JSON: {error}") from None
    require(isinstance(found, dict), "Corrupt", "a header that is no object")
    return found


def check_entry(entry: object) -> None:
    """The fields of a tensor in the header."""
    fields = {"dtype", "shape", "data_offsets"}
    require(isinstance(entry, dict) and entry.keys() == fields, "Corrupt", "other fields")
    lists = (entry["shape"], entry["data_offsets"])
    require(all(isinstance(each, list) for each in lists), "Corrupt", "a list is missing")
    numbers = [number for each in lists for number in each]
    whole = all(type(number) is int and 0 <= number < 2**64 for number in numbers)
    require(whole and len(entry["data_offsets"]) == 2, "Corrupt", "numbers out of range")
    require(len(entry["shape"]) <= MOST_DIMS, "Limit", "too many dimensions")
    require(isinstance(entry["dtype"], str), "Corrupt", "a dtype that is no text")


def read_tensors(header: bytes, data: bytes | None) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors. Without data, these have none."""
    entries = parsed(header)
    metadata = entries.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    texts = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    require(texts, "Corrupt", "metadata that are no strings")
    require(len(entries) <= MOST_TENSORS, "Limit", "too many tensors")
    for entry in entries.values():
        check_entry(entry)
    at, tensors = 0, {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        count = math.prod(entry["shape"])
        fits = entry["dtype"] not in DTYPES or end - begin == count * DTYPES[entry["dtype"]][1]
        require(begin == at <= end and fits, "Corrupt", "a gap, an overlap or a length")
        found = b"" if data is None else data[begin:end]
        tensors[name] = Tensor(entry["dtype"], entry["shape"], found)
        at = end
    if data is not None:
        require(at <= len(data), "Truncated", "data that are cut off")
        require(at == len(data), "Corrupt", "bytes behind the data")
    return metadata, tensors


def read(file: bytes) -> File:
    require(len(file) >= 8, "Truncated", "no length of a header")
    (length,) = struct.unpack_from("<Q", file)
    require(length <= MOST_HEADER_BYTES, "Limit", "a header that is too long")
    require(length <= len(file) - 8, "Truncated", "a header that is cut off")
    header = file[8 : 8 + length]
    return File(header, *read_tensors(header, file[8 + length :]))


def type_of(dtype: str) -> int:
    """The type of a tensor's patch."""
    return DTYPES.get(dtype, (OTHER,))[0]


def weights_digest(tensor: Tensor) -> int:
    kind = type_of(tensor.dtype)
    weights = np.frombuffer(tensor.data, f"<u{spec_patch.TYPES[kind][0]}")
    return spec_patch.digest(weights, CHUNK_ELEMENTS)


def model_digest(tensors: dict[str, Tensor]) -> str:
    """The digest of a model, as metadata have it."""
    hashed = b""
    for name, tensor in sorted(tensors.items(), key=lambda item: item[0].encode()):
        for text in (name.encode(), tensor.dtype.encode()):
            hashed += struct.pack("<I", len(text)) + text
        hashed += struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        hashed += struct.pack("<Q", weights_digest(tensor))
    return f"{xxh64(hashed):016x}"


def file_digest(header: bytes, model: str) -> str:
    """The digest of a file, as metadata have it."""
    hashed = struct.pack("<Q", len(header)) + header + int(model, 16).to_bytes(8, "little")
    return f"{xxh64(hashed):016x}"


def new_tensor(name: str, wanted: Tensor, patch: File, old: File) -> Tensor:
    full, code = (patch.tensors.get(f"{kind}:{name}") for kind in ("full", "patch"))
    left_out = full is None and code is None
    may_be = patch.metadata["format_version"] == "2"
    require(may_be or not left_out, "Mismatch", "a tensor without an entry")
    require(full is None or code is None, "Corrupt", "a tensor with two entries")
    before = old.tensors.get(name) if full is None else full
    fits = before is not None and before[:2] == wanted[:2]
    require(fits, "Mismatch", "a tensor of another kind, or none")
    if full is not None:
        return full
    if left_out:
        return before
    data = spec_patch.apply(code.data, before.data, type_of(before.dtype))
    return Tensor(wanted.dtype, wanted.shape, data)


def check_patch(patch: File) -> None:
    """What a patch file says about itself."""
    require(patch.metadata.get("format") == "deltawire-patch", "Corrupt", "another format")
    known = patch.metadata.get("format_version") in ("1", "2")
    require(known, "UnsupportedVersion", "another version")
    for key in {"old", "new"} | patch.metadata.keys() & {"file"}:
        digits = patch.metadata.get(key, "")
        right = len(digits) == 16 and set(digits) <= set("0123456789abcdef")
        require(right, "Corrupt", "a digest that is none")
    for name, entry in patch.tensors.items():
        rows = name == "header" or name.startswith("patch:")
        require(rows or name.startswith("full:"), "Corrupt", "an unknown entry")
        row = entry.dtype == "U8" and len(entry.shape) == 1
        require(row or not rows, "Corrupt", "an entry that is no row of bytes")


def apply(patch_file: bytes, old_file: bytes) -> bytes:
    """The new file."""
    patch, old = read(patch_file), read(old_file)
    check_patch(patch)
    header = patch.tensors["header"].data if "header" in patch.tensors else old.header
    if "file" in patch.metadata:
        kind = "Corrupt" if "header" in patch.tensors else "Mismatch"
        right = file_digest(header, patch.metadata["new"]) == patch.metadata["file"]
        require(right, kind, "another new file")
    _, wanted = read_tensors(header, None)
    new = {name: new_tensor(name, tensor, patch, old) for name, tensor in wanted.items()}
    entries = {f"{kind}:{name}" for name in new for kind in ("patch", "full")}
    require(patch.tensors.keys() - {"header"} <= entries, "Corrupt", "entries left over")
    require(model_digest(old.tensors) == patch.metadata["old"], "Mismatch", "another old model")
    require(model_digest(new) == patch.metadata["new"], "Corrupt", "another new model")
    return struct.pack("<Q", len(header)) + header + b"".join(each.data for each in new.values())
