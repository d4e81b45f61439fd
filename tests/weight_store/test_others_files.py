"""A store deletes its own files and no others, and writes through nobody's links."""

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from deltawire import DeltawireError, InvalidArgumentError, live, weight_store
from deltawire.weights.store.manifest import Manifest
from deltawire.weights.store.writer_locks import WriterName

from tests.weight_store.store_models import (
    bits_of,
    publish_versions,
    small_model,
    stored_names,
    write_manifest,
)

OTHERS = ("thesis.docx", "000000000001-full-.safetensors", "1-full-0a1b2c3d.safetensors")


def put(place: str, name: str) -> None:
    system, root = fsspec.url_to_fs(place)
    system.makedirs(f"{root}/files", exist_ok=True)
    system.pipe_file(f"{root}/files/{name}", b"two years of work")


def test_files_of_others_stay(place: str) -> None:
    """Also where a publication never ended, whose own files go."""
    for name in OTHERS:
        put(place, name)
    store = weight_store.Store(place, keep=1, grace=0, snapshot_every=1)
    publish_versions(store, range(3))
    store.close()
    put(place, "000000000009-from-000000000002-0a1b2c3d.safetensors")
    with weight_store.Store(place) as again:
        again.publish(small_model(), 3)
        named = {file.name for version in again.versions() for file in version.files}
    assert stored_names(place) == named | set(OTHERS)


def test_a_publisher_deletes_nothing_either(tmp_path) -> None:
    put(str(tmp_path), OTHERS[0])
    (tmp_path / "files" / "folder").mkdir()
    live.Publisher(small_model(), "127.0.0.1:0", token="t" * 40, folder=tmp_path).close()
    assert stored_names(str(tmp_path)) == {OTHERS[0], "folder"}


def test_a_store_whose_manifest_is_gone(place: str) -> None:
    """Nobody writes to it, and it is whole again when the manifest is put back."""
    with weight_store.Store(place) as store:
        bits = publish_versions(store, range(3))
    system, root = fsspec.url_to_fs(place)
    manifest = system.cat_file(f"{root}/manifest.json")
    system.rm_file(f"{root}/manifest.json")
    before = stored_names(place)
    with pytest.raises(DeltawireError, match="no manifest.json.*put it back") as refused:
        weight_store.Store(place).publish(small_model(), 9)
    assert refused.value.code == "State" and stored_names(place) == before
    system.pipe_file(f"{root}/manifest.json", manifest)
    assert bits_of(weight_store.Store(place).load()) == bits[2]


def test_a_first_publication_that_never_ended(place: str, monkeypatch) -> None:
    """Its files are deleted by the next writer: there is a manifest, without a version."""
    store = weight_store.Store(place)

    def ended(_manifest, _version) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Manifest, "with_version", ended)
    with pytest.raises(KeyboardInterrupt):
        store.publish(small_model(), 1)
    monkeypatch.undo()
    store.close()
    put(place, "000000000001-full-0a1b2c3d.safetensors")
    assert weight_store.Store(place).latest() is None
    with weight_store.Store(place) as again:
        again.publish(small_model(), 1)
        named = {file.name for version in again.versions() for file in version.files}
    assert stored_names(place) == named


def test_collecting_where_there_is_no_store(tmp_path) -> None:
    """Says so, and makes nothing there."""
    with pytest.raises(InvalidArgumentError, match="is no store: there is no manifest.json"):
        weight_store.Store(tmp_path).collect(5)
    assert not list(tmp_path.iterdir())
    write_manifest(
        tmp_path,
        {
            "format": "deltawire-weight-store",
            "format_version": 1,
            "generation": 1,
            "published": 0,
            "retired": {},
            "versions": [],
        },
    )
    weight_store.Store(tmp_path).collect(5)


@pytest.mark.parametrize(
    "name", ["writer.lock", "manifest.json.partial", ".manifest.json.partial", "manifest.json"]
)
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    """Whatever they point at stays what it is."""
    victim, place = tmp_path / "victim", tmp_path / "store"
    victim.write_bytes(b"precious")
    place.mkdir()
    store = weight_store.Store(place)
    if name == "manifest.json":  # it is replaced itself
        store.publish(small_model(), 1)
        (place / name).rename(victim)
    kept = victim.read_bytes()
    (place / name).symlink_to(victim)
    if name == "writer.lock":
        with pytest.raises(DeltawireError, match="writer.lock is a symbolic link.*remove it"):
            store.publish(small_model(), 2)
    else:
        store.publish(small_model(), 2)
        assert store.latest() == 2
    assert victim.read_bytes() == kept


def test_a_download_does_not_follow_a_link(tmp_path: Path) -> None:
    place = f"memory://{tmp_path.name}"
    weight_store.Store(place).publish(small_model(), 1)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    reader = weight_store.Store(place, cache=tmp_path / "cache")
    reader.load()
    (cached,) = (tmp_path / "cache").rglob("*.safetensors")
    cached.unlink()
    Path(f"{cached}.partial").unlink(missing_ok=True)
    Path(f"{cached}.partial").symlink_to(victim)
    with pytest.raises(DeltawireError, match="can't be kept in"):
        reader.load()
    assert victim.read_bytes() == b"precious"
    fsspec.filesystem("memory").rm(place, recursive=True)


def test_a_writer_in_another_container_is_not_taken_for_dead(tmp_path: Path) -> None:
    """It has the machine's name and a number that nobody has here."""
    place = f"memory://{tmp_path.name}"
    system, root = fsspec.url_to_fs(place)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    store = weight_store.Store(place)
    store.publish(small_model(), 1)
    own = store._writer._lock._own
    assert own.pids.endswith(f" {os.stat('/proc/self/ns/pid').st_ino}")
    there = WriterName(own.host, int(ended.stdout), "token", "another system or container")
    for name in (there, there._replace(pids="")):  # the latter as 0.1 wrote it
        system.pipe_file(f"{root}/writer.lock", name.to_bytes())
        with pytest.raises(DeltawireError, match="already has a writer.*take_over=True"):
            weight_store.Store(place).publish(small_model(), 2)
    system.rm(root, recursive=True)
