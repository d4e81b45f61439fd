"""Patch files: what makes one model of another, itself a safetensors file.

Of each tensor of the new model it has a patch (`patch:NAME`), or the tensor itself (`full:NAME`) if
the old model has none of that name, dtype and shape. Where models have very many tensors, those
that don't change have no entry.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from deltawire import _core
from deltawire.errors import make_error
from deltawire.weight_store import safetensors_format
from deltawire.weight_store.model_digest import TensorDigest
from deltawire.weight_store.safetensors_format import DTYPES, Entry

FORMAT = "deltawire-patch"
_FORMAT_VERSION, _LEAVES_OUT = "1", "2"
_MOST_UNCHANGED = 1000  # entries; between models with more tensors in common these are left out
_PATCH = "patch:"
_FULL = "full:"
_HEADER = "header"


class PatchFile(NamedTuple):
    """A patch file that was read.

    Attributes:
        old: digest of the model that it was made from.
        new: digest of the model that it makes.
        patches: by the tensor's name, the bytes of each patch.
        full: tensors that it holds as they are.
        leaves_out: whether other tensors of the new model are those of the old one.
        names: of the new model's tensors, if they may be others than the old one's.
    """

    old: str
    new: str
    patches: dict[str, np.ndarray]
    full: dict[str, Entry]
    leaves_out: bool
    names: frozenset[str] | None

    def left_out(self, of_old: Iterable[str]) -> list[str]:
        """The tensors that it takes over; `of_old` are the old model's."""
        if not self.leaves_out:
            return []
        names = of_old if self.names is None else self.names
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


def parts_of(
    made: NewPatches, digests: tuple[str, str], versions: tuple[int, int], header: bytes | None
) -> list:
    """The file's bytes, as buffers to be written one after another.

    Args:
        made: the patches.
        digests: of the old and the new model.
        versions: their numbers.
        header: of the new model's file, if that differs from the old one's.
    """
    unchanged: set[str] = set()
    if len(made.patches) > _MOST_UNCHANGED:
        unchanged = {name for name, patch in made.patches.items() if _changes_nothing(patch)}
    metadata = {
        "format": FORMAT,
        "format_version": _LEAVES_OUT if unchanged else _FORMAT_VERSION,
        "old": digests[0],
        "new": digests[1],
        "from": str(versions[0]),
        "to": str(versions[1]),
    }
    entries: dict[str, Entry] = {}
    shapes = {name: (dtype, shape) for name, (dtype, shape, _) in made.digests.items()}
    for name in safetensors_format.in_file_order(shapes):
        if name in made.full:
            entries[_FULL + name] = made.full[name]
        elif name not in unchanged:
            entries[_PATCH + name] = _bytes_entry(made.patches[name])
    if header is not None:
        entries[_HEADER] = _bytes_entry(np.frombuffer(header, np.uint8))
    described = {name: entry[:2] for name, entry in entries.items()}
    first = safetensors_format.header_of(described, metadata)
    return [first, *(entry.data for entry in entries.values())]


def _changes_nothing(patch: np.ndarray) -> bool:
    said = _core.inspect_patch(patch)
    return said.old_digest == said.new_digest


def _bytes_entry(data: np.ndarray) -> Entry:
    return Entry("U8", (len(data),), data)


def read(where: str, data: np.ndarray) -> PatchFile:
    """A patch file; `data` is the whole file, `where` names it in errors.

    Raises:
        DeltawireError: code "Truncated", "Corrupt", "UnsupportedVersion" or "Limit".
    """
    metadata, entries = safetensors_format.parse(where, data)
    if metadata.get("format") != FORMAT:
        raise make_error("Corrupt", f"{where} is not a patch file")
    version = metadata.get("format_version")
    if version not in (_FORMAT_VERSION, _LEAVES_OUT):
        raise make_error("UnsupportedVersion", f"{where} has a newer format: update deltawire")
    names = None
    if version == _LEAVES_OUT and _HEADER in entries:
        names = safetensors_format.names_in(where, entries[_HEADER].data)
    digests = metadata.get("old", ""), metadata.get("new", "")
    found = PatchFile(*digests, {}, {}, version == _LEAVES_OUT, names)
    for name, entry in entries.items():
        if name.startswith(_FULL):
            found.full[name.removeprefix(_FULL)] = entry
        elif name.startswith(_PATCH) and entry.dtype == "U8":
            found.patches[name.removeprefix(_PATCH)] = entry.data
        elif name != _HEADER:
            raise make_error("Corrupt", f"{where} has an entry that is no part of a patch")
    if found.full.keys() & found.patches.keys():
        raise make_error("Corrupt", f"{where} has a tensor twice")
    return found
