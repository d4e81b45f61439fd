"""The decoder of patches that was written from their page, on the golden patches."""

import random
from pathlib import Path

import pytest
import spec_patch
from spec_hashes import DecodeError

PATCHES = Path(__file__).resolve().parents[1] / "golden" / "patches"
NAMES = sorted(path.stem for path in PATCHES.glob("*.patch"))
TYPE_AT = 10


def read(name: str) -> tuple[bytes, bytes, bytes]:
    """A golden patch, its old weights and its new ones."""
    return tuple((PATCHES / f"{name}.{end}").read_bytes() for end in ("patch", "old", "new"))


def test_every_type_and_form_is_there() -> None:
    """All types; and all forms of a chunk, whose first two bits follow a table of one number."""
    patches = [read(name)[0] for name in NAMES]
    assert {patch[TYPE_AT] for patch in patches} == set(spec_patch.TYPES)
    forms = set()
    for patch in patches:
        table = patch[spec_patch.HEAD_BYTES :][: int.from_bytes(patch[12:16], "little")]
        payload = patch[spec_patch.HEAD_BYTES + len(table) :]
        elements = int.from_bytes(patch[16:24], "little")
        chunks = -(-elements >> patch[11]) if elements else 0
        forms |= {code[0] & 3 for code in spec_patch.codes(table, payload, chunks).values()}
    assert forms == {spec_patch.PLAIN, spec_patch.BY_CLASS, spec_patch.FULL}


@pytest.mark.parametrize("name", NAMES)
def test_the_new_weights(name: str) -> None:
    """They follow from the page, bit for bit."""
    patch, old, new = read(name)
    assert spec_patch.apply(patch, old, patch[TYPE_AT]) == new


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_seen(name: str) -> None:
    """A flipped bit or a cut anywhere, or other weights."""
    patch, old, _ = read(name)
    places = random.Random(1)
    for _ in range(20):
        at = places.randrange(len(patch))
        broken = patch[:at] + bytes([patch[at] ^ 1 << places.randrange(8)]) + patch[at + 1 :]
        with pytest.raises(DecodeError):
            spec_patch.apply(broken, old, patch[TYPE_AT])
        with pytest.raises(DecodeError):
            spec_patch.apply(patch[:at], old, patch[TYPE_AT])
    if old:
        with pytest.raises(DecodeError) as refused:
            spec_patch.apply(patch, bytes([old[0] ^ 1]) + old[1:], patch[TYPE_AT])
        assert refused.value.kind == "Mismatch"
