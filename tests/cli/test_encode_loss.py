"""`deltawire encode` reports the loss of precision, and warns if it is large."""

import re
import resource
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_program import BINARY, ROOT, TIMEOUT, decode, must_run, run

LOSSLESS = ("fp32", "zstd", "zlib")
LITTLE = ("bf16", "fp16", "int8", "fp8")  # for files
MUCH = ("3lc", "topk:k=1%", "onebit", "terngrad", "sbc:p=1%")  # for training


def weights(count: int = 50_000) -> np.ndarray:
    return np.random.default_rng(5).normal(size=count).astype(np.float32)


def relative_error(values: np.ndarray, decoded: np.ndarray) -> tuple[float, float]:
    """The relative L2 error, and the cosine."""
    a, b = values.astype(float), decoded.astype(float)
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return np.linalg.norm(b - a) / np.linalg.norm(a), a @ b / lengths


@pytest.mark.parametrize("spec", [*LOSSLESS, *LITTLE, *MUCH])
@pytest.mark.parametrize("part", [10**9, 999])
def test_relative_error_and_cosine_are_those_of_the_file(
    spec: str, part: int, tmp_path: Path
) -> None:
    values, source, target = weights(), tmp_path / "values.npy", tmp_path / "values.dw"
    np.save(source, values)
    done = run("encode", spec, source, target, "--part-elements", min(part, 2**32 - 1))
    said = done.stdout.decode()
    assert done.returncode == 0
    if spec in LOSSLESS:
        assert "relative error" not in said and done.stderr == b""
        return
    found = re.search(r"^relative error (\S+) \(L2\), cosine (\S+)$", said, re.MULTILINE)
    expected = relative_error(values, decode(tmp_path, target))
    assert [float(number) for number in found.groups()] == pytest.approx(expected, rel=2e-3)
    if spec in LITTLE:
        assert done.stderr == b"" and expected[0] < 0.05
    else:
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("warning: ") and f"{spec} is made for training" in line
        assert "take zstd, bf16 or int8" in line and expected[0] > 0.3


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4"])
def test_other_types_are_measured_too(dtype: str, tmp_path: Path) -> None:
    values, source, target = weights(3000), tmp_path / "values.npy", tmp_path / "values.dw"
    values = values.astype(np.float16).astype(dtype)
    np.save(source, values)
    said = must_run("encode", "int8", source, target).decode()
    expected = relative_error(values, decode(tmp_path, target))
    found = re.search(r"relative error (\S+) \(L2\), cosine (\S+)", said)
    assert [float(number) for number in found.groups()] == pytest.approx(expected, rel=2e-3)


def test_an_archive_has_one_error_for_all_and_memory_is_that_of_a_part(tmp_path: Path) -> None:
    source, target = tmp_path / "model.npz", tmp_path / "model.dwz"
    np.savez(source, a=weights(8_000_000), b=weights(1000), c=np.zeros(5, np.float32))
    command = [BINARY, "encode", "int8", source, target, "--part-elements", 100_000]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))

    done = subprocess.run(
        list(map(str, command)), capture_output=True, timeout=TIMEOUT, check=False, preexec_fn=limit
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"relative error ") == 1


def test_where_nothing_was_encoded_nothing_is_said(tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.zeros(0, np.float32))
    said = must_run("encode", "bf16", tmp_path / "none.npy", tmp_path / "none.dw")
    assert b"relative error" not in said
    np.save(tmp_path / "zeros.npy", np.zeros(1000, np.float32))
    done = run("encode", "3lc", tmp_path / "zeros.npy", tmp_path / "zeros.dw")
    assert b"relative error 0 (L2), cosine 1.000" in done.stdout and done.stderr == b""


def test_no_example_encodes_a_file_by_a_codec_that_loses_much() -> None:
    helps = [must_run(*words).decode() for words in (("--help",), ("encode", "--help"))]
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/**/*.md")]
    texts = helps + [page.read_text() for page in pages if page.name != "CHANGELOG.md"]
    specs = [
        spec for text in texts for spec in re.findall(r"deltawire encode (\w+)[^\n`]* \S", text)
    ]
    assert len(specs) >= 8
    assert set(specs) <= {"zstd", "bf16", "int8", "fp8"}, specs
