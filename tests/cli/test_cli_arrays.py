"""Arrays of every kind that NumPy saves: types, orders, archives, parts, pipes."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli_program import (
    BINARY,
    FAILURE,
    TIMEOUT,
    assert_refused,
    decode,
    encode,
    must_run,
    run,
    shown_on_terminal,
)
from spec_decoder import decode_file

GIB = 1 << 30


def gradient(shape: tuple[int, ...], seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bf16_npy(values: np.ndarray) -> bytes:
    """What numpy.save writes for an ml_dtypes.bfloat16 array with these bits."""
    buffer = io.BytesIO()
    np.save(buffer, values.view("V2"))
    return buffer.getvalue().replace(b"'|V2'", b"'<V2'")


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<f2", ">f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders_are_kept_exactly(tmp_path: Path, dtype: str, order: str) -> None:
    values = gradient((7, 5, 3)).astype("<f2").astype(dtype, order=order)
    back = decode(tmp_path, encode(tmp_path, "fp32", values, "--min-elements", 0))
    assert back.dtype == (np.float16 if dtype[1:] == "f2" else np.float32)
    assert np.array_equal(back, values)


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    bits = np.arange(0x3F80, 0x3F80 + 1000, dtype="<u2")
    (tmp_path / "in.npy").write_bytes(bf16_npy(bits))
    must_run("encode", "bf16", tmp_path / "in.npy", tmp_path / "in.dw", "--min-elements", 0)
    assert b"bfloat16" in must_run("inspect", tmp_path / "in.dw")
    must_run("decode", tmp_path / "in.dw", tmp_path / "out.npy")
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "in.npy").read_bytes()
    np.save(tmp_path / "void.npy", bits.view("V2"))
    refused = ["void.npy", "ml_dtypes.bfloat16"]
    assert_refused(FAILURE, refused, "encode", "bf16", tmp_path / "void.npy", tmp_path / "x.dw")


@pytest.mark.parametrize(
    "descr", ["f4", "=f4", "float32", "f8", "=f8", "float64", "f2", "=f2", "float16"]
)
def test_every_spelling_that_numpy_reads(tmp_path: Path, descr: str) -> None:
    """Other programs than NumPy write such headers."""
    values = gradient((300,)).astype(np.float16).astype(descr)
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (300,), }}\n"
    length = len(header).to_bytes(2, "little")
    path = tmp_path / "in.npy"
    path.write_bytes(b"\x93NUMPY\x01\0" + length + header.encode() + values.tobytes())
    assert np.array_equal(np.load(path), values)
    must_run("encode", "zstd", path, tmp_path / "in.dw")
    assert np.array_equal(decode(tmp_path, tmp_path / "in.dw"), values)


@pytest.mark.parametrize("value", [0.1, 1e300, -1e-50])
def test_a_float64_that_is_not_exactly_a_float32_is_named(tmp_path: Path, value: float) -> None:
    values = np.zeros((300, 300))
    values[250, 1] = value
    np.save(tmp_path / "in.npy", values)
    words = ["in.npy", "element 75001", repr(value)[:4], "exactly a float32", ".astype('float32')"]
    assert_refused(FAILURE, words, "encode", "fp32", tmp_path / "in.npy", tmp_path / "out.dw")


def test_every_float64_that_is_a_float32_is_taken(tmp_path: Path) -> None:
    exact = np.array([np.inf, -np.inf, np.nan, -0.0, 1e-45, 3.4028234663852886e38, 2.0**-149])
    values = np.concatenate([exact.astype(np.float32).astype(np.float64)] * 50)
    back = decode(tmp_path, encode(tmp_path, "fp32", values))
    assert back.tobytes() == values.astype(np.float32).tobytes()


@pytest.mark.parametrize(
    "shape", [(40, 70), (2, 3, 500), (500, 3, 2), (1, 3000), (3000, 1, 1)], ids=str
)
def test_fortran_order_in_parts(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = gradient(shape)
    np.save(tmp_path / "f.npy", np.asfortranarray(values))
    must_run("encode", "fp32", tmp_path / "f.npy", tmp_path / "f.dw", "--part-elements", 700)
    assert np.array_equal(decode(tmp_path, tmp_path / "f.dw"), values)
    piped = (tmp_path / "f.npy").read_bytes()
    assert (
        run("encode", "fp32", "-", "-", "--part-elements", 700, stdin=piped).stdout
        == (tmp_path / "f.dw").read_bytes()
    )


@pytest.mark.parametrize("spec", ["3lc:s=1.5", "sbc:p=2%", "fp32"])
def test_parts_are_what_the_documents_say(tmp_path: Path, spec: str) -> None:
    values = gradient((50, 101))
    file = encode(tmp_path, spec, values, "--part-elements", 1000, "--min-elements", 100)
    back = decode(tmp_path, file)
    assert back.tobytes() == decode_file(file.read_bytes()).tobytes()
    assert np.array_equal(back.reshape(-1)[5000:], values.reshape(-1)[5000:])  # 50 values: raw
    alone = encode(tmp_path, spec, values.reshape(-1)[2000:3000])
    assert np.array_equal(decode(tmp_path, alone), back.reshape(-1)[2000:3000])


def test_inspect_knows_parts(tmp_path: Path) -> None:
    file = encode(tmp_path, "3lc", gradient((5050,)), "--part-elements", 1000)
    facts = json.loads(must_run("inspect", file, "--json"))
    assert facts["part_elements"] == 1000 and len(facts["frames"]) == 6
    assert sum(section["bits"] for section in facts["sections"]) == 8 * file.stat().st_size
    firsts = [frame["segments"][0]["first"] for frame in facts["frames"]]
    assert firsts == [0, 1000, 2000, 3000, 4000, 5000]
    said = must_run("inspect", file).decode()
    assert "6, each but the last of 1,000 values" in said and "values 5,000 to 5,049" in said


def arrays() -> dict[str, np.ndarray]:
    return {
        "conv1": gradient((6, 1, 5, 5), 1),
        "layer/bias": gradient((300,), 2).astype(np.float16),
        "scalar": np.float32(2.5),
        "none": np.zeros((0, 4), np.float32),
        "naïve": np.asfortranarray(gradient((20, 30), 3)),
    }


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("piped", [False, True])
def test_an_archive_of_arrays(tmp_path: Path, save, piped: bool) -> None:
    source, coded, back = tmp_path / "in.npz", tmp_path / "coded.dwz", tmp_path / "back.npz"
    save(source, **arrays())
    if piped:
        done = run("encode", "fp32", "-", "-", stdin=source.read_bytes())
        coded.write_bytes(done.stdout)
        back.write_bytes(must_run("decode", "-", "-", stdin=coded.read_bytes()))
    else:
        assert b"5 arrays, " in must_run("encode", "fp32", source, coded)
        assert b"5 arrays, " in must_run("decode", coded, back)
    with zipfile.ZipFile(coded) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"{name}.dw" for name in arrays()]
        first = archive.read("conv1.dw")
    assert np.array_equal(decode_file(first), arrays()["conv1"])
    with np.load(back) as found:
        assert list(found) == list(arrays())
        for name, values in arrays().items():
            assert found[name].dtype == values.dtype and np.array_equal(found[name], values)
    facts = json.loads(must_run("inspect", coded, "--json"))
    assert [array["file"] for array in facts["arrays"]] == list(arrays())
    assert b"coded.dwz: layer/bias.dw: " in must_run("inspect", coded)


def test_archives_that_are_refused(tmp_path: Path) -> None:
    source, out = tmp_path / "in.npz", tmp_path / "out.dwz"

    def refused(*words: str, command: tuple[str, ...] = ("encode", "fp32")) -> None:
        before = sorted(tmp_path.iterdir())
        assert_refused(FAILURE, ["in.npz", *words], *command, source, out)
        assert sorted(tmp_path.iterdir()) == before

    np.savez(source, good=gradient((300,)), bad=np.arange(300))
    refused("bad.npy", "int64", ".astype('float32')")
    refused("good.npy", "is not a .dw file", command=("decode",))
    data = source.read_bytes()
    source.write_bytes(data[: len(data) // 2])
    refused("zip", "copy the file again")
    flipped = bytearray(data)
    flipped[data.index(b"\x93NUMPY") + 200] ^= 1
    source.write_bytes(flipped)
    refused("zip", "CRC")
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("readme.txt", "hello")
    refused("readme.txt", "neither a .npy")
    with zipfile.ZipFile(source, "w") as archive:
        pass
    refused("without an array")
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("model/data.pkl", "hello")
    refused("PyTorch checkpoint", "numpy.savez")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(source, "w") as archive:
        archive.writestr("a.npy", b"")
        archive.writestr("a.npy", b"")
    refused('two arrays "a"')


@pytest.mark.parametrize("link", ["same", "symbolic", "hard", "stdin"])
@pytest.mark.parametrize("command", ["encode", "decode"])
def test_the_input_is_never_replaced(tmp_path: Path, command: str, link: str) -> None:
    np.save(tmp_path / "a.npy", gradient((300,)))
    source = (
        tmp_path / "a.npy" if command == "encode" else encode(tmp_path, "fp32", gradient((300,)))
    )
    before = source.read_bytes()
    target = source
    if link in ("symbolic", "hard"):
        target = tmp_path / "link"
        target.symlink_to(source) if link == "symbolic" else os.link(source, target)
    given = "-" if link == "stdin" else str(source)
    spec = ["fp32"] if command == "encode" else []
    with source.open("rb") as stdin:
        line = [BINARY, command, *spec, given, target, "--force"]
        done = subprocess.run(line, stdin=stdin, capture_output=True, timeout=TIMEOUT, check=False)
    assert done.returncode == FAILURE and b"is the input itself" in done.stderr
    assert source.read_bytes() == before


def test_output_to_the_input_through_the_shell_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "a.npy"
    np.save(source, gradient((300,)))
    with source.open("ab") as stdout:
        line = [BINARY, "encode", "fp32", source, "-"]
        done = subprocess.run(
            line, stdout=stdout, stderr=subprocess.PIPE, timeout=TIMEOUT, check=False
        )
    assert done.returncode == FAILURE and b"is the input itself" in done.stderr


def test_a_pipe_that_ends_early_or_late(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, gradient((1000,)))
    data = buffer.getvalue()
    words = ["standard input", "needs 4,000 bytes"]
    for late, more in ((data[:-1], "found 3,999"), (data + b"?", "found more")):
        assert_refused(
            FAILURE, [*words, more], "encode", "fp32", "-", tmp_path / "x.dw", stdin=late
        )
    assert not any(tmp_path.iterdir())


def test_a_pipe_that_never_ends_does_not_fill_the_disk() -> None:
    endless = "(printf 'PK\\003\\004'; cat /dev/zero) | \"$0\" inspect -"
    done = subprocess.run(
        ["sh", "-c", endless, BINARY], capture_output=True, timeout=TIMEOUT, text=True
    )
    assert done.returncode == FAILURE
    assert "standard input: does not end within 268435456 bytes" in done.stderr


def test_progress_is_shown_on_a_terminal_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", gradient((10_000,)))
    line = ("encode", "fp32", tmp_path / "in.npy", tmp_path / "out.dw", "--part-elements", "1000")
    said = shown_on_terminal(*line)
    assert "1,000 of 10,000 values: /" in said and "9,000 of 10,000" in said
    done = run("decode", tmp_path / "out.dw", tmp_path / "out.npy")
    assert done.stderr == b""


PEAK = """
import os, subprocess, sys
program = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(program.pid, 0)
print(usage.ru_maxrss * 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_bytes(*arguments: object) -> int:
    """Runs the program, which must succeed; returns its peak memory."""
    line = [sys.executable, "-c", PEAK, BINARY, *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(line, capture_output=True, timeout=TIMEOUT, check=False, env=env)
    assert done.returncode == 0, done.stderr.decode()
    return int(done.stdout.splitlines()[-1])


def test_memory_does_not_grow_with_the_array(tmp_path: Path) -> None:
    """An array of a quarter of a GiB (a hole in the file), read in parts of a million values,
    takes a tenth of that."""
    source, coded = tmp_path / "long.npy", tmp_path / "long.dw"
    count = GIB // 16
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (count,)}
    )
    with source.open("wb") as file:
        file.write(header.getvalue())
        file.truncate(len(header.getvalue()) + 4 * count)
    parts = ("--part-elements", 1_000_000)
    assert peak_bytes("encode", "3lc", source, coded, *parts) < 48 << 20
    assert peak_bytes("inspect", coded) < 48 << 20
