"""Manifests that are damaged, break a rule, or contradict the files."""

import json

import pytest
from deltawire import DeltawireError, weight_store
from refusals import raised

from tests.weight_store.store_models import (
    bits_of,
    publish_versions,
    small_model,
    stored_names,
    write_manifest,
)


def test_a_manifest_that_contradicts_its_files(tmp_path) -> None:
    """By a version's digest, though each patch fits: nothing is written."""
    store = weight_store.Store(tmp_path)
    bits = publish_versions(store, range(2))
    fields = json.loads((tmp_path / "manifest.json").read_bytes())["store"]
    weights = store.load(0)
    fields["versions"][1]["digest"] = "0" * 16
    write_manifest(tmp_path, fields)
    for call in (lambda: store.update(weights, 0), store.load):
        with (
            pytest.warns(RuntimeWarning, match="makes weights with the digest"),
            pytest.raises(DeltawireError, match="nothing is left"),
        ):
            call()
    assert bits_of(weights) == bits[0]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"sha256": "", "store": {}}', b"[" * 100_000])
def test_a_damaged_manifest(tmp_path, text: bytes) -> None:
    """Is an error for readers and writers, and stays what it is."""
    store = weight_store.Store(tmp_path)
    publish_versions(store, range(2))
    store.close()
    manifest = tmp_path / "manifest.json"
    flipped = manifest.read_bytes().replace(b'"version":1', b'"version":2')
    for damaged in (text, flipped):
        manifest.write_bytes(damaged)
        assert raised(DeltawireError, store.latest, match="is no manifest").code == "Corrupt"
        with pytest.raises(DeltawireError, match="is no manifest"):
            store.publish(small_model(), 7)
        assert manifest.read_bytes() == damaged and len(stored_names(str(tmp_path))) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"generation": -1},
        {"published": 0},
        {"retired": {"../../etc/passwd": 1}},
        {"format": "another"},
        {"versions": None},
        {"versions": [{"version": 1, "digest": "0" * 16, "files": [{}], "tied": {}}]},
        {"versions": [{"version": "1", "digest": "0" * 16, "files": [], "tied": {}}]},
        {"versions": [{"version": 1, "digest": "0" * 15, "files": [], "tied": {}}]},
        {"versions": [{"version": 1, "digest": "0" * 16, "files": [], "tied": {"a": 1}}]},
    ],
)
def test_manifests_that_break_a_rule(tmp_path, change: dict) -> None:
    """Though their checksum is right."""
    store = weight_store.Store(tmp_path)
    store.publish(small_model(), 1)
    fields = json.loads((tmp_path / "manifest.json").read_bytes())["store"]
    write_manifest(tmp_path, fields | change)
    with pytest.raises(DeltawireError, match="is no manifest"):
        store.latest()
    path = fields["versions"][0]["files"][0]
    for bad in ({"name": "../x"}, {"bytes": -1}, {"sha256": "0"}, {"base": 0}):
        fields["versions"][0]["files"][0] = path | bad
        write_manifest(tmp_path, fields)
        with pytest.raises(DeltawireError, match="is no manifest"):
            store.latest()
    fields["format_version"] = 3
    write_manifest(tmp_path, fields)
    with pytest.raises(DeltawireError, match="update deltawire"):
        store.latest()
