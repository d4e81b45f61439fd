"""Models of very many small tensors: a patch has entries for those that change alone."""

import cli_program
import numpy as np
import pytest
from deltawire import DeltawireError, patches, weight_store
from deltawire.weights.store.stored_model import front_of, read_model, read_patches
from refusals import raised

from tests.weight_store.store_models import HEAD, files_of, metadata_of

MANY = 1100


def model_of(count: int, elements: int = 4) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    return {f"experts.{i:04}.scale": draw.random(elements, np.float32) for i in range(count)}


def patch_of(place, version) -> tuple[dict[str, str], dict]:
    (found,) = (file for file in version.files if file.base is not None)
    data = np.fromfile(place / "files" / found.name, np.uint8)
    return metadata_of(data), read_model("it", data)


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(each, other[name]) for name, each in one.items()
    )


def versions_of(place, count: int = MANY, elements: int = 4):
    """A store of four versions: weights change, then tensors come and go."""
    store = weight_store.Store(place, merged=(), snapshot_every=100)
    model = model_of(count, elements)
    store.publish(model, 0)
    seen = [{name: each.copy() for name, each in model.items()}]
    for number in range(1, 4):
        model[f"experts.{number:04}.scale"][1] += 1
        if number == 3:
            del model["experts.0007.scale"]
            model["new"] = np.ones(3, np.float32)
        store.publish(model, number)
        seen.append({name: each.copy() for name, each in model.items()})
    return store, seen


def test_what_does_not_change_is_left_out(tmp_path) -> None:
    """On every way to a version."""
    store, seen = versions_of(tmp_path)
    for version in store.versions()[1:]:
        metadata, entries = patch_of(tmp_path, version)
        assert metadata["format_version"] == "2"
        expected = {f"patch:experts.{version.version:04}.scale"}
        assert entries.keys() == expected | (
            {"header", "full:new"} if version.version == 3 else set()
        )
    for number, expected in enumerate(seen):
        assert same(store.load(number, framework="numpy"), expected)
    for start in (0, 1, None):
        weights = {name: each.copy() for name, each in seen[start or 0].items()}
        before = store.bytes_read
        assert store.update(weights, from_version=start, to_version=2) == 2
        assert same(weights, seen[2]) and store.bytes_read - before < 4000
    weights = {name: each.copy() for name, each in seen[2].items()}
    refused = raised(DeltawireError, store.update, weights, from_version=2, match="has none")
    assert refused.code == "Mismatch" and same(weights, seen[2])


@pytest.mark.parametrize("goal", [1, 2])
def test_other_weights_are_refused_also_where_no_patch_looks_at_them(tmp_path, goal: int) -> None:
    store, seen = versions_of(tmp_path)
    weights = {name: each.copy() for name, each in seen[0].items()}
    weights["experts.0900.scale"][2] += 1
    before = {name: each.copy() for name, each in weights.items()}
    with pytest.raises(DeltawireError, match="without a patch differs") as refused:
        store.update(weights, from_version=0, to_version=goal)
    assert refused.value.code == "Mismatch" and same(weights, before)
    lacking = {name: each for name, each in seen[0].items() if "0900" not in name}
    refused = raised(DeltawireError, store.update, lacking, from_version=0, to_version=goal)
    assert refused.code == "Mismatch"


def test_fewer_tensors_have_the_first_format(tmp_path) -> None:
    """So that older readers read the patches of ordinary models."""
    store, seen = versions_of(tmp_path, 1000, 200)
    for version in store.versions()[1:3]:
        metadata, entries = patch_of(tmp_path, version)
        assert metadata["format_version"] == "1" and len(entries) == 1000
    assert same(store.load(3, framework="numpy"), seen[3])


def test_the_program_makes_and_reads_such_files(tmp_path) -> None:
    """A store's patches, and its own, which are no larger; merged, too."""
    store = weight_store.Store(tmp_path, merged=(2,), snapshot_every=1)
    model = model_of(MANY)
    for number in range(3):
        store.publish(model, number)
        model[f"experts.{number:04}.scale"][1] += 1
    files = files_of(store, tmp_path)
    for base, number in ((0, 1), (1, 2), (0, 2)):
        old, new = files[None, base], files[None, number]
        cli_program.must_run("patch", "apply", old, files[base, number], tmp_path / "applied")
        assert (tmp_path / "applied").read_bytes() == new.read_bytes()
        (tmp_path / "applied").unlink()
        own = tmp_path / f"{base}-{number}"
        cli_program.must_run("patch", "make", old, new, own, "--from", base, "--to", number)
        assert own.stat().st_size <= files[base, number].stat().st_size + 64
        assert own.stat().st_size < new.stat().st_size / 50
        assert patches.inspect_file(own).leaves_out_unchanged
        assert len(patches.inspect_file(own).tensors) == number - base
    merged = tmp_path / "merged"
    steps = [tmp_path / "0-1", tmp_path / "1-2"]
    patches.merge_files(files[None, 0], steps, merged)
    assert merged.read_bytes() == (tmp_path / "0-2").read_bytes()
    said = cli_program.must_run("patch", "inspect", merged).decode()
    assert "without the tensors that don't change" in said


def test_a_file_that_takes_over_what_is_not_there() -> None:
    names = ["a", "b"]
    header = front_of(dict.fromkeys(names, ("U8", (1,))), {})[8:]
    entries = {"header": ("U8", (len(header),))}
    data = front_of(entries, HEAD | {"format_version": "2"}) + header
    read = read_patches("it", np.frombuffer(data, np.uint8))
    assert sorted(read.left_out(["a", "c"])) == names
    broken = data.replace(b'"a"', b',a"')
    with pytest.raises(DeltawireError, match="no JSON") as refused:
        read_patches("it", np.frombuffer(broken, np.uint8))
    assert refused.value.code == "Corrupt"
