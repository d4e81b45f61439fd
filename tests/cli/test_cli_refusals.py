"""Every bad input: one line that names it, the right exit status, and no file left over."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_program import BINARY, FAILURE, TIMEOUT, USAGE, assert_refused, encode


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.npy"
    np.save(path, np.linspace(-1, 1, 1000, dtype=np.float32))
    return path


def assert_encode_refused(source: Path, status: int, words: list[str], spec: str = "3lc") -> None:
    before = sorted(source.parent.iterdir())
    assert_refused(status, words, "encode", spec, source, source.parent / "out.dw")
    assert sorted(source.parent.iterdir()) == before


def assert_decode_refused(folder: Path, data: bytes, words: list[str]) -> None:
    file = folder / "bad.dw"
    file.write_bytes(data)
    before = sorted(folder.iterdir())
    assert_refused(FAILURE, ["bad.dw", *words], "decode", file, folder / "out.npy")
    assert_refused(FAILURE, ["bad.dw", *words], "inspect", file)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "spec,words",
    [
        ("4lc", ["4lc", "did you mean 3lc?"]),
        ("", ["codec"]),
        ("3lc:s=2", ["s=2", "0.5 <= s < 2"]),
        ("3lc\nrm", ["3lc rm"]),
        ("conv*: 3lc, rest fp32", ["one codec", "rules"]),
    ],
)
def test_bad_spec(source: Path, spec: str, words: list[str]) -> None:
    assert_encode_refused(source, USAGE, words, spec)


@pytest.mark.parametrize(
    "arguments,words",
    [
        ([], ["no command"]),
        (["squeeze", "a"], ["squeeze", "--help"]),
        (["--loud"], ["--loud", "--help"]),
        (["encode"], ["encode", "SPEC", "required"]),
        (["encode", "3lc", "a.npy"], ["OUT", "required"]),
        (["decode", "a.dw", "b.npy", "c"], ["c", "not expected"]),
        (["inspect", "a.dw", "--jsn"], ["--jsn"]),
        (
            ["encode", "3lc", "a", "b", "--min-elements", "-1"],
            ["--min-elements: '-1' is no count: write 23600000, 23.6m, 7b or 2e6; see"],
        ),
        (["compare", "--input", "a", "--min-elements", "10x"], ["--min-elements: '10x' is no"]),
        (["encode", "3lc", "a", "b", "--part-elements", "7b"], ["must be 1 to 4,294,967,295"]),
        (["plan", "--link", "1gbit", "--parameters", "2t"], ["must be 1 to 1,099,511,627,776"]),
        (["train", "nope"], ["train: unknown command \"nope\"; see 'deltawire train --help'"]),
        (["train"], ["train: A subcommand is required"]),
        (["encode", "3lc", "a", "b", "--min-elements", "many"], ["many", "--min-elements"]),
        (["encode", "3lc", "a", "b", "--min-elements", "1.5"], ["1.5", "--min-elements"]),
        (
            ["plan", "--link", "1gbit", "--cores", "nan"],
            ["--cores: Value nan must be 0.01 to 4096"],
        ),
        (["train", "linear", "--batch", "nan"], ["--batch: Value nan must be above 0"]),
        (["train", "linear", "--l2", "-1"], ["--l2: Value -1 must be 0 or more;"]),
    ],
)
def test_bad_usage(arguments: list[str], words: list[str]) -> None:
    assert_refused(USAGE, words, *arguments)


@pytest.mark.parametrize(
    "variable,value,advice",
    [("FORCE_TARGET", "sse9", "give one of reference"), ("HUGE_PAGES", "0", 'neither "on" nor')],
)
def test_variables_with_an_unknown_value(
    variable: str, value: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in.npy"
    monkeypatch.setenv(f"DELTAWIRE_{variable}", "")
    coded = encode(tmp_path, "3lc", np.zeros(1000, np.float32))
    monkeypatch.setenv(f"DELTAWIRE_{variable}", value)
    words = [f"DELTAWIRE_{variable}", f'"{value}"', advice]
    assert_encode_refused(source, USAGE, words)
    assert_refused(USAGE, words, "codecs")
    assert_refused(FAILURE, words, "decode", coded, tmp_path / "out.npy")


@pytest.mark.parametrize("value,word", [(np.nan, "NaN"), (np.inf, "Inf"), (-np.inf, "Inf")])
def test_value_that_3lc_refuses(source: Path, value: float, word: str) -> None:
    values = np.zeros(1000, np.float32)
    values[321] = value
    np.save(source, values)
    assert_encode_refused(source, FAILURE, ["in.npy", "321", word])


def test_scale_beyond_float32(source: Path) -> None:
    np.save(source, np.full(1000, 3e38, np.float32))
    assert_encode_refused(source, FAILURE, ["in.npy", "float32"], "3lc:s=1.75")


@pytest.mark.parametrize(
    "dtype,words",
    [
        ("<f16", ["float128", ".astype('float32')"]),
        ("<i4", ["int32", ".astype('float32')"]),
        ("|b1", ["bool", ".astype('float32')"]),
        ("<c8", ["complex64", ".astype('float32')"]),
        ([("a", "<f4")], ["structured", "array['FIELD'].astype('float32')"]),
        ("<U5", ["texts", "takes numbers"]),
        ("|S5", ["texts", "takes numbers"]),
    ],
    ids=str,
)
def test_wrong_dtype(source: Path, dtype: object, words: list[str]) -> None:
    np.save(source, np.zeros(300, dtype))
    assert_encode_refused(source, FAILURE, ["in.npy", *words])


def test_npy_of_another_length(source: Path) -> None:
    data = source.read_bytes()
    source.write_bytes(data[:-1])
    assert_encode_refused(source, FAILURE, ["in.npy", "4,000", "3,999"])
    source.write_bytes(data + b"?")
    assert_encode_refused(source, FAILURE, ["in.npy", "4,000", "4,001"])
    for length in (0, 5, 6, 7, 8, 9, 10, 50, 127):
        source.write_bytes(data[:length])
        assert_encode_refused(source, FAILURE, ["in.npy", ".npy"])


def npy(header: str, version: int = 1) -> bytes:
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode()


def f4(shape: str) -> str:
    return f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    "data,words",
    [
        (b"PK\x03\x04 an .npz", ["zip archive", "copy the file again"]),
        (b"no magic", ["is not a .npy file"]),
        (npy(f4("(1,)"), version=4), ["version 4"]),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", ["4,294,967,295"]),
        (npy(""), ["dictionary"]),
        (npy("{"), ["dictionary"]),
        (npy("{'descr': '<f4'}"), ["fortran_order"]),
        (npy("{'descr': '<f4"), ["descr"]),
        (npy(f4("(-1,)")), ["shape"]),
        (npy(f4("(1")), ["shape"]),
        (npy(f4("(,)")), ["shape"]),
        (npy(f4("(99999999999999999999,)")), ["shape"]),
        (npy(f4("(4294967296,)")), ["2^32"]),
        (npy(f4("(65536, 65536)")), ["2^32"]),
        (npy(f4("(2, 4294967295, 4294967295, 4294967295)")), ["2^32"]),
        (npy(f4("(4294967295,)")), ["17,179,869,180 bytes", "found 0"]),
        (npy(f4("(1, 1, 1, 1, 1, 1, 1, 1, 1)")), ["9 dimensions"]),
        (npy(f4("(1,)") + "import os"), ["after the dictionary"]),
        (npy(f4("(1,)").replace("descr", "dtype")), ["unexpected key"]),
        (npy(f4("(1,)").replace("<f4", "<f999999999999999999999")), ["<f99"]),
    ],
    ids=range(20),
)
def test_hostile_npy(source: Path, data: bytes, words: list[str]) -> None:
    source.write_bytes(data)
    assert_encode_refused(source, FAILURE, ["in.npy", *words])


def test_missing_and_unreadable_inputs(tmp_path: Path) -> None:
    for command in (["encode", "3lc"], ["decode"]):
        missing, folder, out = tmp_path / "gone", tmp_path / "folder", tmp_path / "out"
        folder.mkdir(exist_ok=True)
        assert_refused(FAILURE, ["gone", "no such file"], *command, missing, out)
        assert_refused(FAILURE, ["folder"], *command, folder, out)
        assert not out.exists()
    assert_refused(FAILURE, ["gone", "no such file"], "inspect", missing)
    assert list(tmp_path.iterdir()) == [folder]


def test_bad_outputs(tmp_path: Path, source: Path) -> None:
    taken = tmp_path / "taken.dw"
    taken.write_bytes(b"precious")
    encode_to = ["encode", "3lc", source]
    assert_refused(FAILURE, ["taken.dw", "--force"], *encode_to, taken)
    assert taken.read_bytes() == b"precious"
    assert_refused(FAILURE, ["folder"], *encode_to, tmp_path / "no" / "out.dw")
    assert_refused(FAILURE, ["in.npy/out.dw"], *encode_to, source / "out.dw")
    assert_refused(FAILURE, ["name is empty"], *encode_to, "")
    assert_refused(FAILURE, ["is a folder"], *encode_to, tmp_path, "--force")
    assert_refused(FAILURE, ["/dev/null", "regular"], *encode_to, "/dev/null", "--force")
    assert_refused(FAILURE, ["/proc/out.dw"], *encode_to, "/proc/out.dw")
    assert sorted(tmp_path.iterdir()) == [source, taken]


@pytest.mark.parametrize(
    "line",
    [
        "compare --input {} --json",
        "compare --input {folder} --json",  # a trace
        "plan --link 1mbit --input {} --json",
        "plan --link 1mbit --figures {} --json",
        "doctor --token-file {} --json",
        "train linear --data {} --model",
        "train linear --data - --test {folder}/trace* --json",
    ],
)
def test_no_output_replaces_an_input(tmp_path: Path, line: str) -> None:
    source = tmp_path / "trace.json"
    source.write_bytes(b"precious" * 8)
    words = line.format(source, folder=tmp_path).split()
    assert_refused(FAILURE, ["is the input itself"], *words, source, "--force")
    assert source.read_bytes() == b"precious" * 8


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(tmp_path: Path, source: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert_refused(FAILURE, ["locked", "denied"], "encode", "3lc", source, locked / "out.dw")


def test_failed_force_leaves_the_old_file(tmp_path: Path, source: Path) -> None:
    old = tmp_path / "old.dw"
    old.write_bytes(b"precious")
    np.save(source, np.full(1000, np.nan, np.float32))
    assert_refused(FAILURE, ["NaN"], "encode", "3lc", source, old, "--force")
    assert old.read_bytes() == b"precious"
    assert sorted(tmp_path.iterdir()) == [source, old]


def test_full_disk(source: Path) -> None:
    with open("/dev/full", "wb") as full:
        for arguments in (["codecs"], ["encode", "fp32", str(source), "-"]):
            command = [str(BINARY), *arguments]
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT, check=False
            )
            assert done.returncode == FAILURE
            assert b"standard output" in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    pipe = tmp_path / "in.npy"
    os.mkfifo(pipe)
    command = [BINARY, "encode", "3lc", pipe, tmp_path / "out.dw"]
    # Opening the pipe waits until the program opens its end, which it does after it has begun the
    # output.
    with subprocess.Popen(command) as program, pipe.open("wb"):
        assert len(list(tmp_path.iterdir())) == 2
        program.send_signal(number)
        assert program.wait(TIMEOUT) == -number
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    values = np.random.default_rng(3).standard_normal(5000).astype(np.float32)
    return encode(tmp_path_factory.mktemp("good"), "3lc", values).read_bytes()


def header_bytes(data: bytes) -> int:
    return int.from_bytes(data[12:16], "little")


def test_damage_is_detected(tmp_path: Path, good: bytes) -> None:
    """Changed bytes, a missing end, more than there was: src/channel has all cases."""
    changed = bytearray(good)
    changed[len(good) // 2] ^= 1
    for data in (bytes(changed), good[:-1], good[: header_bytes(good)], b"", good + b"\0"):
        assert_decode_refused(tmp_path, data, [])


def test_another_file_type(tmp_path: Path) -> None:
    assert_decode_refused(tmp_path, b"\x93NUMPY" + bytes(1000), ["is not a .dw file"])


def test_newer_formats(tmp_path: Path, good: bytes) -> None:
    # The file's version, of which only one can be read, and its frame's version.
    for at, newest, read in ((8, 1, "format 1;"), (header_bytes(good) + 4, 4, "format 1 to 4;")):
        data = bytearray(good)
        data[at] = newest + 1
        assert_decode_refused(tmp_path, bytes(data), [f"format {newest + 1}", read, "newer"])
        data[at] = 0
        assert_decode_refused(tmp_path, bytes(data), ["format 0", read, "that wrote it"])
