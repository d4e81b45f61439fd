"""Models as safetensors and patch files have them, in memory. The core reads and writes them."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from deltawire import _core
from deltawire.errors import wrong_dtype

# By the name in safetensors. In patches eight bytes are two elements.
DTYPES = {dtype.name: dtype for dtype in _core.model_dtypes()}


class Entry(NamedTuple):
    """A tensor of a file: dtype as safetensors spells it, shape, and bytes in the file."""

    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray

    def read(self) -> np.ndarray:
        """Its bytes, as those of a model's tensor."""
        return self.data


class TensorDigest(NamedTuple):
    """What a model's digest takes of a tensor.

    Attributes:
        dtype: as safetensors spells it, "BF16".
        shape: its dimensions.
        digest: `deltawire.patches.digest` of its weights.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: int


class PatchFile(NamedTuple):
    """A patch file that was read.

    Attributes:
        patches: by the tensor's name, the bytes of each patch.
        full: tensors that it holds as they are.
        leaves_out: whether other tensors of the new model are those of the old one.
        names: of the new model's tensors, if they may be others than the old one's.
    """

    patches: dict[str, np.ndarray]
    full: dict[str, Entry]
    leaves_out: bool
    names: list[str]

    def left_out(self, of_old: Iterable[str]) -> list[str]:
        """The tensors that it takes over; `of_old` are the old model's."""
        if not self.leaves_out:
            return []
        names = self.names or of_old
        return [name for name in names if name not in self.patches and name not in self.full]


class NewPatches(NamedTuple):
    """Patches between two models, before they are a file.

    Attributes:
        patches: by the tensor's name.
        full: tensors without a patch.
        digests: of the new model's tensors.
    """

    patches: dict[str, np.ndarray]
    full: dict[str, Entry]
    digests: dict[str, TensorDigest]


def tensor_bytes(dtype: str, shape: Iterable[int]) -> int:
    """Bytes of a tensor of one of DTYPES."""
    return DTYPES[dtype].bytes * math.prod(shape)


def digest_of(tensors: Mapping[str, TensorDigest]) -> str:
    """The model's digest, 16 hexadecimal digits."""
    return _core.model_digest(_described(tensors), [each.digest for each in tensors.values()])


def in_file_order(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[str]:
    """Names in the order in which a snapshot has their data: widest dtype first, so that all are
    aligned."""
    return sorted(tensors, key=lambda name: (-DTYPES[tensors[name][0]].bytes, name.encode()))


def front_of(tensors: Mapping[str, tuple], metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file whose tensors, each a dtype and a shape, have this order."""
    return _core.model_front(_described(tensors), list(metadata.items()))


def read_model(where: str, data: np.ndarray) -> dict[str, Entry]:
    """A file's tensors in the order of their data; `data` is the whole file as bytes, and `where`
    names it in errors.

    Raises:
        DeltawireError: code "Truncated", "Corrupt" or "Limit"; DTypeError: a dtype that patches
            don't know.
    """
    return {each.name: _entry(where, each, data) for each in _core.read_model(where, data)}


def read_patches(where: str, data: np.ndarray) -> PatchFile:
    """A patch file; `data` is the whole file, `where` names it in errors.

    Raises:
        DeltawireError: code "Truncated", "Corrupt", "UnsupportedVersion" or "Limit"; DTypeError, as
            `read_model`.
    """
    file = _core.read_patches(where, data)
    read = PatchFile({}, {}, file.leaves_out_unchanged, file.names)
    for each in file.tensors:
        if each.is_patch:
            read.patches[each.name] = data[each.begin : each.begin + each.bytes]
        else:
            read.full[each.name] = _entry(where, each, data)
    return read


def make_patches(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> NewPatches:
    """Patches from one model to another; both are read, tensor by tensor."""
    made = NewPatches({}, {}, {})
    for name, (dtype, shape, data) in new.items():
        kind = DTYPES[dtype].kind
        before = old.get(name)
        if before is None or before[:2] != (dtype, shape):
            made.full[name] = Entry(dtype, shape, data)
            digest = _core.weights_digest(data, kind)
        else:
            patch = np.frombuffer(_core.make_patch(before.data, data, kind), np.uint8)
            made.patches[name] = patch
            digest = _core.inspect_patch(patch).new_digest
        made.digests[name] = TensorDigest(dtype, shape, digest)
    return made


def patch_file_of(
    made: NewPatches, digests: tuple[str, str], versions: tuple[int, int], header: bytes
) -> list:
    """A patch file's bytes, as buffers to be written one after another.

    Args:
        made: the patches.
        digests: of the old and the new model.
        versions: their numbers.
        header: of the new model's file, if that differs from the old one's; else empty.
    """
    names = in_file_order(made.digests)
    tensors = _described({name: made.digests[name] for name in names})
    patches = [made.patches.get(name) for name in names]
    front, order = _core.begin_patches(tensors, patches, digests, tuple(map(str, versions)), header)
    parts = (names[number] for number in order)
    data = [made.full[name].data if name in made.full else made.patches[name] for name in parts]
    return [front, *data, header]


def _described(tensors: Mapping[str, tuple]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(name, each[0], each[1]) for name, each in tensors.items()]


def _entry(where: str, each: _core.StoredTensor, data: np.ndarray) -> Entry:
    if each.dtype not in DTYPES:
        raise wrong_dtype(
            f"{where}: '{each.name[:200]}' is {each.dtype[:200]}, which patches don't know"
        )
    return Entry(each.dtype, each.shape, data[each.begin : each.begin + each.bytes])
