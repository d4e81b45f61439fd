"""deltawire.patches on models in files."""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from deltawire import DeltawireError, InvalidArgumentError, patches


def write_model(path: Path, **tensors: np.ndarray) -> Path:
    """A safetensors file of float16 tensors."""
    header, data = {}, b""
    for name, values in tensors.items():
        offsets = [len(data), len(data) + values.nbytes]
        header[name] = {"dtype": "F16", "shape": values.shape, "data_offsets": offsets}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.fixture
def versions(tmp_path: Path) -> list[Path]:
    """Three versions of a model."""
    weights = np.random.default_rng(1).standard_normal((200, 50)).astype(np.float16)
    paths = []
    for version in range(3):
        weights.view(np.uint16)[version::20] ^= 1
        more = {"more": weights[:1]} if version == 2 else {}
        paths.append(write_model(tmp_path / f"v{version}", w=weights, **more))
    return paths


def test_the_new_file_comes_back(tmp_path: Path, versions: list[Path]) -> None:
    """Bit for bit, and the patch says what it is."""
    patch, out = tmp_path / "patch", tmp_path / "out"
    patches.make_file(versions[0], versions[2], str(patch), from_version="v0", to_version="v2")
    patches.verify_file(versions[0], patch)
    patches.apply_file(versions[0], patch, out)
    assert out.read_bytes() == versions[2].read_bytes()
    info = patches.inspect_file(patch)
    assert (info.from_version, info.to_version, info.has_header) == ("v0", "v2", True)
    assert info.file_bytes == patch.stat().st_size
    back = tmp_path / "back"
    patches.make_file(versions[2], versions[0], back)
    other_way = patches.inspect_file(back)
    assert (info.old_digest, info.new_digest) == (other_way.new_digest, other_way.old_digest)
    assert len({info.old_digest, info.new_digest, info.file_digest}) == 3
    w, more = info.tensors
    assert (w.name, w.full, w.patch.changes, w.new_bytes) == ("w", False, 1000, 20000)
    assert (more.name, more.full, more.patch, more.bytes) == ("more", True, None, 100)


def test_merged_patches_are_the_direct_one(tmp_path: Path, versions: list[Path]) -> None:
    """With the names of the ends."""
    steps = [tmp_path / "p1", tmp_path / "p2"]
    for version, step in enumerate(steps):
        names = {"from_version": f"v{version}", "to_version": f"v{version + 1}"}
        patches.make_file(versions[version], versions[version + 1], step, **names)
    direct, merged = tmp_path / "direct", tmp_path / "merged"
    patches.make_file(versions[0], versions[2], direct, from_version="v0", to_version="v2")
    patches.merge_files(versions[0], steps, merged)
    assert merged.read_bytes() == direct.read_bytes()
    named = {"from_version": "first", "to_version": "last", "replace": True}
    patches.merge_files(versions[0], steps, merged, **named)
    info = patches.inspect_file(merged)
    assert (info.from_version, info.to_version) == ("first", "last")
    patches.merge_files(versions[0], steps, merged, replace=True)
    with pytest.raises(DeltawireError, match="order of versions") as refused:
        patches.merge_files(versions[0], reversed(steps), merged, replace=True)
    assert refused.value.code == "Mismatch"
    with pytest.raises(InvalidArgumentError, match="is one path: give a list"):
        patches.merge_files(versions[0], steps[0], merged, replace=True)
    assert merged.read_bytes() == direct.read_bytes()


def test_existing_files_are_replaced_on_request_alone(tmp_path: Path, versions: list[Path]) -> None:
    """Of all calls that write."""
    patch, out = tmp_path / "patch", tmp_path / "out"
    patches.make_file(versions[0], versions[1], patch)
    calls = (
        lambda **how: patches.make_file(versions[0], versions[1], out, **how),
        lambda **how: patches.merge_files(versions[0], [patch], out, **how),
        lambda **how: patches.apply_file(versions[0], patch, out, **how),
    )
    for call in calls:
        out.write_text("kept")
        with pytest.raises(DeltawireError, match="out: exists already"):
            call()
        assert out.read_text() == "kept"
        call(replace=True)
        assert out.read_bytes() != b"kept"
    assert out.read_bytes() == versions[1].read_bytes()


def test_the_guides_program(
    tmp_path: Path, versions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does what the page says."""
    guide = Path(__file__).parents[2] / "docs" / "guides" / "weights.md"
    before = "<!-- block: run by tests/numpy_door/test_patch_files.py -->\n```python\n"
    program = guide.read_text().split(before)[1].split("```")[0]
    for version, name in ((0, "v1"), (2, "v2")):
        versions[version].rename(tmp_path / f"{name}.safetensors")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, guide, "exec"), {})
    assert Path("new.safetensors").read_bytes() == Path("v2.safetensors").read_bytes()


def test_refusals(tmp_path: Path, versions: list[Path]) -> None:
    """Each has its class and code, and leaves no file."""
    patch, out = tmp_path / "patch", tmp_path / "out"
    patches.make_file(versions[0], versions[1], patch)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DeltawireError, match="v1: tensor 'w': .* from this version") as refused:
        patches.apply_file(versions[1], patch, out)
    assert refused.value.code == "Mismatch"
    with pytest.raises(DeltawireError, match="v1: tensor 'w': .* from this version"):
        patches.verify_file(versions[1], patch)
    with pytest.raises(DeltawireError, match="exists already") as refused:
        patches.make_file(versions[0], versions[1], patch)
    assert refused.value.code == "Io"
    with pytest.raises(InvalidArgumentError, match="is the input itself"):
        patches.apply_file(versions[0], patch, versions[0], replace=True)
    with pytest.raises(TypeError):
        patches.inspect_file(3)
    for name, words in ((f"{patch}\0.old", "a NUL"), ("\udc80", "Unicode")):
        with pytest.raises(InvalidArgumentError, match=words):
            patches.inspect_file(name)
    assert sorted(tmp_path.iterdir()) == before


def test_ctrl_c_ends_a_long_call(tmp_path: Path) -> None:
    """As KeyboardInterrupt, without a file."""
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (old, new):
        entry = {"dtype": "F16", "shape": [400_000_000], "data_offsets": [0, 800_000_000]}
        text = json.dumps({"w": entry}).encode()
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + 800_000_000)
    program = (
        "import sys; from deltawire import patches\n"
        "try: patches.make_file(*sys.argv[1:])\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    command = [sys.executable, "-c", program, old, new, tmp_path / "patch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as running:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 3 and time.monotonic() < deadline:
            pass
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[0]
    assert said == b"interrupted\n"
    assert sorted(tmp_path.iterdir()) == [new, old]
