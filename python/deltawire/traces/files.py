"""The arrays of a trace (docs/reference/traces.md): .npy files, or .dw files of lossless codecs."""

import math
import os
from pathlib import Path

import numpy as np

from deltawire import _core
from deltawire.errors import DeltawireError, corrupt, make_error, mismatch

FLOAT32 = np.dtype("<f4")
INT64 = np.dtype("<i8")
_MIN_ELEMENTS = 256  # smaller arrays are stored uncompressed in .dw files
_NPY_HEAD_BYTES = 128
_AGAIN = "copy or record the trace again"


def place_of(folder: Path, text: object, endings: tuple[str, ...]) -> Path:
    """The file that a trace.json names; raises "Corrupt" for a path that leaves the folder, also
    through a link, or has another ending."""
    if not isinstance(text, str):
        raise corrupt(f"{folder}: a path is {text!r}, not a text; {_AGAIN}")
    parts = text.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in text or "\0" in text:
        raise corrupt(
            f"{folder}: the path {text!r} is not one of a file below the folder; {_AGAIN}"
        )
    if not text.endswith(endings):
        raise corrupt(f"{folder}: {text!r} does not end in {' or '.join(endings)}; {_AGAIN}")
    path = folder.joinpath(*parts)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise corrupt(f"{path} is a link that leaves the folder; {_AGAIN}")
    return path


def read_floats(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """The float32 array of that shape in a .npy or .dw file, writable. It allocates no more memory
    than that, whatever the file claims.

    Raises DeltawireError: "Io", "Truncated", "Corrupt", "Mismatch" (another shape, dtype, order, or
    a codec that loses something), "UnsupportedVersion".
    """
    return _read_dw(path, shape) if path.suffix == ".dw" else _read_npy(path, FLOAT32, shape)


def read_keys(path: Path, count: int) -> np.ndarray:
    """The strictly growing keys below `count` in a .npy file of int64. Errors: as `read_floats`."""
    keys = _read_npy(path, INT64, None)
    if len(keys) and (keys[0] < 0 or keys[-1] >= count or (keys[1:] <= keys[:-1]).any()):
        raise corrupt(f"{path}: keys must grow, from 0 to below {count:,}; {_AGAIN}")
    return keys


def write_floats(folder: Path, stem: str, values: np.ndarray, spec: str | None) -> tuple[str, int]:
    """Writes float32 values as `stem`.npy, or as .dw if that codec makes them smaller. Returns the
    file's name and bytes. Raises OSError."""
    values = np.asarray(values, FLOAT32, order="C")
    if spec is not None:
        data = _core.encode_file(values, spec, _MIN_ELEMENTS, None)
        if len(data) < _NPY_HEAD_BYTES + values.nbytes:
            (folder / f"{stem}.dw").write_bytes(data)
            return f"{stem}.dw", len(data)
    return _write_npy(folder / f"{stem}.npy", values)


def write_keys(folder: Path, stem: str, keys: np.ndarray) -> tuple[str, int]:
    """Writes keys as `stem`.npy. Returns the file's name and bytes. Raises OSError."""
    return _write_npy(folder / f"{stem}.npy", np.asarray(keys, INT64))


def _write_npy(path: Path, array: np.ndarray) -> tuple[str, int]:
    with path.open("wb") as file:
        np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
        return path.name, file.tell()


def _read_npy(path: Path, dtype: np.dtype, shape: tuple[int, ...] | None) -> np.ndarray:
    """An array of a .npy file. Without a shape it must have one dimension."""
    try:
        with path.open("rb") as file:
            found, fortran_order, found_dtype = _read_npy_header(file)
            wrong = None
            if found_dtype != dtype or fortran_order:
                order = "Fortran" if fortran_order else "C"
                wrong = f"{found_dtype.str} in {order} order where {dtype.str} in C order is due"
            elif shape is not None and found != shape:
                wrong = f"the shape {found} where {shape} is due"
            elif shape is None and len(found) != 1:
                wrong = f"the shape {found} where one dimension is due"
            if wrong:
                raise mismatch(f"{path}: holds {wrong}; {_AGAIN}")
            count = math.prod(found)
            held = os.fstat(file.fileno()).st_size - file.tell()
            if held != count * dtype.itemsize:
                raise make_error(
                    "Truncated" if held < count * dtype.itemsize else "Corrupt",
                    f"{path}: has {held:,} bytes of values where {count * dtype.itemsize:,} are "
                    f"due; {_AGAIN}",
                )
            return np.fromfile(file, dtype, count).reshape(found)
    except OSError as cause:
        raise _unreadable(path, cause) from cause


def _read_npy_header(file) -> tuple[tuple[int, ...], bool, np.dtype]:
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"its .npy version is {version[0]}.{version[1]}")
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        return np.lib.format.read_array_header_2_0(file)  # 3.0 only differs in names of fields
    except OSError:
        raise
    except Exception as cause:  # NumPy parses Python, and any of its parsers may raise
        reason = str(cause).split("\n")[0]
        raise corrupt(f"{file.name}: no readable .npy file ({reason}); {_AGAIN}") from cause


def _read_dw(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as cause:
        raise _unreadable(path, cause) from cause
    try:
        header = _core.read_file_header(data)
        found = tuple(header.shape)
        if header.dtype != "float32" or found != shape:
            raise mismatch(f"holds {header.dtype} of shape {found} where float32 of {shape} is due")
        if not _core.is_lossless(header.spec):
            raise mismatch(f"was coded by '{header.spec}', which loses bits")
        out = np.empty(shape, np.float32)
        _core.decode_file(data, out)
        return out
    except DeltawireError as cause:
        raise make_error(cause.code, f"{path}: {cause}", advice=_AGAIN) from cause


def _unreadable(path: Path, cause: OSError) -> DeltawireError:
    return make_error("Io", f"{path}: can't be read ({cause.strerror or cause}); {_AGAIN}")
