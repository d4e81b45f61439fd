"""Damaged files, wrong weights, a full disk, two writers, a writer that is killed."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from deltawire import DeltawireError, InvalidArgumentError, weight_store
from deltawire.weights.store import folder, writer_locks

from tests.weight_store.store_models import (
    bits_of,
    damage,
    publish_versions,
    small_model,
    step,
    stored_names,
    write_manifest,
)


def file_of(store: weight_store.Store, version: int, base: int | None) -> str:
    """The name of a version's file."""
    found = next(each for each in store.versions() if each.version == version)
    return next(file.name for file in found.files if file.base == base)


@pytest.mark.parametrize("change", ["flip", "cut", "remove"])
def test_a_damaged_file_is_gone_around(place: str, change: str) -> None:
    """With a warning; without another way it is an error, and the weights are as they were."""
    store = weight_store.Store(place, merged=(2,), snapshot_every=3)
    bits = publish_versions(store, range(4))
    damage(place, file_of(store, 2, 0), change)
    weights = store.load(0)
    with pytest.warns(RuntimeWarning, match="another way is taken.*000000000002-from-000000000000"):
        store.update(weights, 0, 2)
    assert bits_of(weights) == bits[2]
    for base in (2, None):
        damage(place, file_of(store, 3, base), change)
    with pytest.warns(RuntimeWarning), pytest.raises(DeltawireError, match="nothing is left") as no:
        store.update(weights, 2, 3)
    assert no.value.code == "Corrupt" and bits_of(weights) == bits[2]
    with pytest.warns(RuntimeWarning), pytest.raises(DeltawireError, match="nothing is left"):
        store.load(3)


def test_weights_of_another_version_are_refused(place: str) -> None:
    """Both digests are named, and what the weights really are; nothing is written."""
    store = weight_store.Store(place)
    bits = publish_versions(store, range(4))
    weights = store.load(1)
    digests = [version.digest for version in store.versions()]
    said = rf"not version 2, whose digest is {digests[2]}: theirs is {digests[1]}, .*from_version=1"
    with pytest.raises(DeltawireError, match=said) as refused:
        store.update(weights, from_version=2)
    assert refused.value.code == "Mismatch" and bits_of(weights) == bits[1]
    # The last tensor alone is another one: no other may have been written before it is looked at.
    weights["steps"] += 10
    before = bits_of(weights)
    with pytest.raises(DeltawireError, match="'steps'.*from_version=None"):
        store.update(weights, from_version=1)
    for number in ("1", -1, 1.5):  # which would be read anew, as of no known version
        with pytest.raises(InvalidArgumentError, match="from_version="):
            store.update(weights, from_version=number)
    with pytest.raises(InvalidArgumentError, match="to_version="):
        store.update(weights, 1, "2")
    assert bits_of(weights) == before


def test_a_chain_is_refused_as_a_whole(tmp_path) -> None:
    """A patch in the middle that does not fit is found before the first write."""
    store = weight_store.Store(tmp_path, merged=())
    bits = publish_versions(store, range(4))
    # A store whose files are sound, and whose second patch is that of another model.
    other = weight_store.Store(tmp_path / "other", merged=())
    model = small_model(seed=2)
    for number in range(3):
        other.publish(model, number)
        step(model, number)
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    theirs = json.loads((tmp_path / "other" / "manifest.json").read_bytes())
    entry = theirs["store"]["versions"][2]["files"][0]
    manifest["store"]["versions"][2]["files"][0] = entry
    (tmp_path / "files" / entry["name"]).write_bytes(
        (tmp_path / "other" / "files" / entry["name"]).read_bytes()
    )
    write_manifest(tmp_path, manifest["store"])
    weights = store.load(0)
    with pytest.warns(RuntimeWarning), pytest.raises(DeltawireError, match="nothing is left"):
        store.update(weights, 0, 3)
    assert bits_of(weights) == bits[0]


def test_readonly_weights_are_refused(tmp_path) -> None:
    """Before the first write, though they are the last."""
    store = weight_store.Store(tmp_path)
    bits = publish_versions(store, range(2))
    weights = store.load(0)
    weights["steps"] = np.array(0)
    weights["steps"].flags.writeable = False
    with pytest.raises(InvalidArgumentError, match="'steps' can't be written"):
        store.update(weights, from_version=0)
    assert bits_of(weights) == bits[0]


def test_a_model_with_other_tensors_is_refused(place: str) -> None:
    """By name, dtype or shape, and on both ways."""
    store = weight_store.Store(place)
    bits = publish_versions(store, range(2))
    changes = {
        "layer.bias": torch.zeros(8, 8),
        "scale": torch.zeros(32, dtype=torch.int8),
        "extra": torch.zeros(1),
    }
    own = store.load(0)
    same_bits = {"layer.bias": own["layer.bias"].reshape(8, 8)}
    for start in (0, None):
        for name, value in [*changes.items(), *same_bits.items()]:
            weights = store.load(0) | {name: value}
            before = bits_of(weights)
            with pytest.raises(DeltawireError, match=name if start is None else ".") as refused:
                store.update(weights, from_version=start)
            assert refused.value.code == "Mismatch" and bits_of(weights) == before
        weights = store.load(0)
        del weights["layer.bias"]
        with pytest.raises(DeltawireError, match="'layer.bias'") as refused:
            store.update(weights, from_version=start)
        assert refused.value.code == "Mismatch"
    weights = store.load(0)
    weights["scale"] = weights["layer.bias"][:8]
    with pytest.raises(DeltawireError, match="share memory"):
        store.update(weights)
    assert bits_of(store.load(1)) == bits[1]


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path, monkeypatch) -> None:
    """Wherever it fills up; and the same writer goes on when there is space."""
    store = weight_store.Store(tmp_path, merged=(2,), snapshot_every=2)
    (tmp_path / "files").mkdir()
    model = small_model()
    bits = {}
    calls = moment = 0

    def fsync(_file) -> None:
        nonlocal calls
        calls += 1
        if calls == moment:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder.os, "fsync", fsync)
    for number in (1, 3):  # of the manifest without a version, and of the first file
        calls, moment = 0, number
        with pytest.raises(DeltawireError, match="No space left on device.*version 0 is not there"):
            store.publish(model, 0)
        assert store.latest() is None and not stored_names(str(tmp_path))
    failures = []
    for number in range(5):
        failures.append(0)
        while number not in bits:
            calls, moment = 0, failures[number] + 1
            before = stored_names(str(tmp_path))
            latest = store.latest()
            try:
                store.publish(model, number)
                bits[number] = bits_of(model)
            except DeltawireError as error:
                assert error.code == "Io" and "No space left on device" in str(error)
                assert f"version {number} is not there" in str(error)
                assert store.latest() == latest and stored_names(str(tmp_path)) == before
                assert not list(tmp_path.rglob("*.partial"))
                failures[number] += 1
        step(model, number)
    # Of two syncs for each file and the manifest, the last finds the manifest in its place.
    assert failures == [3, 3, 7, 3, 7]
    assert all(bits_of(store.load(each)) == bits[each] for each in bits)


def test_a_second_writer_is_refused_by_name(place: str) -> None:
    """It can be a writer when the first has closed; readers don't care."""
    first, second = weight_store.Store(place), weight_store.Store(place)
    model = small_model()
    first.publish(model, 1)
    with pytest.raises(DeltawireError, match=f"has a writer, process {os.getpid()} on") as refused:
        second.publish(model, 2)
    assert refused.value.code == "State"
    assert bits_of(second.load()) == bits_of(model)
    first.close()
    second.publish(model, 2)
    with pytest.raises(DeltawireError, match="has a writer"):
        first.publish(model, 3)
    assert first.latest() == 2


@pytest.mark.parametrize("name", [b"", b"[" * 4096, b"\xff"])
def test_a_writer_of_unknown_name(tmp_path, name) -> None:
    with weight_store.Store(tmp_path) as first:
        first.publish(small_model(), 1)
        (tmp_path / "writer.lock").write_bytes(name)
        with pytest.raises(DeltawireError, match="a writer, of unknown name"):
            weight_store.Store(tmp_path).publish(small_model(), 2)


def test_a_place_that_is_no_folder(tmp_path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "policy"):
        with pytest.raises(DeltawireError, match="can't be written: .*; name a folder") as refused:
            weight_store.Store(place).publish(small_model(), 1)
        assert refused.value.code == "Io"
    with pytest.raises(InvalidArgumentError, match="name is empty"):
        weight_store.Store("")


def test_a_second_writer_where_locks_do_nothing(tmp_path, monkeypatch) -> None:
    """The first finds the other's manifest, and does not write over it."""
    monkeypatch.setattr(writer_locks.fcntl, "flock", lambda *_call: None)
    first, second = weight_store.Store(tmp_path), weight_store.Store(tmp_path)
    model = small_model()
    first.publish(model, 1)
    second.publish(model, 2)
    with pytest.raises(DeltawireError, match="written by somebody else meanwhile") as refused:
        first.publish(model, 3)
    assert refused.value.code == "State" and first.latest() == 2
    second.publish(model, 3)


_WRITER = """
import os, signal, sys, time
import numpy as np
from deltawire import weight_store
from deltawire.weights.store import folder, writer_locks

def stop_at(number):
    real = os.fsync
    left = [number]
    def fsync(file):
        left[0] -= 1
        if left[0] == 0:
            print("here", flush=True)
            time.sleep(60)
        real(file)
    folder.os.fsync = fsync

store = weight_store.Store(sys.argv[1], merged=(2,), snapshot_every=2)
weights = {"w": np.arange(5000, dtype=np.float32)}
for version in range(5):
    if version == 4:
        stop_at(int(sys.argv[2]))
    store.publish(weights, version)
    weights["w"][::100] += 1
if sys.argv[3:]:
    os.fork() or time.sleep(60)  # a child that lives on has no lock
"""


@pytest.mark.parametrize("moment", [1, 3, 5, 7, 8])
def test_a_writer_that_is_killed(tmp_path, moment: int) -> None:
    """At any moment of a publication: the store is readable, and the next writer goes on."""
    command = [sys.executable, "-c", _WRITER, str(tmp_path), str(moment)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "here\n"
        os.kill(writer.pid, signal.SIGKILL)
    with weight_store.Store(tmp_path, merged=(2,), snapshot_every=2) as store:
        latest = store.latest()
        # The eighth is that of the folder, after the manifest was replaced.
        assert latest == (4 if moment == 8 else 3)
        for version in store.versions():
            w = store.load(version.version, framework="numpy")["w"]
            assert w[0] == version.version and w[1] == 1
        store.publish(store.load(framework="numpy"), latest + 1)
        named = {file.name for version in store.versions() for file in version.files}
        assert stored_names(str(tmp_path)) == named  # what the dead writer left is gone


def test_a_forked_child_does_not_keep_the_lock(tmp_path) -> None:
    """A loader's worker that outlives the trainer would. Nor is it a second writer."""
    store = weight_store.Store(tmp_path)
    store.publish({"w": torch.zeros(3)}, 1)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        try:
            store.publish({"w": torch.zeros(3)}, 2)
            theirs.send(b"published")
        except DeltawireError as error:
            theirs.send(str(error).encode())
            theirs.recv(1)  # until the parent has closed its end
        finally:
            os._exit(0)
    theirs.close()
    try:
        assert b"was forked from that of the store's writer" in ours.recv(1000)
        # What the system does when a process dies: its files are closed, not unlocked.
        store._writer._lock.close_file()
        weight_store.Store(tmp_path).publish({"w": torch.zeros(3)}, 2)
    finally:
        ours.close()
        os.waitpid(child, 0)


def test_ctrl_c_once_the_manifest_is_there(place: str, monkeypatch) -> None:
    """The version is published, and its writer goes on."""
    store = weight_store.Store(place)
    store.publish(small_model(), 1)
    replace = store._storage.replace

    def interrupted(name: str, data: bytes) -> None:
        replace(name, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store._storage, "replace", interrupted)
        store.publish(small_model(), 2)
    assert [each.version for each in store.versions()] == [1, 2]
    store.publish(small_model(), 3)
    assert store.latest() == 3


def test_readers_while_versions_are_collected(place: str) -> None:
    """A reader of an old manifest finds its files for `grace` versions, then takes a new one."""
    with weight_store.Store(place, keep=2, grace=3, snapshot_every=2, merged=()) as store:
        model = small_model()
        bits = {}
        for number in range(12):
            store.publish(model, number)
            bits[number] = bits_of(model)
            step(model, number)
            if number == 4:
                old = store.versions()
            if number == 5:
                dropped = {f.name for v in old for f in v.files}
                dropped -= {f.name for v in store.versions() for f in v.files}
                assert dropped
            if number in (6, 7):
                assert dropped <= stored_names(place)
        assert not dropped & stored_names(place)
        assert [each.version for each in store.versions()] == [10, 11]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            weights = store.load(10)
            store.update(weights, 10)
            assert bits_of(weights) == bits[11]
        store.collect(keep=1)
        assert bits_of(store.load()) == bits[11]


def test_a_file_that_is_collected_while_it_is_wanted(place: str, monkeypatch) -> None:
    """The reader looks at the manifest again, without a warning."""
    writer = weight_store.Store(place, keep=1, grace=0, snapshot_every=2, merged=())
    bits = publish_versions(writer, range(3))
    reader = weight_store.Store(place)
    read = reader._reader.manifest
    old = read()
    answers = [old]
    monkeypatch.setattr(reader._reader, "manifest", lambda: answers.pop() if answers else read())
    model = {name: each.clone() for name, each in writer.load().items()}
    for number in (3, 4, 5, 6):
        writer.publish(model, number)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bits_of(reader.load()) == bits[2]
