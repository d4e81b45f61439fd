"""`deltawire diff`: its figures for two files, against NumPy's own arithmetic."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_program import assert_refused, encode, run

EQUAL, DIFFERENT, TROUBLE = 0, 1, 2


def gradient(shape: tuple[int, ...], seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def saved(folder: Path, name: str, values: np.ndarray) -> Path:
    np.save(folder / name, values)
    return folder / name


def diff_json(a: Path, b: Path, status: int) -> list[dict]:
    done = run("diff", a, b, "--json")
    assert done.returncode == status, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["equal"] == (status == EQUAL)
    return said["arrays"]


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2"])
def test_errors_are_numpys(tmp_path: Path, dtype: str) -> None:
    a = gradient((300, 1000)).astype(dtype)
    b = (a.astype(np.float64) + 1e-3 * gradient(a.shape, 8)).astype(dtype)
    b[::3] = a[::3]
    (found,) = diff_json(saved(tmp_path, "a.npy", a), saved(tmp_path, "b.npy", b), DIFFERENT)
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    errors = np.abs(y - x)
    assert found["values"] == 300_000 and found["different"] == np.count_nonzero(errors)
    assert found["relative_l2"] == pytest.approx(
        np.linalg.norm(y - x) / np.linalg.norm(x), rel=1e-9
    )
    assert found["cosine"] == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), rel=1e-9)
    at = int(errors.argmax())
    assert found["largest_error"] == {"value": errors[at], "index": at, "a": x[at], "b": y[at]}
    counts = {row["error"]: row["values"] for row in found["histogram"]}
    assert sum(counts.values()) == 300_000 and counts["equal"] == np.count_nonzero(errors == 0)
    assert counts["1e-04 to 1e-03"] == np.count_nonzero((errors >= 1e-4) & (errors < 1e-3))
    assert counts["below 1e-08"] == np.count_nonzero((errors > 0) & (errors < 1e-8))


def test_for_people(tmp_path: Path) -> None:
    a = np.zeros((4, 500), np.float32)
    b = a.copy()
    a[3, 17], b[3, 17] = 1.0, 1.5
    a[0, 0] = 2.0
    b[0, 0] = 2.0
    done = run("diff", saved(tmp_path, "a.npy", a), saved(tmp_path, "b.npy", b))
    said = done.stdout.decode()
    assert done.returncode == DIFFERENT and done.stderr == b""
    for words in (
        "float32 (4, 500), 1 of 2,000 values differ",
        "largest error   0.5 at [3, 17]: 1 and 1.5",
        "1e-01 to 1e+00                 1  #",
        "equal                      1,999  " + 40 * "#" + "\n",
    ):
        assert words in said, said


def test_an_encoded_file_is_compared_with_its_source(tmp_path: Path) -> None:
    values = gradient((5000,))
    coded = encode(tmp_path, "bf16", values, "--part-elements", 999)
    (found,) = diff_json(tmp_path / "values.npy", coded, DIFFERENT)
    assert 1e-4 < found["relative_l2"] < 4e-3
    same = encode(tmp_path, "fp32", values)
    done = run("diff", tmp_path / "values.npy", same)
    assert done.returncode == EQUAL and done.stdout == b"float32 (5000,), equal\n"
    assert run("diff", "--quiet", tmp_path / "values.npy", same).stdout == b""
    piped = run("diff", "-", same, stdin=(tmp_path / "values.npy").read_bytes())
    assert piped.returncode == EQUAL


def test_what_is_not_finite(tmp_path: Path) -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1.0, np.nan, 3.0] * 100, np.float32)
    assert diff_json(*2 * [saved(tmp_path, "a.npy", a)], EQUAL)[0]["not_finite"] == 400
    b = a.copy()
    b[7] = -np.inf
    b[9] = np.nan
    (found,) = diff_json(tmp_path / "a.npy", saved(tmp_path, "b.npy", b), DIFFERENT)
    assert found["different"] == found["not_finite_different"] == 2
    assert found["relative_l2"] == 0
    said = run("diff", tmp_path / "a.npy", tmp_path / "b.npy").stdout
    assert b"2 values differ that are NaN or Inf in one, first at [7]" in said


def test_nothing_to_divide_by(tmp_path: Path) -> None:
    zeros, ones = np.zeros(300, np.float32), np.ones(300, np.float32)
    (found,) = diff_json(saved(tmp_path, "a.npy", zeros), saved(tmp_path, "b.npy", ones), DIFFERENT)
    assert found["relative_l2"] is None and found["cosine"] is None
    said = run("diff", tmp_path / "a.npy", tmp_path / "b.npy").stdout
    assert b"cosine          none: one is all zeros" in said
    said = run("diff", saved(tmp_path, "nan.npy", np.nan * ones), tmp_path / "b.npy").stdout
    assert b"300 values differ that are NaN or Inf" in said and b"largest error" not in said
    diff_json(saved(tmp_path, "a.npy", zeros), saved(tmp_path, "b.npy", -zeros), EQUAL)
    empty = saved(tmp_path, "c.npy", np.zeros((0, 3), np.float32))
    assert diff_json(empty, empty, EQUAL)[0]["values"] == 0


def test_archives_by_name(tmp_path: Path) -> None:
    a, b = tmp_path / "a.npz", tmp_path / "b.npz"
    one, two = gradient((300,), 1), gradient((300,), 2)
    np.savez(a, one=one, two=two, three=one, gone=one)
    np.savez(b, new=one, three=one.reshape(3, 100), two=two, one=one + 1)
    found = {array["name"]: array for array in diff_json(a, b, DIFFERENT)}
    assert list(found) == ["one", "two", "three", "gone", "new"]
    assert [found[name]["equal"] for name in found] == [False, True, False, False, False]
    assert found["gone"]["b"] is None and found["new"]["a"] is None
    assert "values" not in found["three"]
    said = run("diff", a, b).stdout.decode()
    for words in (
        "three: shapes differ: (300,) and (3, 100)",
        f"gone: only in {a}",
        f"new: only in {b}",
        "two: float32 (300,), equal",
    ):
        assert words in said, said
    np.savez(b, gone=one, three=one, two=two, one=one)
    diff_json(a, b, EQUAL)


def test_trouble_is_2(tmp_path: Path) -> None:
    a = saved(tmp_path, "a.npy", gradient((300,)))
    np.savez(tmp_path / "b.npz", a=gradient((300,)))
    assert_refused(TROUBLE, ["gone", "no such file"], "diff", a, tmp_path / "gone")
    assert_refused(TROUBLE, ["b.npz holds arrays by name"], "diff", a, tmp_path / "b.npz")
    assert_refused(TROUBLE, ["both be standard input"], "diff", "-", "-")
    assert_refused(TROUBLE, ["int64"], "diff", a, saved(tmp_path, "i.npy", np.arange(300)))
    coded = bytearray(encode(tmp_path, "3lc", gradient((300,))).read_bytes())
    coded[-1] ^= 1
    (tmp_path / "bad.dw").write_bytes(coded)
    assert_refused(TROUBLE, ["bad.dw", "checksum"], "diff", a, tmp_path / "bad.dw")
    assert_refused(TROUBLE, ["--json", "--quiet"], "diff", a, a, "--json", "--quiet")
