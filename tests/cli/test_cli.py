"""The command line does what its help says: round trips, sizes, inspection."""

import io
import json
import os
import re
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli_program import decode, encode, must_run, run
from spec_codecs import CODECS
from spec_decoder import decode_file

SHAPES = [(), (0,), (3, 0, 2), (1,), (5,), (1000,), (3, 4, 5), (600, 700)]


def listed_codecs() -> list[dict]:
    return json.loads(must_run("codecs", "--json"))["codecs"]


SPECS = [spec for codec in listed_codecs() for spec in [codec["name"], *codec["examples"]]]
FROZEN = {spec for spec in SPECS if spec.partition(":")[0] in CODECS}


def gradient(shape: tuple[int, ...], seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("spec", SPECS)
def test_round_trip(tmp_path: Path, spec: str) -> None:
    """The program decodes a file to the same values as the decoder written from the documents."""
    values = gradient((100_003,))
    file = encode(tmp_path, spec, values, "--min-elements", 0)
    back = decode(tmp_path, file)
    assert back.shape == values.shape and back.dtype == np.float32
    if spec in FROZEN:
        assert back.tobytes() == decode_file(file.read_bytes()).tobytes()
    facts = json.loads(must_run("inspect", file, "--json"))
    assert facts["shape"] == list(values.shape)
    check_sections(facts, file.stat().st_size)


@pytest.mark.parametrize(
    ("spec", "least"), [*((spec, 0) for spec in SPECS), ("3lc", None), ("fp32", None)]
)
def test_every_shape(tmp_path: Path, spec: str, least: int | None) -> None:
    """So it does with arrays of every shape in one archive; by default small ones stay float32."""
    source, coded, back = tmp_path / "in.npz", tmp_path / "coded.dwz", tmp_path / "back.npz"
    shapes = SHAPES if least is None else SHAPES[:-1]  # the largest is coded in any case
    arrays = {str(shape): gradient(shape) for shape in shapes}
    np.savez(source, **arrays)
    options = () if least is None else ("--min-elements", least)
    must_run("encode", spec, source, coded, *options)
    must_run("decode", coded, back)
    inspected = json.loads(must_run("inspect", coded, "--json"))["arrays"]
    with zipfile.ZipFile(coded) as archive, np.load(back) as found:
        assert list(found) == [facts["file"] for facts in inspected] == list(arrays)
        for (name, values), facts in zip(arrays.items(), inspected, strict=True):
            coded_values = archive.read(f"{name}.dw")
            assert found[name].shape == values.shape and found[name].dtype == np.float32
            if values.size <= 1000 and spec in FROZEN:  # the decoder is slow
                assert found[name].tobytes() == decode_file(coded_values).tobytes()
            assert facts["shape"] == list(values.shape)
            check_sections(facts, len(coded_values))


def check_sections(facts: dict, size: int) -> None:
    """What `inspect` says of a file's parts is the file."""
    sections = {section["name"]: section["bits"] for section in facts["sections"]}
    assert sum(sections.values()) == facts["bits"] == 8 * size
    assert len(sections) == len(facts["sections"])
    frames = facts["frames"]
    assert facts["header_bytes"] + sum(frame["bytes"] for frame in frames) == size
    assert sections.get("frame headers", 0) == 8 * 34 * len(frames)
    head = sum(frame["bytes"] - frame["payload_bytes"] for frame in frames)
    assert sections.get("segment table", 0) == 8 * (head - 34 * len(frames))
    assert sum(part["count"] for frame in frames for part in frame["segments"]) == facts["count"]
    assert [frame["seq"] for frame in frames] == list(range(len(frames)))
    for frame in frames:
        assert sum(sum(part["chunk_bytes"]) for part in frame["segments"]) == frame["payload_bytes"]
        assert sum(len(part["chunk_bytes"]) for part in frame["segments"]) == frame["chunks"]
    if facts["count"]:
        assert facts["bits_per_value"] == pytest.approx(8 * size / facts["count"])
        assert facts["times_smaller"] == pytest.approx(4 * facts["count"] / size)


def test_small_arrays_stay_float32_unless_told_otherwise(tmp_path: Path) -> None:
    values = gradient((255,))
    assert decode(tmp_path, encode(tmp_path, "3lc", values)).tobytes() == values.tobytes()
    changed = decode(tmp_path, encode(tmp_path, "3lc", values, "--min-elements", 255))
    assert len(np.unique(changed)) <= 3


def test_written_npy_is_what_numpy_writes(tmp_path: Path) -> None:
    for shape in [*SHAPES, (100_003,)]:
        decode(tmp_path, encode(tmp_path, "fp32", gradient(shape)))
        assert (tmp_path / "decoded.npy").read_bytes() == (tmp_path / "values.npy").read_bytes()


def test_fp32_carries_every_bit_pattern(tmp_path: Path) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38] * 100, np.float32)
    assert decode(tmp_path, encode(tmp_path, "fp32", values)).tobytes() == values.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(tmp_path: Path, version: tuple[int, int]) -> None:
    source = tmp_path / "in.npy"
    with source.open("wb") as file:
        np.lib.format.write_array(file, gradient((7, 3)), version=version)
    must_run("encode", "fp32", source, tmp_path / "out.dw")
    assert np.array_equal(decode(tmp_path, tmp_path / "out.dw"), gradient((7, 3)))


def test_npy_header_in_another_style(tmp_path: Path) -> None:
    # Other order, other quotes, no padding: the values lie at an odd address.
    header = b"{\"shape\":(2L,), \"fortran_order\" : False,'descr':'<f4'}"
    header += b" " * (1 - len(header) % 2)
    prefix = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    assert len(prefix) % 2 == 1
    values = np.array([1.5, -2.5], np.float32)
    (tmp_path / "in.npy").write_bytes(prefix + values.tobytes())
    must_run("encode", "fp32", tmp_path / "in.npy", tmp_path / "out.dw")
    assert np.array_equal(decode(tmp_path, tmp_path / "out.dw"), values)


def test_pipes(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, gradient((1000,)))
    encoded = run("encode", "fp32", "-", "-", stdin=buffer.getvalue())
    assert encoded.returncode == 0 and b"times larger" in encoded.stderr  # fp32 and a header
    assert must_run("decode", "-", "-", stdin=encoded.stdout) == buffer.getvalue()
    assert b"1,000 values" in must_run("inspect", "-", stdin=encoded.stdout)
    assert not any(tmp_path.iterdir())


def test_output_has_usual_permissions_and_force_keeps_a_link(tmp_path: Path) -> None:
    file = encode(tmp_path, "fp32", gradient((300,)))
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~mask
    link = tmp_path / "link.dw"
    link.symlink_to(file)
    must_run("encode", "bf16", tmp_path / "values.npy", link, "--force")
    assert link.is_symlink() and b"bf16" in file.read_bytes()


def test_one_line_tells_the_ratio(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", gradient((1000, 1000)))
    printed = must_run("encode", "bf16", tmp_path / "in.npy", tmp_path / "out.dw").decode()
    said, loss = printed.splitlines()
    assert loss.startswith("relative error ")
    for word in (
        "out.dw: ",
        "1,000,000 values",
        "4,000,000 -> 2,000,",
        "2.000 times smaller",
        "16.00 bits",
    ):
        assert word in said


def test_inspect_for_people(tmp_path: Path) -> None:
    said = must_run("inspect", encode(tmp_path, "3lc:s=1.75", gradient((600, 700)))).decode()
    words = ["3lc:s=1.75,mode=auto,runs=on", "(600, 700)", "420,000 values", "times smaller"]
    words += ["frame headers", "segment table", "Frame 0", "segment: values 0 to 419,999 by 3lc"]
    for word in words:
        assert word in said


def test_codecs_for_people_and_programs() -> None:
    said = must_run("codecs").decode()
    for codec in listed_codecs():
        assert f"{codec['name']} (id {codec['id']}): {codec['summary']}" in said
        assert codec["source"] in said and codec["default_spec"] in said
        assert ", ".join(codec["examples"]) in said
        for parameter in codec["parameters"]:
            assert f"{parameter['name']}={parameter['default']}  ({parameter['range']})" in said
            assert parameter["meaning"] in said


def test_codecs_says_which_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTAWIRE_FORCE_TARGET", raising=False)
    targets = json.loads(must_run("codecs", "--json"))["kernel_targets"]
    assert targets[0] == {"name": "reference", "runs_here": True}
    best = [target["name"] for target in targets if target["runs_here"]][-1]
    assert json.loads(must_run("codecs", "--json"))["kernel_target"] == best
    for target in targets:
        if not target["runs_here"]:
            continue
        monkeypatch.setenv("DELTAWIRE_FORCE_TARGET", target["name"])
        assert json.loads(must_run("codecs", "--json"))["kernel_target"] == target["name"]
        assert f"Kernels run for: {target['name']}." in must_run("codecs").decode()


COMMANDS = ["", "codecs", "encode", "decode", "inspect", "compare", "plan", "doctor", "patch"]
COMMANDS += [f"patch {name}" for name in ("make", "apply", "verify", "inspect", "merge")]
COMMANDS += ["train", "train linear", "predict", "generate"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_examples(command: str) -> None:
    said = must_run(*command.split(), "--help").decode()
    assert re.search(r"^Examples?:\n  deltawire ", said, re.MULTILINE)
    assert all(len(line) <= 110 for line in said.splitlines())


def test_version() -> None:
    assert must_run("--version").decode().startswith("deltawire 0.")
