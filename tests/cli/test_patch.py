"""`deltawire patch`: models in files, written and read here with the standard library."""

import json
import os
import re
import signal
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_program import (
    BINARY,
    FAILURE,
    INTERRUPTED,
    ROOT,
    TIMEOUT,
    USAGE,
    assert_refused,
    must_run,
    run,
    shown_on_terminal,
)


def write_model(path: Path, tensors: dict[str, tuple[str, np.ndarray]], **metadata: str) -> Path:
    """A safetensors file; a dtype is as safetensors spells it."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, (dtype, values) in tensors.items():
        end = len(data) + values.nbytes
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(data), end]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def weights(version: int) -> dict[str, tuple[str, np.ndarray]]:
    """A model; from version to version few of its 16-bit weights change, by one unit."""
    random = np.random.default_rng(1)
    layer = (random.standard_normal((300, 200)).astype(np.float32).view(np.uint32) >> 16).astype(
        np.uint16
    )
    for later in range(1, version + 1):
        layer.reshape(-1)[later::100] ^= 1
    norm = random.standard_normal(64).astype(np.float32)
    return {"layers.0.weight": ("BF16", layer), "norm": ("F32", norm)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for version in range(4):
        write_model(tmp_path / f"v{version}", weights(version), format="pt")
    return tmp_path


@pytest.fixture
def patch(folder: Path) -> Path:
    must_run("patch", "make", folder / "v0", folder / "v1", folder / "p1", "--from", "v0")
    return folder / "p1"


def assert_patch_refused(folder: Path, status: int, words: list[str], *arguments: object) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert_refused(status, words, "patch", *arguments)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_the_new_file_comes_back(folder: Path, patch: Path) -> None:
    said = must_run("patch", "apply", folder / "v0", patch, folder / "out").decode()
    assert (folder / "out").read_bytes() == (folder / "v1").read_bytes()
    assert "out: 120," in said and "bit for bit" in said
    assert must_run("patch", "verify", folder / "v0", patch).endswith(b"v0\n")
    assert patch.stat().st_size < 2000


def test_a_patch_that_is_larger_is_said_to_be(folder: Path) -> None:
    for name in ("a", "b"):
        write_model(folder / name, {"w": ("U8", np.array([ord(name)], np.uint8))})
    said = must_run("patch", "make", folder / "a", folder / "b", folder / "p").decode()
    words = re.fullmatch(r".*: ([\d,]+) bytes, ([\d.]+) times larger than the new model\n", said)
    whole = (folder / "b").stat().st_size
    assert float(words[2]) == pytest.approx(int(words[1]) / whole, rel=0.001)
    said = must_run("patch", "inspect", folder / "p").decode()
    assert " times larger than the new weights\n" in said
    merge = ["merge", folder / "a", folder / "p", "-o", folder / "merged"]
    assert b" times larger than the old model\n" in must_run("patch", *merge)


def test_without_a_digest_of_the_file_no_more_is_promised(folder: Path) -> None:
    """Patches of deltawire 0.1 are read; what is said of them is true."""
    golden = ROOT / "tests" / "golden" / "patch_files" / "other_header"
    old, patch = golden.with_suffix(".old"), golden.with_suffix(".patch")
    said = must_run("patch", "apply", old, patch, folder / "out").decode()
    assert (folder / "out").read_bytes() == golden.with_suffix(".new").read_bytes()
    assert "the new tensors bit for bit (the patch has no digest" in said
    said = must_run("patch", "verify", old, patch).decode()
    assert ": the new tensors bit for bit (" in said and ": right" not in said
    assert json.loads(must_run("patch", "inspect", patch, "--json"))["file_digest"] is None
    assert "no digest" in must_run("patch", "inspect", patch).decode()


def test_what_make_says(folder: Path) -> None:
    said = must_run("patch", "make", folder / "v0", folder / "v1", folder / "p").decode()
    count, new_count = ((folder / name).stat().st_size for name in ("p", "v1"))
    words = re.fullmatch(r"(.*): ([\d,]+) bytes, ([\d.]+) times smaller than the new model\n", said)
    assert words[1] == str(folder / "p") and words[2] == f"{count:,}"
    assert float(words[3]) == pytest.approx(new_count / count, rel=0.001)


def test_dtypes_without_a_type_of_their_own_are_bytes(folder: Path) -> None:
    for name, step in (("a", 0), ("b", 1)):
        packed = np.arange(60, dtype=np.uint8) + step
        tensors = {"f4": ("F4", packed), "f6": ("F6_E3M2", packed), **weights(step)}
        write_model(folder / name, tensors)
    must_run("patch", "make", folder / "a", folder / "b", folder / "p")
    facts = json.loads(must_run("patch", "inspect", folder / "p", "--json"))
    assert [tensor["type"] for tensor in facts["tensors"][:2]] == ["int8", "int8"]
    must_run("patch", "apply", folder / "a", folder / "p", folder / "out")
    assert (folder / "out").read_bytes() == (folder / "b").read_bytes()


def test_inspect_for_programs(folder: Path, patch: Path) -> None:
    facts = json.loads(must_run("patch", "inspect", patch, "--json"))
    assert (facts["from"], facts["to"], facts["has_header"]) == ("v0", "", False)
    assert facts["bytes"] == patch.stat().st_size
    assert len({facts["file_digest"], facts["old_digest"], facts["new_digest"]}) == 3
    layer, norm = facts["tensors"]
    assert (layer["name"], layer["type"], layer["elements"]) == (
        "layers.0.weight",
        "bfloat16",
        60000,
    )
    assert (layer["changes"], layer["new_bytes"], layer["full"]) == (600, 120000, False)
    assert (layer["chunks"], layer["changed_chunks"], layer["full_chunks"]) == (1, 1, 0)
    assert norm["changes"] == 0 and norm["old_digest"] == norm["new_digest"]
    assert (norm["chunks"], norm["changed_chunks"]) == (1, 0)
    assert layer["old_digest"] != layer["new_digest"] != facts["new_digest"] != facts["old_digest"]
    assert facts["new_bytes"] == 120000 + 256
    make = ["patch", "make", folder / "v1", folder / "v0", folder / "back", "--to", "v0"]
    must_run(*make, "--from", "v1")
    back = json.loads(must_run("patch", "inspect", folder / "back", "--json"))
    assert (back["from"], back["to"]) == ("v1", "v0")
    assert (back["old_digest"], back["new_digest"]) == (facts["new_digest"], facts["old_digest"])
    assert back["tensors"][0]["old_digest"] == layer["new_digest"]


def test_inspect_for_people(folder: Path, patch: Path) -> None:
    tensors = weights(1)
    tensors["more\n\x1b[2J"] = ("I8", np.zeros(9, np.int8))
    write_model(folder / "more", tensors)
    must_run("patch", "make", folder / "v0", folder / "more", folder / "p")
    said = must_run("patch", "inspect", folder / "p").decode()
    assert "\x1b" not in said
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line.split()}
    assert rows["layers.0.weight"][:2] == ["60,000", "600"]
    assert rows["more"][-4:] == ["in", "full", "9", "1.000"]
    assert rows["all"][:2] == ["60,064", "600"]
    assert rows["all"][2] == f"{9 + sum(int(rows[n][2]) for n in ('layers.0.weight', 'norm')):,}"
    facts = json.loads(must_run("patch", "inspect", patch, "--json"))
    first, old, new, file = must_run("patch", "inspect", patch).decode().splitlines()[:4]
    assert first.startswith(f"{patch}: {facts['bytes']:,} bytes, ")
    assert old.split() == ["from", facts["old_digest"], "v0"]
    assert new.split() == ["to", facts["new_digest"]]
    assert file.split() == ["file", facts["file_digest"]]


def test_changes_in_full_are_not_counted(folder: Path) -> None:
    """All bits of all weights, beside a tensor in which one changes."""
    random = np.random.default_rng(3)
    models = (
        [random.integers(0, 1 << 32, 500, np.uint32), np.arange(500, dtype=np.uint32)] for _ in "12"
    )
    for name, (noise, few) in zip(("a", "b"), models, strict=True):
        few[7] += name == "b"
        write_model(folder / name, {"noise": ("U32", noise), "few": ("U32", few)})
    must_run("patch", "make", folder / "a", folder / "b", folder / "p")
    lines = must_run("patch", "inspect", folder / "p").decode().splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    assert rows["noise"][:3] == ["500", "over", "0"]
    assert rows["few"][:2] == ["500", "1"]
    assert rows["all"][:3] == ["1,000", "over", "1"]


def test_merge_is_the_patch_from_first_to_last(folder: Path) -> None:
    steps = []
    for version in (1, 2, 3):
        steps.append(folder / f"p{version}")
        must_run("patch", "make", folder / f"v{version - 1}", folder / f"v{version}", steps[-1])
    must_run("patch", "make", folder / "v0", folder / "v3", folder / "direct")
    must_run("patch", "merge", folder / "v0", *steps, "-o", folder / "merged")
    assert (folder / "merged").read_bytes() == (folder / "direct").read_bytes()
    names = ["--from", "first", "--to", "last", "--force"]
    said = must_run("patch", "merge", folder / "v0", *steps, "-o", folder / "merged", *names)
    assert said.startswith(f"{folder / 'merged'}: ".encode())
    facts = json.loads(must_run("patch", "inspect", folder / "merged", "--json"))
    assert (facts["from"], facts["to"]) == ("first", "last")
    words = ["p3: ", "order of versions"]
    gap = ["merge", folder / "v0", steps[0], steps[2], "-o", folder / "no"]
    assert_patch_refused(folder, FAILURE, words, *gap)


def test_the_guides_commands(folder: Path) -> None:
    """Those of docs/guides/weights.md."""
    guide = (ROOT / "docs" / "guides" / "weights.md").read_text()
    before = "<!-- block: run by tests/cli/test_patch.py -->\n```bash\n"
    script = guide.split(before)[1].split("```")[0]
    for version in (1, 2):
        (folder / f"v{version}").rename(folder / f"v{version}.safetensors")
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env=os.environ | {"PATH": f"{BINARY.parent}:{os.environ['PATH']}"},
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"v1-v2.safetensors: " in done.stdout and b"layers.0.weight" in done.stdout


def test_other_models_and_files_are_refused(folder: Path, patch: Path) -> None:
    out = folder / "out"
    words = ["v2: tensor 'layers.0.weight'", "get the patch from this version"]
    assert_patch_refused(folder, FAILURE, words, "apply", folder / "v2", patch, out)
    assert_patch_refused(folder, FAILURE, words, "verify", folder / "v2", patch)
    words = ["v1: ", "is no patch file", "deltawire patch make"]
    assert_patch_refused(folder, FAILURE, words, "apply", folder / "v0", folder / "v1", out)
    assert_patch_refused(folder, FAILURE, words, "inspect", folder / "v1")
    words = ["gone: no such file"]
    assert_patch_refused(folder, FAILURE, words, "make", folder / "gone", folder / "v1", out)
    assert_patch_refused(folder, FAILURE, words, "apply", folder / "v0", folder / "gone", out)
    (folder / "text").write_text("a file of text, which is no model")
    words = ["text: is no safetensors file"]
    assert_patch_refused(folder, FAILURE, words, "make", folder / "text", folder / "v1", out)


def test_damage_is_named(folder: Path, patch: Path) -> None:
    sound = patch.read_bytes()
    patch.write_bytes(sound[:-1])
    words = ["p1: the file has", "get it again"]
    assert_patch_refused(folder, FAILURE, words, "apply", folder / "v0", patch, folder / "out")
    at = sound.index(b"DWPATCH\n")
    patch.write_bytes(sound[: at + 70] + bytes([sound[at + 70] ^ 1]) + sound[at + 71 :])
    words = ["p1: tensor 'patch:layers.0.weight': the checksum", "get the patch again"]
    assert_patch_refused(folder, FAILURE, words, "apply", folder / "v0", patch, folder / "out")
    assert_patch_refused(folder, FAILURE, words, "inspect", patch)


def test_outputs(folder: Path, patch: Path) -> None:
    make = ["make", folder / "v0", folder / "v1"]
    assert_patch_refused(folder, FAILURE, ["p1: exists already", "--force"], *make, patch)
    must_run("patch", *make, patch, "--force")
    for write in (["apply", folder / "v0", patch], ["merge", folder / "v0", patch, "-o"]):
        (folder / "out").write_text("kept")
        assert_patch_refused(
            folder, FAILURE, ["out: exists already", "--force"], *write, folder / "out"
        )
        must_run("patch", *write, folder / "out", "--force")
        assert (folder / "out").stat().st_size > 4
    (folder / "out").unlink()
    words = ["v1: is the input itself"]
    assert_patch_refused(folder, FAILURE, words, *make, folder / "v1", "--force")
    assert_patch_refused(folder, FAILURE, ["folder does not exist"], *make, folder / "no" / "p")
    for arguments in (
        [*make, "-"],
        ["apply", "-", patch, folder / "out"],
        ["apply", folder / "v0", "-", folder / "out"],
        ["apply", folder / "v0", patch, "-"],
        ["verify", "-", patch],
        ["verify", folder / "v0", "-"],
        ["make", "-", folder / "v1", folder / "out"],
        ["make", folder / "v0", "-", folder / "out"],
        ["merge", "-", patch, "-o", folder / "out"],
        ["merge", folder / "v0", "-", "-o", folder / "out"],
        ["inspect", "-"],
        ["merge", folder / "v0", patch, "-o", "-"],
    ):
        assert_patch_refused(folder, USAGE, ["- is no file"], *arguments)
    assert_patch_refused(folder, USAGE, ["patch make", "PATCH", "required"], *make)
    assert_patch_refused(folder, USAGE, ["patch", "subcommand"])


def test_a_full_disk_leaves_nothing(folder: Path, patch: Path) -> None:
    before = sorted(folder.iterdir())
    line = f"ulimit -f 20; exec '{BINARY}' patch apply v0 p1 out"
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == FAILURE
    assert done.stderr == b"deltawire: out: cannot be written: File too large\n"
    assert sorted(folder.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(folder: Path, patch: Path) -> None:
    locked = folder / "locked"
    locked.mkdir(mode=0o500)
    assert_refused(
        FAILURE, ["locked", "denied"], "patch", "apply", folder / "v0", patch, locked / "o"
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of 240 MB, mostly holes in their files."""
    folder = tmp_path_factory.mktemp("large")
    for name in ("old", "new"):
        count = 120_000_000
        entry = {"dtype": "BF16", "shape": [count], "data_offsets": [0, 2 * count]}
        text = json.dumps({"w": entry}).encode()
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + 2 * count)
    with (folder / "new").open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"x")
    return folder


def test_progress_is_shown_on_a_terminal_alone(large: Path) -> None:
    arguments = ["patch", "make", large / "old", large / "new", large / "p", "--force"]
    shown = shown_on_terminal(*arguments)
    assert "\rcomparing: " in shown and " of 240 MB" in shown
    assert run(*arguments).stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(large: Path, number: signal.Signals) -> None:
    """Once its unfinished file is there."""
    before = set(large.iterdir())
    command = [BINARY, "patch", "make", large / "old", large / "new", large / "interrupted"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as program:
        while set(large.iterdir()) == before and program.poll() is None:
            pass
        program.send_signal(number)
        said = program.communicate(timeout=TIMEOUT)[1]
    assert program.returncode == INTERRUPTED, said
    assert said == b"deltawire: interrupted, and nothing was written\n"
    assert set(large.iterdir()) == before
