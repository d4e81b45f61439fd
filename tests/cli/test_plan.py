"""`deltawire plan`: what it chooses, with measured speeds or a file's, and what it refuses."""

import json
import re
import signal
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

TRACE = ROOT / "tests" / "traces" / "lenet5-sgd"


def figures_of(codec: str, bits: float, ns: float, **others: object) -> dict:
    figures = {
        "codec": codec,
        "pattern": "direct",
        "tier": "lossy",
        "bits_per_value": bits,
        "encode_us_per_message": 0,
        "encode_ns_per_value": ns,
        "decode_us_per_message": 0,
        "decode_ns_per_value": ns,
    }
    return {**figures, **others}


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    path = tmp_path / "figures.json"
    content = {
        "tensors": [{"name": "conv", "elements": 25_000}, {"name": "fc", "elements": 400_000}],
        "figures": [
            figures_of("exact", 26, 0.5, tier="lossless"),
            figures_of("sign", 1, 0.5),
            figures_of("slow", 0.5, 500),
        ],
    }
    path.write_text(json.dumps(content))
    return path


def plan(figures: Path, *arguments: object) -> dict:
    return json.loads(must_run("plan", "--figures", figures, *arguments, "--json", "-"))


def chosen(figures: Path, *arguments: object) -> str | None:
    (only,) = plan(figures, *arguments)["plans"]
    return only["chosen"]


def test_measures_the_users_tensors(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    out = must_run(
        *("plan", "--input", TRACE, "--link", "100mbit", "--quick", "--json", target),
        *("--codecs", "fp32", "bf16", "3lc", "gather(3lc)"),
    ).decode()
    written = json.loads(target.read_text())
    by_codec = {each["codec"]: each for each in written["figures"]}
    assert by_codec["fp32"]["bits_per_value"] == pytest.approx(32, abs=0.3)
    assert by_codec["bf16"]["bits_per_value"] == pytest.approx(16, abs=0.3)
    assert by_codec["gather(3lc)"]["pattern"] == "gather"
    assert [each["tier"] for each in written["figures"]] == [
        *("lossless", "near-lossless"),
        *("lossy", "lossy"),
    ]
    trace = json.loads((TRACE / "trace.json").read_text())
    assert [each["name"] for each in written["tensors"]] == [
        each["name"] for each in trace["tensors"]
    ]
    assert re.search(r"^\*  bf16", out, re.MULTILINE), out
    forbidden = r"^not allowed: (gather\()?3lc\S*, [\d.]+ ms a step; --tier lossy allows it"
    assert re.search(forbidden, out, re.MULTILINE), out
    assert "Assumed:" in out

    (again,) = plan(target, "--link", "100mbit")["plans"]
    (first,) = written["plans"]
    assert again["chosen"] == first["chosen"]
    for row, before in zip(again["rows"], first["rows"], strict=True):
        assert row["ms_per_step"] == pytest.approx(before["ms_per_step"], rel=1e-9)


def test_standard_error_names_each_codec_in_its_turn() -> None:
    """A plan may take minutes. Without a terminal, progress lines stay, outside the plan."""
    arguments = ("plan", "--parameters", "1k", "--link", "1gbit", "--quick", "--json", "-")
    arguments += ("--codecs", "bf16", "gather(3lc)")
    done = run(*arguments)
    assert done.stderr == b"[1/2] bf16\n[2/2] gather(3lc)\n"
    assert len(json.loads(done.stdout)["figures"]) == 2
    shown = shown_on_terminal(*arguments)
    assert shown.startswith("\r[1/2] bf16\x1b[K\r[2/2] gather(3lc)\x1b[K") and "\n" not in shown
    assert shown.endswith("\r\x1b[K")


def test_ctrl_c_ends_the_measuring() -> None:
    command = [BINARY, "plan", "--parameters", "1k", "--link", "1gbit", "--codecs", "bf16"]
    with subprocess.Popen([*command, "--seconds", "3000"], stderr=subprocess.PIPE) as program:
        assert program.stderr.readline() == b"[1/1] bf16\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(TIMEOUT) == INTERRUPTED
        assert b"interrupted: nothing is planned" in program.stderr.read()


def test_a_models_size_is_enough(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    out = must_run(
        *("plan", "--parameters", "2.5m", "--link", "50mbit,1ms", "--quick", "--json", target),
        *("--codecs", "bf16", "3lc"),
    ).decode()
    written = json.loads(target.read_text())
    assert [each["elements"] for each in written["tensors"]] == [2**20, 2**20, 2_500_000 - 2**21]
    assert "2,500,000 values" in out and "synthetic:normal" in out
    by_codec = {each["codec"]: each for each in written["figures"]}
    assert by_codec["bf16"]["bits_per_value"] == pytest.approx(16, abs=0.3)
    (again,) = plan(target, "--link", "50mbit,1ms")["plans"]
    (twice,) = plan(target, "--link", "50mbit,1ms", "--parameters", "5m")["plans"]
    wire = [each["rows"][0]["wire_ms"] for each in (again, twice)]
    assert wire[1] == pytest.approx(2 * wire[0], rel=0.01)
    assert_refused(USAGE, ["--parameters"], "plan", "--parameters", "0", "--link", "1gbit")


def test_tier_and_least_gain_decide_what_is_chosen(figures: Path) -> None:
    assert chosen(figures, "--link", "100mbit", "--tier", "lossy") == "sign"
    assert chosen(figures, "--link", "100mbit") == "exact", "as register(model, 'auto')"
    assert chosen(figures, "--link", "100mbit", "--tier", "lossless") == "exact"
    slow_line = ["--link", "1mbit", "--tier", "lossless"]
    assert chosen(figures, *slow_line, "--least-gain", 30) is None


def test_says_not_to_compress_where_it_would_lose(figures: Path) -> None:
    out = must_run("plan", "--figures", figures, "--link", "1000gbit,0ms", "--tier", "lossless")
    assert "do not compress: it would lose; the best, exact," in out.decode()
    assert re.search(rb"^\*  plain", out, re.MULTILINE)
    # The backward pass hides plain's exchange as well.
    out = must_run("plan", "--figures", figures, "--link", "100gbit", "--compute-ms", 1000)
    assert "do not compress" in out.decode()


def test_break_even_is_where_it_stops_to_pay(figures: Path) -> None:
    options = ["--compute-ms", 30]
    (only,) = plan(figures, "--link", "100mbit", *options)["plans"]
    row = next(row for row in only["rows"] if row["codec"] == "slow")
    rate = row["break_even_bits_per_second"] / 1e3
    for factor, gains in ((0.99, True), (1.01, False)):
        (there,) = plan(figures, "--link", f"{factor * rate}kbit", *options)["plans"]
        slow = next(row for row in there["rows"] if row["codec"] == "slow")
        assert (slow["times_faster"] > 1 / 0.97) == gains, "saves --least-gain, 3 %"


def test_ranges_simulate_past_the_machine(figures: Path) -> None:
    plans = plan(figures, "--ranks", "4..1024", "--link", "10mbit..1gbit")["plans"]
    assert {each["ranks"] for each in plans} == {2**power for power in range(2, 11)}
    assert len(plans) == 9 * 5
    table = must_run("plan", "--figures", figures, "--ranks", "4..1024", "--link", "1gbit").decode()
    assert re.search(r"^1,024 +1 Gbit/s", table, re.MULTILINE), table


def test_readiness_and_backward_hide_the_exchange(figures: Path) -> None:
    options = ["--link", "100mbit", "--compute-ms", 1000]
    hidden = plan(figures, *options, "--ready-ms", "1,2")["plans"][0]["plain"]["ms_per_step"]
    late = plan(figures, *options, "--ready-ms", "999,1000")["plans"][0]["plain"]["ms_per_step"]
    assert hidden == 1000
    assert late > 1200
    one = plan(figures, *options, "--bucket-mb", 0.01)["buckets"]
    assert [each["tensors"] for each in one] == [["fc"], ["conv"]]
    assert [each["ready_ms"] for each in one] == pytest.approx([1000 * 2 / 3, 1000])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--link", "100"], '--link "100": write a rate'),
        (["--link", "1gbit", "--ranks", "1"], '--ranks "1": write 4'),
        (["--link", "1gbit", "--tier", "good"], "--tier"),
        (["--link", "1gbit", "--ready-ms", "1,2,3"], "--ready-ms names 3 buckets; there are 2"),
        (["--link", "1gbit", "--ready-ms", "2,1"], "bucket 1's readiness is 0.001"),
        (["--link", "1gbit", "--cores", "0"], "--cores"),
        (["--link", "1gbit", "--codecs", "3lc"], "leave out --codecs"),
        (["--link", "1gbit", "--optimizer", "Lion"], "leave out --codecs and --optimizer"),
    ],
)
def test_refuses_what_cannot_be_meant(figures: Path, arguments: list[str], words: str) -> None:
    assert_refused(USAGE, [words], "plan", "--figures", figures, *arguments)


def test_refuses_before_it_measures(figures: Path) -> None:
    options = ["plan", "--input", TRACE, "--link", "1gbit"]
    assert_refused(USAGE, ["--input", "--figures"], "plan", "--link", "1gbit")
    assert_refused(USAGE, ["--link"], "plan", "--input", TRACE)
    assert_refused(USAGE, ['"nosuch"'], *options, "--codecs", "nosuch")
    assert_refused(USAGE, ['"powersgd"'], *options, "--codecs", "powersgd:rank=4")
    assert_refused(USAGE, ['--optimizer "rmsprop"'], *options, "--optimizer", "rmsprop")
    assert_refused(FAILURE, [str(figures), "exists"], *options, "--json", figures)


def test_refuses_files_that_are_no_figures(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    options = ["plan", "--figures", path, "--link", "1gbit"]
    path.write_text('{"figures": [{"codec": "x"}]}')
    assert_refused(FAILURE, ["x.json: figures[0].pattern is missing"], *options)
    path.write_text(json.dumps({"figures": [figures_of("x", 1, 1)]}))
    assert_refused(USAGE, ["names no tensors; give --input"], *options)
    assert must_run(*options, "--input", TRACE)


def test_values_that_codecs_refuse_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "nan.npy"
    values = np.ones(5000, np.float32)
    values[3] = np.nan
    np.save(path, values)
    options = ["plan", "--input", path, "--quick", "--link", "1gbit"]
    out = must_run(*options, "--codecs", "3lc", "bf16").decode()
    assert re.search(r"^left out: 3lc: .*nan", out, re.MULTILINE | re.IGNORECASE), out
    done = run(*options, "--codecs", "3lc")
    assert done.returncode == FAILURE and done.stdout == b""
    stage, said = done.stderr.decode().splitlines()
    assert stage == "[1/1] 3lc" and said.startswith("deltawire: no codec takes these values")
