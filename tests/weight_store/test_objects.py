"""What is special about stores on object stores: downloads that break off, caches, the lock."""

import errno
import subprocess
import sys
import uuid
from pathlib import Path

import fsspec
import pytest
from deltawire import DeltawireError, InvalidArgumentError, weight_store
from deltawire.weights.store import download, objects
from deltawire.weights.store.writer_locks import WriterName
from fsspec.implementations.memory import MemoryFileSystem

from tests.weight_store.store_models import (
    bits_of,
    damage,
    publish_versions,
    small_model,
    stored_names,
)


@pytest.fixture
def url():
    place = f"memory://{uuid.uuid4().hex}"
    yield place
    fsspec.filesystem("memory").rm(place, recursive=True)


class Reads:
    """Counts reads of a store's files; breaks those that `broken` names by their number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[int | None, int | None]] = []
        self.broken: set[int] = set()
        real = MemoryFileSystem.cat_file

        def cat_file(system, path, start=None, end=None, **options):
            if "/files/" in path:
                self.ranges.append((start, end))
                if len(self.ranges) in self.broken:
                    raise ConnectionError("the network is gone")
            return real(system, path, start=start, end=end, **options)

        monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
        monkeypatch.setattr(download, "RANGE_BYTES", 10_000)
        monkeypatch.setattr(download, "_FIRST_PAUSE", 0)


def test_a_broken_range_is_read_again(url: str, monkeypatch) -> None:
    """And no other one."""
    store = weight_store.Store(url)
    bits = publish_versions(store, [1])
    reads = Reads(monkeypatch)
    reads.broken = {2, 3}
    assert bits_of(store.load()) == bits[1]
    size = store.versions()[0].files[0].bytes
    starts = [start for start, _ in reads.ranges]
    assert starts == [0, 10_000, 10_000, *range(10_000, size, 10_000)]
    monkeypatch.setattr(download, "RANGE_BYTES", 1000)
    reads.ranges.clear()
    reads.broken = set(range(1, 1000, 2))  # each once: more than may break in a row
    assert bits_of(store.load()) == bits[1]
    reads.broken = set(range(1, 1000))
    with (
        pytest.warns(RuntimeWarning, match="the network is gone"),
        pytest.raises(DeltawireError, match="nothing is left"),
    ):
        store.load()


def test_a_download_is_continued_by_another_process(url: str, monkeypatch, tmp_path) -> None:
    """From the byte where the first one ended; a whole file isn't read again."""
    bits = publish_versions(weight_store.Store(url), [1])
    reads = Reads(monkeypatch)
    first = weight_store.Store(url, cache=tmp_path / "cache")
    reads.broken = set(range(2, 100))
    with pytest.warns(RuntimeWarning), pytest.raises(DeltawireError):
        first.load()
    reads.broken = set()
    reads.ranges.clear()
    second = weight_store.Store(url, cache=tmp_path / "cache")
    assert bits_of(second.load()) == bits[1]
    assert reads.ranges[0][0] == 10_000
    reads.ranges.clear()
    assert bits_of(first.load()) == bits[1] and not reads.ranges


def test_a_cache_that_is_damaged(url: str, tmp_path) -> None:
    """Is found, and what is stored there is dropped: the next call downloads it."""
    bits = publish_versions(weight_store.Store(url), [1])
    reader = weight_store.Store(url, cache=tmp_path)
    reader.load()
    (cached,) = tmp_path.rglob("*.safetensors")
    data = bytearray(cached.read_bytes())
    data[-1] ^= 1
    cached.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="damaged"), pytest.raises(DeltawireError):
        reader.load()
    assert bits_of(reader.load()) == bits[1]
    Path(f"{cached}.partial").write_bytes(bytes(len(data) + 1))
    cached.unlink()
    assert bits_of(reader.load()) == bits[1]


def test_a_cache_forgets_what_is_collected(url: str, tmp_path) -> None:
    """It has no more files than the store names."""
    writer = weight_store.Store(url, keep=1, grace=0, snapshot_every=1, merged=())
    reader = weight_store.Store(url, cache=tmp_path)
    model = small_model()
    for number in range(4):
        writer.publish(model, number)
        reader.load()
        (cached,) = tmp_path.rglob("*.*")
        assert cached.name in stored_names(url)
    weight_store.Store(f"{url}/another", cache=tmp_path).publish(model, 1)
    weight_store.Store(f"{url}/another", cache=tmp_path).load()
    assert len(list(tmp_path.rglob("*.*"))) == 2


def test_a_dead_writer_is_replaced(url: str) -> None:
    """One of this machine that has ended at once; another one when the caller says so."""
    system, root = fsspec.url_to_fs(url)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    store = weight_store.Store(url)
    store.publish(small_model(), 1)
    own = store._writer._lock._own
    system.pipe_file(f"{root}/writer.lock", own._replace(pid=int(ended.stdout)).to_bytes())
    second = weight_store.Store(url)
    second.publish(small_model(), 2)
    with pytest.raises(DeltawireError, match="was taken over by process") as refused:
        store.publish(small_model(), 3)
    assert refused.value.code == "State"
    second.close()
    elsewhere = WriterName("another-machine", 1, "token")
    system.pipe_file(f"{root}/writer.lock", elsewhere.to_bytes())
    with pytest.raises(DeltawireError, match="process 1 on another-machine.*take_over=True"):
        second.publish(small_model(), 3)
    third = weight_store.Store(url, take_over=True)
    third.publish(small_model(), 3)
    third.close()
    assert not system.exists(f"{root}/writer.lock")
    with pytest.raises(DeltawireError, match="somebody else meanwhile|taken over"):
        store.publish(small_model(), 4)


def test_a_writer_that_was_replaced_leaves_the_others_files(url: str, monkeypatch) -> None:
    """It finds out before its manifest, and deletes its own files only."""
    first = weight_store.Store(url)
    first.publish(small_model(), 1)
    second = weight_store.Store(url, take_over=True)
    real = MemoryFileSystem.open

    def open_(system, path, mode="rb", **options):
        if "/files/" in path and mode == "wb":
            monkeypatch.undo()
            second.publish(small_model(), 2)
        return real(system, path, mode, **options)

    monkeypatch.setattr(MemoryFileSystem, "open", open_)
    with pytest.raises(DeltawireError, match="taken over"):
        first.publish(small_model(), 3)
    named = {file.name for version in second.versions() for file in version.files}
    assert second.latest() == 2 and stored_names(url) == named


@pytest.mark.parametrize("works", [False, True])
def test_the_answer_to_the_last_request_is_lost(url: str, monkeypatch, works: bool) -> None:
    """The writer looks whether the manifest is there."""
    store = weight_store.Store(url)
    bits = publish_versions(store, range(2))
    real = MemoryFileSystem.pipe_file

    def pipe_file(system, path, value, mode="overwrite", **options):
        if works:
            real(system, path, value, mode, **options)
        raise OSError(errno.ETIMEDOUT, "timed out")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    model = store.load(0)
    if works:
        store.publish(model, 2)
    else:
        with pytest.raises(DeltawireError, match="timed out: version 2 is not there"):
            store.publish(model, 2)
    monkeypatch.undo()
    assert store.latest() == (2 if works else 1)
    named = {file.name for version in store.versions() for file in version.files}
    assert stored_names(url) == named
    store.publish(model, 3)
    assert bits_of(store.load()) == bits[0]


def test_a_filesystem_without_one_put(tmp_path: Path, monkeypatch) -> None:
    """The manifest is written elsewhere and renamed; a lock needs no mode "create"."""
    monkeypatch.setattr(
        "deltawire.weights.store.store._storage_of",
        lambda url, cache, options: objects.Objects(f"file://{url}", None, options),
    )
    local = fsspec.get_filesystem_class("file")
    real = local.pipe_file
    put = []

    def pipe_file(system, path, value, mode="overwrite", **options):
        put.append(Path(path).name)
        if mode == "create":
            raise NotImplementedError
        return real(system, path, value, **options)

    monkeypatch.setattr(local, "pipe_file", pipe_file)
    store = weight_store.Store(tmp_path)
    bits = publish_versions(store, range(3))
    assert bits_of(store.load()) == bits[2]
    assert "manifest.json" not in put and "manifest.json.partial" in put
    with pytest.raises(DeltawireError, match="already has a writer"):
        weight_store.Store(tmp_path).publish(small_model(), 9)


def test_without_fsspec(monkeypatch) -> None:
    """Folders work; a URL says what is missing."""
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InvalidArgumentError, match="pip install fsspec"):
        weight_store.Store("s3://bucket/policy")


def test_a_missing_object_is_no_empty_one(url: str) -> None:
    """A file that the manifest names and that is shorter than it says."""
    store = weight_store.Store(url)
    publish_versions(store, [1])
    damage(url, next(iter(stored_names(url))), "cut")
    with pytest.warns(RuntimeWarning, match="the manifest says"), pytest.raises(DeltawireError):
        store.load()
