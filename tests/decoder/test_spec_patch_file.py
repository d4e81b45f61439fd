"""The reader of patch files that was written from their page, on the golden ones."""

import json
import random
import struct
from pathlib import Path

import pytest
import spec_patch_file
from deltawire import patches as deltawire_patches
from refusals import raised
from spec_hashes import DecodeError

FILES = Path(__file__).resolve().parents[1] / "golden" / "patch_files"
NAMES = sorted(path.stem for path in FILES.glob("*.patch"))


def files(name: str) -> tuple[bytes, bytes, bytes]:
    """A golden patch file, its old model and its new one."""
    return tuple((FILES / f"{name}.{end}").read_bytes() for end in ("patch", "old", "new"))


def test_every_dtype_and_entry_is_there() -> None:
    """Patches of all dtypes; tensors in full; a header, and none."""
    patches = [spec_patch_file.read(files(name)[0]) for name in NAMES]
    olds = [spec_patch_file.read(files(name)[1]) for name in NAMES]
    patched = {
        old.tensors[name.removeprefix("patch:")].dtype
        for patch, old in zip(patches, olds, strict=True)
        for name in patch.tensors
        if name.startswith("patch:")
    }
    assert patched == spec_patch_file.DTYPES.keys() | {"F4", "F6_E2M3", "F1_E0M0"}
    assert {"header" in patch.tensors for patch in patches} == {True, False}
    assert any(name.startswith("full:") for patch in patches for name in patch.tensors)
    assert patches[0].metadata["from"] == "step 1"


@pytest.mark.parametrize("name", NAMES)
def test_the_new_file(name: str) -> None:
    """It follows from the page, bit for bit."""
    patch, old, new = files(name)
    assert spec_patch_file.apply(patch, old) == new


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_seen(name: str) -> None:
    """A flipped bit or a cut anywhere; what is still applied makes the right weights, and the right
    file if the patch has its digest."""
    patch, old, new = files(name)
    places = random.Random(1)
    for _ in range(40):
        at = places.randrange(len(patch))
        with pytest.raises(DecodeError):
            spec_patch_file.apply(patch[:at], old)
        broken = patch[:at] + bytes([patch[at] ^ 1 << places.randrange(8)]) + patch[at + 1 :]
        try:
            made = spec_patch_file.apply(broken, old)
        except DecodeError:
            continue
        assert made == new or name != "file_digest"
        made, wanted = (spec_patch_file.read(each).tensors for each in (made, new))
        assert spec_patch_file.model_digest(made) == spec_patch_file.model_digest(wanted)


def model_of(count: int, changed: set[int], more: dict[str, str]) -> bytes:
    """A model of tensors of a byte."""
    names = [f"expert.{number}" for number in range(count)]
    entries = {
        name: {"dtype": "U8", "shape": [1], "data_offsets": [at, at + 1]}
        for at, name in enumerate(names)
    }
    header = json.dumps({**entries, "__metadata__": more}).encode()
    data = bytes(at % 251 + (at in changed) for at in range(count))
    return struct.pack("<Q", len(header)) + header + data


@pytest.mark.parametrize("more", [{}, {"format": "pt"}])
def test_what_does_not_change_is_left_out(tmp_path, more: dict[str, str]) -> None:
    """Where models have more than 1,000 tensors in common; with a header of their own, or not."""
    for count in (1000, 1001):
        old, new = (model_of(count, *each) for each in ((set(), {}), ({3, 999}, more)))
        paths = [tmp_path / f"{count}{name}" for name in ("old", "new", "patch")]
        paths[0].write_bytes(old)
        paths[1].write_bytes(new)
        deltawire_patches.make_file(*paths)
        patch = paths[2].read_bytes()
        read = spec_patch_file.read(patch)
        assert read.metadata["format_version"] == ("1" if count == 1000 else "2")
        entries = len(read.tensors.keys() - {"header"})
        assert entries == (1000 if count == 1000 else 2)
        assert spec_patch_file.apply(patch, old) == new
        with pytest.raises(DecodeError, match="Mismatch"):
            spec_patch_file.apply(patch, model_of(count, {500}, {}))


def rewritten(file: bytes, change: dict) -> bytes:
    """The file, with other entries in its header."""
    read = spec_patch_file.read(file)
    header = json.loads(read.header) | change
    text = json.dumps({name: entry for name, entry in header.items() if entry}).encode()
    return struct.pack("<Q", len(text)) + text + file[8 + len(read.header) :]


@pytest.mark.parametrize(
    "change,kind",
    [
        ({"more": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}, "Corrupt"),
        ({"full:n": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}, "Corrupt"),
        ({"full:n": {"dtype": 4, "shape": [0], "data_offsets": [0, 0]}}, "Corrupt"),
        ({"full:n": {"dtype": "U8", "shape": [0] * 65, "data_offsets": [0, 0]}}, "Limit"),
        ({"full:n": {"dtype": "U8", "shape": [0], "data_offsets": [1, 1]}}, "Corrupt"),
        ({"full:n": {"dtype": "U8", "shape": [0]}}, "Corrupt"),
        ({"__metadata__": {"format": "pt"}}, "Corrupt"),
        (
            {"__metadata__": {"format": "deltawire-patch", "format_version": "3"}},
            "UnsupportedVersion",
        ),
    ],
)
def test_what_the_page_refuses(change: dict, kind: str) -> None:
    """Each with the error that the page names."""
    patch, old, _ = files("same_header")
    assert raised(DecodeError, spec_patch_file.apply, rewritten(patch, change), old).kind == kind


def test_another_old_model_is_a_mismatch() -> None:
    """By a weight that the patch uses, or by a tensor that it doesn't use."""
    patch, old, _ = files("other_header")
    for name in ("w", "gone"):
        at = old.index(spec_patch_file.read(old).tensors[name].data)
        other = old[:at] + bytes([old[at] ^ 1]) + old[at + 1 :]
        assert raised(DecodeError, spec_patch_file.apply, patch, other).kind == "Mismatch"
