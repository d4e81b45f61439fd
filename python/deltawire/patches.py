"""Lossless patches between two versions of weights.

Whoever has the old version of a tensor gets the new one from a patch, bit for bit. After a step of
fine-tuning, a patch of 16-bit weights takes 5 to 9 bits for each weight that changed.

Weights are NumPy arrays or PyTorch tensors on the CPU, C-contiguous: float32, float16, bfloat16,
float8 and integers. Anything else of 8 bytes is patched as pairs of 32-bit integers. Every call
may use the threads of the process (`OMP_NUM_THREADS`); no byte depends on them.

`make_file` and its companions do the same for whole models in safetensors files. They read and
write in pieces, so that their memory does not grow with the model, and write a file whole or not
at all. docs/reference/patch-files.md describes the files.
"""

import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from deltawire import _core, arguments, arrays
from deltawire._core import PatchFileInfo, PatchFileTensor, PatchInfo
from deltawire.errors import DeltawireError, invalid, wrong_dtype

__all__ = [
    "PatchFileInfo",
    "PatchFileTensor",
    "PatchInfo",
    "apply",
    "apply_file",
    "digest",
    "inspect",
    "inspect_file",
    "make",
    "make_file",
    "merge_files",
    "verify",
    "verify_file",
]

Path = str | os.PathLike[str]

# By the names of NumPy, ml_dtypes and PyTorch.
_TYPES = {
    **dict.fromkeys(("float32", "float16", "bfloat16"), ""),
    **dict.fromkeys(("float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz"), "float8_e4m3"),
    **dict.fromkeys(("float8_e5m2", "float8_e5m2fnuz"), "float8_e5m2"),
    **dict.fromkeys(("bool", "int8", "uint8"), "int8"),
    # Of these the bytes alone are known.
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn_x2", "float4_e2m1fn"), "int8"),
    **dict.fromkeys(("float6_e2m3fn", "float6_e3m2fn"), "int8"),
    **dict.fromkeys(("int16", "uint16"), "int16"),
    **dict.fromkeys(("int32", "uint32", "int64", "uint64", "float64", "complex64"), "int32"),
}


def _type_of(name: str, array) -> str:
    """The core's name for the type of an array's elements."""
    if not hasattr(array, "dtype"):
        raise _neither(name, array)
    called = str(array.dtype).removeprefix("torch.")
    if called not in _TYPES:
        raise wrong_dtype(f"'{name}' is {called}: patches don't know that dtype")
    return _TYPES[called] or called


def _neither(name: str, array) -> DeltawireError:
    return wrong_dtype(
        f"'{name}' is a {type(array).__name__}, neither a NumPy array nor a PyTorch tensor"
    )


def _bytes_of(name: str, array) -> np.ndarray:
    """The bytes of an array, the same memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        arrays.check_dense(name, array)
        if array.device.type != "cpu" or not array.is_contiguous():
            raise invalid(f"'{name}' must be contiguous and on the CPU")
        return array.detach().reshape(-1).view(torch.uint8).numpy()
    if not isinstance(array, np.ndarray):
        raise _neither(name, array)
    if not array.flags.c_contiguous or not array.dtype.isnative:
        raise invalid(f"'{name}' must be C-contiguous, in the machine's byte order")
    return array.reshape(-1).view(np.uint8)


def make(old: Any, new: Any) -> bytes:
    """The patch that makes `new` of `old`.

    Raises:
        DTypeError: a dtype that patches don't know.
        InvalidArgumentError: two dtypes or shapes, or an array that isn't contiguous.
    """
    kind = _type_of("old", old)
    _type_of("new", new)
    if str(old.dtype) != str(new.dtype) or tuple(old.shape) != tuple(new.shape):
        raise invalid(
            f"a patch is between tensors of one dtype and shape: old is {old.dtype} "
            f"{tuple(old.shape)}, new is {new.dtype} {tuple(new.shape)}"
        )
    return _core.make_patch(_bytes_of("old", old), _bytes_of("new", new), kind)


def apply(patch: bytes, old: Any, out: Any = None) -> None:
    """Writes the new weights to `out`, or over the old ones if that is None.

    In place, the whole patch is checked before the first write: after an error the weights are as
    they were. After an error `out` may hold anything.

    Raises:
        DeltawireError: code "Mismatch" if the patch was not made from these weights, "Truncated",
            "Corrupt", "UnsupportedVersion" or "Limit" if it can't be read.
        InvalidArgumentError: `out` has another dtype or number of elements, can't be written, or
            overlaps `old`.
    """
    kind = _type_of("old", old)
    target = old if out is None else out
    _type_of("out", target)
    if str(target.dtype) != str(old.dtype):
        raise invalid(f"'out' is {target.dtype}, the weights {old.dtype}")
    written = _bytes_of("out", target)
    if not written.flags.writeable:
        raise invalid("the weights can't be written: give 'out'")
    _core.apply_patch(_patch(patch), _bytes_of("old", old), kind, written)


def verify(patch: bytes, old: Any) -> None:
    """All checks of `apply`, the new weights' digest included. Raises what it would raise."""
    _core.verify_patch(_patch(patch), _bytes_of("old", old), _type_of("old", old))


def inspect(patch: bytes) -> PatchInfo:
    """What a patch says about itself.

    Raises:
        DeltawireError: code "Truncated", "Corrupt", "UnsupportedVersion" or "Limit".
    """
    return _core.inspect_patch(_patch(patch))


def digest(weights: Any) -> int:
    """The 64 bits by which a patch recognizes its weights (`PatchInfo.old_digest`)."""
    return _core.weights_digest(_bytes_of("weights", weights), _type_of("weights", weights))


def make_file(
    old: Path,
    new: Path,
    patch: Path,
    *,
    replace: bool = False,
    from_version: str = "",
    to_version: str = "",
) -> None:
    """Writes the patch file that makes the model in `new` of the one in `old`.

    Tensors may come, go, and take another dtype or shape. The file also has the names of the two
    versions, if given. An existing file is refused unless `replace` is true.

    Raises:
        DeltawireError: code "Io" if a file can't be read or written, "Truncated", "Corrupt" or
            "Limit" if one is no whole safetensors file; the message names file and tensor.
        InvalidArgumentError: `patch` is one of the models.
    """
    _core.make_patch_file(
        _text_of(old), _text_of(new), _text_of(patch), replace, from_version, to_version
    )


def apply_file(old: Path, patch: Path, new: Path, *, replace: bool = False) -> None:
    """Writes the file that the patch was made for, byte for byte.

    Everything is checked before `new` is there: the old model, the patch and the new file. Only the
    new file's header is not if `PatchFileInfo.file_digest` is None: in patches of deltawire 0.1 and
    of stores.

    Raises:
        DeltawireError: code "Mismatch" if the patch was not made from the model in `old`, be it
            that another program has saved it again and the new file would differ in its header;
            otherwise as for `make_file`.
    """
    _core.apply_patch_file(_text_of(old), _text_of(patch), _text_of(new), replace)


def verify_file(old: Path, patch: Path) -> None:
    """All checks of `apply_file`; writes nothing. Raises what it would raise."""
    _core.verify_patch_file(_text_of(old), _text_of(patch))


def merge_files(
    old: Path,
    patches: Iterable[Path],
    merged: Path,
    *,
    replace: bool = False,
    from_version: str = "",
    to_version: str = "",
) -> None:
    """Merges patch files, to be applied in turn to the model in `old`, into one with the same
    result.

    It is the file that `make_file` would write between the first and the last model. Without names
    it takes over those of the first and the last patch.

    Raises:
        DeltawireError: code "Mismatch" if the patches are not for `old` and for each other's
            models; otherwise as for `make_file`.
        InvalidArgumentError: one path in place of several.
    """
    if isinstance(patches, str | bytes | os.PathLike):
        raise invalid(f"patches={patches!r} is one path: give a list of paths")
    paths = [_text_of(patch) for patch in patches]
    _core.merge_patch_files(
        _text_of(old), paths, _text_of(merged), replace, from_version, to_version
    )


def inspect_file(patch: Path) -> PatchFileInfo:
    """What a patch file says about itself, all checksums verified; no model is needed.

    Raises:
        DeltawireError: as for `make_file`.
    """
    return _core.inspect_patch_file(_text_of(patch))


def _text_of(path: Path) -> str:
    """The path for the core, which takes UTF-8 up to the first NUL."""
    text = os.fsdecode(path)
    arguments.check_unicode(text)
    if "\0" in text:
        raise invalid(f"{text!r} is no name of a file: it has a NUL")
    return text


def _patch(patch) -> np.ndarray:
    return np.frombuffer(patch, np.uint8)
