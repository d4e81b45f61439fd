"""Versions go into a store and come out of it, bit for bit."""

import contextlib
import os
import signal

import numpy as np
import pytest
import torch
from deltawire import DeltawireError, InvalidArgumentError, weight_store
from deltawire.weights.store.model_tensors import ModelTensor

from tests.weight_store.store_models import (
    bits_of,
    copy_of,
    publish_versions,
    small_model,
    step,
    stored_names,
)


def test_every_version_comes_back(place: str) -> None:
    """Loaded, and as an update of every earlier one."""
    with weight_store.Store(place, merged=(3,), snapshot_every=5) as store:
        assert store.latest() is None
        bits = publish_versions(store, range(10, 80, 10))
    reader = weight_store.Store(place)
    assert reader.latest() == 70
    assert [each.version for each in reader.versions()] == list(bits)
    for number in bits:
        loaded = reader.load(number)
        assert bits_of(loaded) == bits[number]
        assert loaded["embedding"] is loaded["head"]
        for later in (each for each in bits if each >= number):
            weights = reader.load(number)
            assert reader.update(weights, from_version=number, to_version=later) == later
            assert bits_of(weights) == bits[later]
    assert reader.update(weights, from_version=70) == 70
    assert reader.update(weights, from_version=70, to_version=20) == 20
    assert bits_of(weights) == bits[20]


def test_a_hundred_versions(tmp_path) -> None:
    """In a chain and by merged patches, the same bits; the latter in half the bytes."""
    taken = {}
    for merged in ((), (8, 64)):
        store = weight_store.Store(tmp_path / str(len(merged)), merged=merged, snapshot_every=1000)
        bits = publish_versions(store, range(100))
        weights = store.load(0)
        before = store.bytes_read
        store.update(weights, from_version=0)
        manifest = store._storage.read("manifest.json", 1 << 20)
        taken[merged] = store.bytes_read - before - len(manifest)
        assert bits_of(weights) == bits[99]
        assert bits_of(store.load()) == bits[99]
    assert taken[8, 64] < taken[()] / 2


def test_the_files_of_a_version(tmp_path) -> None:
    """Patches from the last version, merged ones when they are due, and snapshots."""
    store = weight_store.Store(tmp_path, merged=(2, 4), snapshot_every=3)
    publish_versions(store, range(9))
    bases = [[file.base for file in version.files] for version in store.versions()]
    assert bases == [[None], [0], [1, 0], [2, None], [3, 2, 0], [4], [5, 4, None], [6], [7, 6, 4]]
    assert stored_names(str(tmp_path)) == {
        file.name for version in store.versions() for file in version.files
    }


def test_a_snapshot_comes_early_where_patches_are_large(tmp_path) -> None:
    """And where everything changes, it takes the place of the patch."""
    store = weight_store.Store(tmp_path, merged=())
    model = {"w": np.zeros(10_000, np.float32)}
    draw = np.random.default_rng(1)
    store.publish(model, 0)
    for number in range(1, 5):
        model["w"][:4000] = draw.standard_normal(4000)
        store.publish(model, number)
    model["w"][:] = draw.integers(0, 2**32, 10_000, np.uint32).view(np.float32)
    store.publish(model, 5)
    bases = [[file.base for file in each.files] for each in store.versions()]
    assert bases == [[None], [0], [1], [2, None], [3], [None]]
    loaded = store.load(framework="numpy")["w"]
    assert loaded.tobytes() == model["w"].tobytes()


def test_modules_and_ties(place: str) -> None:
    """A module is published and updated in place; a reader may have two copies of a tied tensor."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(50, 8)
            self.head = torch.nn.Linear(8, 50, bias=False)
            self.norm = torch.nn.BatchNorm1d(8)
            self.head.weight = self.embedding.weight

    store = weight_store.Store(place)
    trained = Tied().bfloat16()
    served = Tied().bfloat16()
    store.publish(trained, 1)
    assert served.load_state_dict(store.load()) is not None
    with torch.no_grad():
        trained.head.weight += 1
        trained.norm.running_mean += 1
    version = store.publish(trained, 2)
    assert version.tied == {"head.weight": "embedding.weight"}
    apart = copy_of(store.load(1))
    apart["head.weight"] = apart["head.weight"].clone()
    for model in (served, apart):
        assert store.update(model, from_version=1) == 2
    assert bits_of(served.state_dict()) == bits_of(trained.state_dict()) == bits_of(apart)
    assert served.head.weight is served.embedding.weight


def test_ties_that_change(place: str) -> None:
    """Weights are untied, and tied again: a reader with two copies follows."""
    store = weight_store.Store(place)
    bits = {}
    for number in range(3):
        shared = torch.full((4000,), float(number))
        other = torch.full((4000,), 7.0) if number == 1 else shared
        store.publish({"a": shared, "b": other}, number)
        bits[number] = bits_of({"a": shared, "b": other})
    assert [version.tied for version in store.versions()] == [{"b": "a"}, {}, {"b": "a"}]
    apart = {"a": torch.zeros(4000), "b": torch.zeros(4000)}
    for number in (1, 2):
        assert store.update(apart, from_version=number - 1, to_version=number) == number
        assert bits_of(apart) == bits[number]
    together = store.load(0)
    with pytest.raises(InvalidArgumentError, match="one tensor in the model, but two in version 1"):
        store.update(together, from_version=0, to_version=1)
    assert bits_of(together) == bits[0]


def test_weights_that_are_not_contiguous(tmp_path) -> None:
    """They are written through, not replaced."""
    store = weight_store.Store(tmp_path)
    old = np.arange(600, dtype=np.float32).reshape(20, 30)
    store.publish({"a": old, "b": torch.from_numpy(old.T.copy())}, 1)
    store.publish({"a": old + 1, "b": torch.from_numpy(old.T.copy()) * 2}, 2)
    transposed, striped = np.asfortranarray(old), torch.zeros(30, 40)[:, ::2]
    striped.copy_(torch.from_numpy(old.T.copy()))
    store.update({"a": transposed, "b": striped}, from_version=1)
    assert np.array_equal(transposed, old + 1) and np.array_equal(striped.numpy(), old.T * 2)
    store.update({"a": transposed, "b": striped}, from_version=2, to_version=1)
    assert np.array_equal(transposed, old) and np.array_equal(striped.numpy(), old.T)


def test_every_dtype(place: str) -> None:
    """Each comes back with its name."""
    store = weight_store.Store(place)
    names = [
        *("float32", "float64", "float16", "bfloat16", "complex64", "bool"),
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    ]
    names = [name for name in names if hasattr(torch, name)]  # PyTorch 2.6 lacks the last
    model = {
        name: torch.arange(64, dtype=torch.uint8).view(getattr(torch, name)).reshape(2, -1)
        for name in names
        if name != "bool"
    }
    model["bool"] = torch.tensor([True, False])
    store.publish(model, 1)
    served = store.load()
    for name, each in model.items():
        if name != "bool":
            each.view(torch.uint8)[0, 3] ^= 1
    model["bool"][0] = False
    store.publish(model, 2)
    store.update(served, from_version=1)
    assert bits_of(served) == bits_of(model)
    assert all(served[name].dtype == getattr(torch, name) for name in names)


def test_numpy_without_pytorch_tensors(tmp_path) -> None:
    """NumPy knows what it knows."""
    store = weight_store.Store(tmp_path)
    store.publish({"half": np.ones(5, np.float16), "flags": np.ones(3, bool)}, 1)
    loaded = store.load(framework="numpy")
    assert loaded["half"].dtype == np.float16 and loaded["flags"].dtype == bool
    store.publish({"wide": torch.ones(5).bfloat16()}, 2)
    with pytest.raises(DeltawireError, match="install ml_dtypes"):
        store.load(framework="numpy")
    assert torch.equal(store.load()["wide"], torch.ones(5).bfloat16())


def test_other_tensors_in_the_next_version(place: str) -> None:
    """A tensor that is new, gone or of another shape: loaded, and refused in place."""
    store = weight_store.Store(place)
    model = small_model()
    store.publish(model, 1)
    old = store.load(1)
    model["layer.bias"] = torch.ones(65)
    model["new"] = torch.ones(3)
    del model["scale"]
    store.publish(model, 2)
    step(model, 2)
    store.publish(model, 3)
    assert bits_of(store.load(3)) == bits_of(model)
    before = bits_of(old)
    with pytest.raises(DeltawireError, match="has none: ") as refused:
        store.update(old, from_version=1)
    assert refused.value.code == "Mismatch" and bits_of(old) == before


def test_weights_are_recognized(place: str) -> None:
    """By their digest; unknown ones take a snapshot."""
    store = weight_store.Store(place)
    bits = publish_versions(store, range(3))
    weights = store.load(1)
    before = store.bytes_read
    manifest = store._storage.read("manifest.json", 1 << 20)
    files = sum(version.files[0].bytes for version in weight_store.Store(place).versions()[:2])
    assert before == files + len(manifest)
    store.update(weights)
    assert bits_of(weights) == bits[2] and store.bytes_read - before < 2000 + len(manifest)
    step(weights, 99)
    store.update(weights, to_version=1)
    assert bits_of(weights) == bits[1]


def test_weights_are_written_under_the_lock(tmp_path) -> None:
    """Not while the patches are read and checked."""
    store = weight_store.Store(tmp_path)
    bits = publish_versions(store, range(2))
    weights = store.load(0)
    seen = []

    @contextlib.contextmanager
    def lock():
        seen.append(bits_of(weights) == bits[0])
        yield
        seen.append(bits_of(weights) == bits[1])

    store.update(weights, from_version=0, lock=lock())
    assert seen == [True, True]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_writes(tmp_path, monkeypatch, number: int) -> None:
    """The weights are those of the new version when it is raised."""
    store = weight_store.Store(tmp_path)
    bits = publish_versions(store, range(2))
    weights = store.load(0)
    real = ModelTensor.write
    calls = []

    def write(tensor: ModelTensor, data: np.ndarray) -> None:
        calls.append(tensor)
        if len(calls) == 1:
            os.kill(os.getpid(), number)
        real(tensor, data)

    def interrupt(*_call) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ModelTensor, "write", write)
    before = signal.signal(number, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.update(weights, from_version=0)
        assert signal.getsignal(number) is interrupt
    finally:
        signal.signal(number, before)
    assert bits_of(weights) == bits[1] and len(calls) > 1


def test_a_writer_that_starts_again_continues(place: str) -> None:
    """With the weights that the store has, merged patches too."""
    model = small_model()
    for number in range(9):
        with weight_store.Store(place, merged=(4,)) as store:
            version = store.publish(model, number)
            step(model, number)
    assert [file.base for file in version.files] == [7, 4]
    assert [file.base for file in store.versions()[7].files] == [6]


def test_what_is_refused(tmp_path) -> None:
    """Each says why."""
    store = weight_store.Store(tmp_path / "store")
    with pytest.raises(InvalidArgumentError, match="has no version yet"):
        store.load()
    model = small_model()
    store.publish(model, 5)
    for number, text in ((5, "does not follow version 5"), (-1, "0 or more"), ("6", "0 or more")):
        with pytest.raises(InvalidArgumentError, match=text):
            store.publish(model, number)
    with pytest.raises(InvalidArgumentError, match="no version 6: it has 1, from 5 to 5"):
        store.load(6)
    flat = torch.zeros(100)
    with pytest.raises(InvalidArgumentError, match="share memory"):
        store.publish({"a": flat[:60], "b": flat[50:]}, 6)
    with pytest.raises(InvalidArgumentError, match="one name without '_orig_mod'"):
        store.publish({"a.w": flat, "a._orig_mod.w": flat[:5]}, 6)
    with pytest.raises(DeltawireError, match="neither a NumPy array"):
        store.publish({"a": [1.0]}, 6)
    with pytest.raises(InvalidArgumentError, match="no weights"):
        store.publish({}, 6)
    with pytest.raises(InvalidArgumentError, match="a dict of arrays or tensors"):
        store.publish([1], 6)
    for settings in ({"merged": (1,)}, {"merged": (8, 8)}, {"keep": 0}, {"snapshot_every": 0}):
        with pytest.raises(InvalidArgumentError, match="="):
            weight_store.Store(tmp_path, **settings)
    with pytest.raises(InvalidArgumentError, match="can't be opened"):
        weight_store.Store("nowhere://at/all")
