"""Models that are trained for the tests of the store, and what they share."""

import hashlib
import json
import uuid
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch


def small_model(seed: int = 1) -> dict[str, torch.Tensor]:
    """A bfloat16 model with tied weights, other dtypes, a scalar and an empty tensor."""
    draw = torch.Generator().manual_seed(seed)
    embedding = torch.randn(500, 16, generator=draw).bfloat16()
    return {
        "embedding": embedding,
        "head": embedding,
        "layer.weight": torch.randn(64, 64, generator=draw).bfloat16(),
        "layer.bias": torch.randn(64, generator=draw),
        "scale": torch.randn(32, generator=draw).to(torch.float8_e4m3fn),
        "steps": torch.tensor(0),
        "none": torch.empty(0, 4),
    }


def step(model: dict[str, torch.Tensor], number: int) -> None:
    """Moves one weight in a hundred by one unit, and counts."""
    draw = torch.Generator().manual_seed(number)
    for name in ("embedding", "layer.weight"):
        bits = model[name].view(torch.int16).view(-1)
        chosen = torch.randperm(bits.numel(), generator=draw)[: bits.numel() // 100]
        bits[chosen] += 1
    model["steps"] += 1


def copy_of(model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies, tied where the model is."""
    copies: dict[int, torch.Tensor] = {}
    return {
        name: copies.setdefault(each.data_ptr() or id(each), each.clone())
        for name, each in model.items()
    }


def bits_of(model: dict) -> dict[str, bytes]:
    """Every bit of a model."""
    return {
        name: each.tobytes()
        if isinstance(each, np.ndarray)
        else each.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        for name, each in model.items()
    }


def publish_versions(store, numbers) -> dict[int, dict[str, bytes]]:
    """Trains and publishes; returns every version's bits."""
    model = small_model()
    bits = {}
    for number in numbers:
        store.publish(model, number)
        bits[number] = bits_of(model)
        step(model, number)
    return bits


def files_of(store, folder: Path) -> dict[tuple[int | None, int], Path]:
    """All files of a store in a folder, by the versions that they begin at and make."""
    return {
        (file.base, version.version): folder / "files" / file.name
        for version in store.versions()
        for file in version.files
    }


@pytest.fixture(params=["folder", "memory"])
def place(request, tmp_path):
    """A folder, and a path on fsspec's filesystem in memory."""
    if request.param == "folder":
        yield str(tmp_path / "store")
    else:
        url = f"memory://{uuid.uuid4().hex}"
        yield url
        fsspec.filesystem("memory").rm(url, recursive=True)


def stored_names(place: str) -> set[str]:
    """Names of all snapshots and patches that are there."""
    system, root = fsspec.url_to_fs(place)
    return {path.rsplit("/", 1)[1] for path in system.ls(f"{root}/files", detail=False)}


def damage(place: str, name: str, change: str) -> None:
    """Flips a bit of a file of the store, cuts it or removes it."""
    system, root = fsspec.url_to_fs(place)
    path = f"{root}/files/{name}"
    data = bytearray(system.cat_file(path))
    system.rm_file(path)
    if change == "flip":
        data[len(data) * 3 // 4] ^= 1
    if change != "remove":
        system.pipe_file(path, bytes(data[:-1] if change == "cut" else data))


def write_manifest(place: Path, fields: dict) -> None:
    """With the checksum that belongs to it."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    whole = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "store": fields}
    (place / "manifest.json").write_text(json.dumps(whole))


HEAD = {
    "format": "deltawire-patch",
    "format_version": "1",
    "old": "0123456789abcdef",
    "new": "fedcba9876543210",
}


def metadata_of(data: np.ndarray) -> dict[str, str]:
    length = int.from_bytes(data[:8].tobytes(), "little")
    return json.loads(data[8 : 8 + length].tobytes())["__metadata__"]
