"""A trainer that resumes from an older checkpoint goes on from an older version."""

import json
from dataclasses import replace

import pytest
import torch
from deltawire import DeltawireError, InvalidArgumentError, live, weight_store
from deltawire.weights.store import manifest as manifests

from tests.weight_store.store_models import (
    bits_of,
    copy_of,
    publish_versions,
    small_model,
    step,
    stored_names,
)

TOKEN = "a token of the tests, long enough"


def another_branch(store, after: int, numbers, seed: int = 50) -> dict[int, dict[str, bytes]]:
    """Goes on from a version with other steps than the first time."""
    model = store.load(after)
    bits = {}
    for number in numbers:
        step(model, seed + number)
        store.publish(model, number, after=after if not bits else None)
        bits[number] = bits_of(model)
    return bits


@pytest.mark.parametrize("restarted", [False, True])
def test_numbers_are_used_again(place: str, restarted: bool) -> None:
    """Each reader gets the new weights, whatever it has; who names a wrong one hears it."""
    store = weight_store.Store(place, merged=(2,), snapshot_every=4)
    old = publish_versions(store, range(8))
    held = {number: store.load(number) for number in old}
    if restarted:
        store.close()
        store = weight_store.Store(place, merged=(2,), snapshot_every=4)
    new = another_branch(store, 4, (5, 6))
    assert [each.version for each in store.versions()] == [0, 1, 2, 3, 4, 5, 6]
    assert [file.base for file in store.versions()[5].files] == [4, 3]  # patches
    for number, bits in ({n: old[n] for n in range(5)} | new).items():
        assert bits_of(store.load(number)) == bits
    reader = weight_store.Store(place)
    for number, weights in held.items():
        for start in (number, None):
            own = copy_of(weights)
            assert reader.update(own, from_version=start) == 6
            assert bits_of(own) == new[6], (number, start)
        own = copy_of(weights)
        assert reader.update(own, from_version=number, to_version=5) == 5
        assert bits_of(own) == new[5]
    # Of a number that was used twice, both weights are known, and no others.
    assert reader.update(store.load(5), from_version=5) == 6
    wrong = copy_of(held[3])
    with pytest.raises(DeltawireError, match="are not version 5.*that of version 3"):
        reader.update(wrong, from_version=5)
    assert bits_of(wrong) == old[3]


def test_a_reader_that_is_at_the_last_number(place: str) -> None:
    """Of the branch that was left: it hears that there is another."""
    store = weight_store.Store(place)
    old = publish_versions(store, range(3))
    weights = store.load(2)
    new = another_branch(store, 1, (2,))
    assert bits_of(weights) == old[2] != new[2]
    assert store.update(weights, from_version=2) == 2
    assert bits_of(weights) == new[2]


def test_a_version_that_is_no_longer_there(place: str) -> None:
    """Going back behind the first: a snapshot begins anew, and nothing is left of the others."""
    store = weight_store.Store(place, keep=2, grace=0, snapshot_every=2, merged=())
    publish_versions(store, range(10, 20))
    held = store.load(19)
    model = small_model(seed=3)
    store.publish(model, 6, after=5)
    assert [each.version for each in store.versions()] == [6]
    assert store.update(held, from_version=19) == 6 and bits_of(held) == bits_of(model)
    named = {file.name for version in store.versions() for file in version.files}
    assert stored_names(place) == named
    for number in range(7, 24):
        step(model, number)
        store.publish(model, number)
    fields = json.loads(store._storage.read("manifest.json", 1 << 20))["store"]
    # A reader with an older number than the first version begins with a snapshot anyway.
    assert "abandoned" not in fields and fields["format_version"] == 1


def test_readers_of_the_first_format_refuse_what_they_would_overlook(tmp_path) -> None:
    """A version that is no longer what it was; before and after it the format is the first."""
    store = weight_store.Store(tmp_path)
    formats = []
    publish_versions(store, range(3))
    model = store.load(1)
    for after in (None, 2, 1):
        store.publish(model, 3 if after is None else 2 if after == 1 else 4, after=after)
        fields = json.loads((tmp_path / "manifest.json").read_bytes())["store"]
        formats.append((fields["format_version"], len(fields.get("abandoned", ()))))
    assert formats == [(1, 0), (2, 1), (2, 3)]
    assert weight_store.Store(tmp_path).latest() == 2


@pytest.mark.parametrize(
    ("number", "after", "said"),
    [
        (2, 1, None),
        (9, 5, None),
        (2, 2, "version 2 does not follow version 2: give a higher number"),
        (1, 4, "version 1 does not follow version 4"),
        (2, None, "does not follow version 2, which .* has already.*after="),
        (3, -1, "after="),
        (3, "2", "after="),
    ],
)
def test_what_may_follow(tmp_path, number, after, said) -> None:
    store = weight_store.Store(tmp_path)
    publish_versions(store, range(3))
    before = (tmp_path / "manifest.json").read_bytes()
    if said is None:
        store.publish(small_model(), number, after=after)
        assert store.latest() == number
    else:
        with pytest.raises(InvalidArgumentError, match=said):
            store.publish(small_model(), number, after=after)
        assert (tmp_path / "manifest.json").read_bytes() == before


def test_a_writer_that_goes_back_and_fails(tmp_path, monkeypatch) -> None:
    """Leaves the store as it was, and goes on with it."""
    store = weight_store.Store(tmp_path, merged=(2,))
    bits = publish_versions(store, range(5))
    monkeypatch.setattr(
        store._storage, "replace", lambda *_file: (_ for _ in ()).throw(OSError(28))
    )
    with pytest.raises(DeltawireError, match="version 2 is not there"):
        store.publish(small_model(), 2, after=1)
    monkeypatch.undo()
    assert store.latest() == 4 and bits_of(store.load()) == bits[4]
    model = store.load()
    step(model, 9)
    store.publish(model, 5)
    assert [file.base for file in store.versions()[-1].files] == [4]
    assert bits_of(weight_store.Store(tmp_path).load()) == bits_of(model)


@pytest.mark.parametrize("continued", [False, True])
def test_subscribers_follow_back(tmp_path, continued: bool) -> None:
    """Within a publisher's life, and of one that continues a folder."""
    model = {"w": torch.arange(4000.0)}
    folder = tmp_path if continued else None
    publisher = live.Publisher(model, "127.0.0.1:0", token=TOKEN, folder=folder)
    served = {"w": torch.zeros(4000)}
    for number in (1, 2, 3):
        model["w"][::50] += 1
        publisher.publish(number)
        publisher.flush()
    address = publisher.address
    with live.Subscriber(served, address, token=TOKEN) as subscriber:
        subscriber.wait(version=3, timeout=60)
        assert subscriber.update() == 3
        if continued:
            publisher.close()
            publisher = live.Publisher(model, address, token=TOKEN, folder=folder)
        model["w"][::70] -= 2
        assert publisher.publish(after=1) == 2
        publisher.flush()
        while not torch.equal(served["w"], model["w"]):
            subscriber.wait(timeout=60)
            subscriber.update()
        assert subscriber.version == publisher.version == 2
        model["w"][::70] -= 2
        publisher.publish()
        subscriber.wait(version=3, timeout=60)
        assert subscriber.update() == 3 and torch.equal(served["w"], model["w"])
    publisher.close()


def test_the_newest_weights_that_wait_go_back(monkeypatch) -> None:
    """Though those that were to, and waited before, are left out."""
    model = {"w": torch.arange(4000.0)}
    with live.Publisher(model, "127.0.0.1:0", token=TOKEN) as publisher:
        for number in (1, 2, 3):
            model["w"][::50] += 1
            publisher.publish(number)
            publisher.flush()
        with publisher._changed:  # the thread takes nothing meanwhile
            publisher.publish(2, after=1)
            model["w"][::50] += 1
            publisher.publish(3)
        publisher.flush()
        assert publisher.version == 3
        manifest = publisher._writer._reader.manifest()
        assert [each.version for each in manifest.versions] == [1, 3]


def test_the_manifest_does_not_grow_for_ever(tmp_path) -> None:
    """By default; who wrote more versions before is warned that they go."""
    weights = {"w": torch.arange(200.0)}
    store = weight_store.Store(tmp_path, keep=None)
    first = store.publish(weights, 0)
    store.close()
    manifest = store._reader.manifest()
    for number in range(1, 200):
        manifest = manifest.with_version(replace(first, version=number))
    (tmp_path / "manifest.json").write_bytes(manifests.to_bytes(manifest))
    with weight_store.Store(tmp_path, keep=None) as store:
        store.publish(weights, 200)
        assert len(store.versions()) == 201
    with (
        pytest.warns(RuntimeWarning, match="201 versions.*all but the last 128.*keep=None"),
        weight_store.Store(tmp_path) as store,
    ):
        for number in range(201, 204):
            weights["w"][number % 50 :: 50] += 1
            store.publish(weights, number)
            count = len(store.versions())
            assert 128 <= count <= 128 + 64
        length = (tmp_path / "manifest.json").stat().st_size
        assert 200 * count < length < 300 * count
        before = store.bytes_read
        store.latest()
        assert store.bytes_read - before == length
