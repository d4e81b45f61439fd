"""Safetensors files, patch files and digests, as their pages say."""

import json

import numpy as np
import pytest
import spec_hashes
from deltawire import DeltawireError, weight_store
from deltawire.weights.store.stored_model import (
    DTYPES,
    TensorDigest,
    digest_of,
    read_model,
    read_patches,
)
from refusals import raised

from tests.weight_store.store_models import HEAD, metadata_of, publish_versions, small_model


def test_the_digest_of_a_model() -> None:
    """By hand: names in the order of their bytes."""
    tensors = {
        "b": TensorDigest("BF16", (2, 3), 0x0102030405060708),
        "a": TensorDigest("F32", (), 1),
    }
    text = (
        b"\1\0\0\0a" b"\3\0\0\0F32" b"\0\0\0\0" b"\1\0\0\0\0\0\0\0"
        b"\1\0\0\0b" b"\4\0\0\0BF16" b"\2\0\0\0" b"\2\0\0\0\0\0\0\0" b"\3\0\0\0\0\0\0\0"
        b"\x08\7\6\5\4\3\2\1"
    )  # fmt: skip
    assert digest_of(tensors) == f"{spec_hashes.xxh64(text):016x}"


def test_files_of_a_store(tmp_path) -> None:
    """Aligned tensors, metadata for other programs, the patches' digests and versions."""
    store = weight_store.Store(tmp_path)
    publish_versions(store, [10, 11])
    first, second = store.versions()
    snapshot = np.fromfile(tmp_path / "files" / first.files[0].name, np.uint8)
    entries = read_model("it", snapshot)
    assert metadata_of(snapshot) == {"format": "pt", "head": "embedding"}
    widths = [DTYPES[entry.dtype].bytes for entry in entries.values()]
    assert widths == sorted(widths, reverse=True) and "head" not in entries
    header_bytes = int.from_bytes(snapshot[:8].tobytes(), "little")
    assert header_bytes % 8 == 0
    patch = np.fromfile(tmp_path / "files" / second.files[0].name, np.uint8)
    assert metadata_of(patch) == {
        "format": "deltawire-patch",
        "format_version": "1",
        "old": first.digest,
        "new": second.digest,
        "from": "10",
        "to": "11",
    }
    read = read_patches("it", patch)
    assert read.patches.keys() == entries.keys() and not read.full


def test_the_header_of_a_version_with_other_tensors(tmp_path) -> None:
    """Is in its patches, single and merged: who applies them gets the file of a snapshot."""
    store = weight_store.Store(tmp_path, merged=(2,), snapshot_every=1)
    model = small_model()
    for number in range(3):
        store.publish(model, number)
        model["head"] = model["embedding"] if number else model["embedding"].clone()
    files = {
        (file.base, version.version): np.fromfile(tmp_path / "files" / file.name, np.uint8)
        for version in store.versions()
        for file in version.files
    }
    for (base, number), data in files.items():
        entries = read_model("it", data)
        if base is not None:
            snapshot = files[None, number]
            length = int.from_bytes(snapshot[:8].tobytes(), "little")
            same = (base, number) == (0, 2)
            assert ("header" in entries) != same
            assert same or entries["header"].data.tobytes() == snapshot[8 : 8 + length].tobytes()


def of(fields: object, data: bytes = b"", length: int | None = None) -> np.ndarray:
    header = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    length = len(header) if length is None else length
    return np.frombuffer(length.to_bytes(8, "little") + header + data, np.uint8)


def tensor(begin: int, end: int, shape=None, dtype: str = "U8") -> dict:
    shape = [end - begin] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (np.zeros(7, np.uint8), "Truncated"),
        (of(b"{}", length=3), "Truncated"),
        (of([]), "Corrupt"),
        (of({"a": tensor(0, 2)}, b"1"), "Truncated"),
        (of({"a": tensor(0, 1, [1] * 65)}, b"1"), "Limit"),
        (of({"a": tensor(0, 2, dtype="F4")}, b"12"), "UnsupportedDType"),
    ],
)
def test_files_that_break_a_rule(data: np.ndarray, code: str) -> None:
    """src/model has all rules; they arrive with their codes."""
    assert raised(DeltawireError, read_model, "file\n", data).code == code


@pytest.mark.parametrize(
    ("metadata", "names", "code"),
    [
        ({}, [], "Corrupt"),
        (HEAD | {"format_version": "3"}, [], "UnsupportedVersion"),
        (HEAD, ["a"], "Corrupt"),
    ],
)
def test_patch_files_that_break_a_rule(metadata: dict, names: list[str], code: str) -> None:
    fields = {name: tensor(at, at + 1) for at, name in enumerate(names)}
    with pytest.raises(DeltawireError) as refused:
        read_patches("it", of({"__metadata__": metadata, **fields}, bytes(len(names))))
    assert refused.value.code == code


def test_names_are_not_printed_raw() -> None:
    """A name from a file can't bring its own lines into a message."""
    refused = raised(DeltawireError, read_model, "it", of({"a\n\x1b[2J": 1}))
    assert "\n" not in str(refused) and "\x1b" not in str(refused)
