"""The demo as a user runs it: wrong usage, a tiny run, a failing row, Ctrl-C.

Most runs are forked from a process that has PyTorch (`forked_demo`); `fresh_demo` is started as a
shell starts it, workers and all.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted_images import write_cifar10
from refusals import raised

pytest.importorskip("torch")
pytest.importorskip("deltawire.torch")

import forked_demo  # noqa: E402

from lab.demo import controller  # noqa: E402
from lab.demo.arguments import parse  # noqa: E402
from lab.demo.definitions import ROW_KEYS  # noqa: E402
from lab.demo.methods import Method  # noqa: E402
from lab.demo.output import used_cores  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lab.demo", *map(str, arguments)]


def run(*arguments: str) -> subprocess.CompletedProcess:
    """Runs the demo in a fresh interpreter: for runs that end before PyTorch is imported."""
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=150, check=False
    )


def tiny(image_folder: Path, out: Path, *more: str) -> list[str]:
    """Options of a run of seconds."""
    options = ["--ranks", "2", "--steps", "6", "--batch", "4", "--link", "none"]
    return [*options, "--data", str(image_folder), "--out", str(out), *more]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--ranks", "1"], "one rank has no other to exchange with"),
        (["--methods", "4lc"], "Known methods: plain, fp32, bf16, gcomp, 3lc:s=1.00"),
        (["--methods", "fp32", "fp32"], "given twice"),
        (["--methods", "3lc:s=9"], "method '3lc:s=9': "),
        (["--link", "fast"], "write e.g. 100mbit"),
        (["--steps", "0"], "must be 1"),
        (["--steps", "many"], "invalid int value"),
        (["--repeats", "0"], "must be 1 ... 100"),
        (["--lr", "-1"], "must be above 0"),
        (["--namespaces", "--link", "none"], "name the links' rate"),
        (["--colour"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture
):
    assert raised(SystemExit, parse, arguments).code == 2
    told = capsys.readouterr()
    assert part in told.err
    assert len(told.err.splitlines()) == 1
    assert told.out == ""


def test_exit_status_2_reaches_the_shell():
    done = run("--ranks", "1")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_missing_data_is_one_line_and_exit_1(tmp_path: Path):
    done = forked_demo.ended(tmp_path, ["--data", tmp_path / "nowhere", "--out", tmp_path / "out"])
    assert done.returncode == 1
    assert "nowhere has no train-images-idx3-ubyte[.gz]; pass --data" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_resnet20_trains_on_cifar10(tmp_path: Path):
    options = ["--network", "resnet20", "--data", write_cifar10(tmp_path / "cifar")]
    options += ["--ranks", "2", "--steps", "2", "--batch", "2", "--link", "none"]
    options += ["--methods", "3lc:s=1.00", "--out", tmp_path / "out"]
    done = forked_demo.ended(tmp_path, options)
    assert done.returncode == 0, done.stderr
    assert "ResNet-20, 2 ranks x batch 2, 2 steps" in done.stdout
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["settings"]["parameters"] == 269_722
    assert results["settings"]["learning_rate"] == 0.1
    assert results["rows"][0]["bit_equal"] is True
    assert 0 < results["rows"][0]["bits_per_value"] < 8


def test_resnet20_finds_its_images(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    assert parse(["--network", "resnet20"]).data == tmp_path / "cifar-10-batches-bin"
    monkeypatch.delenv("DELTAWIRE_DATA")
    with pytest.raises(SystemExit):
        parse(["--network", "resnet20"])
    assert "DELTAWIRE_DATA names no folder" in capsys.readouterr().err


def test_too_few_images_is_one_line_and_exit_1(image_folder: Path, tmp_path: Path):
    done = forked_demo.ended(tmp_path, tiny(image_folder, tmp_path / "out", "--batch", "500"))
    assert done.returncode == 1
    assert "has 96 to train with; lower --batch or --ranks" in done.stderr


def test_links_are_real_where_they_can_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    for real in (True, False):
        monkeypatch.setattr(controller, "can_be_made", lambda real=real: real)
        assert controller._placed(parse([])).settings.namespaces is real
        assert ("plain DDP's time is modelled" in capsys.readouterr().err) is not real
    for given in (["--link", "none"], ["--no-namespaces"]):
        assert not controller._placed(parse(given)).settings.namespaces
    assert capsys.readouterr().err == ""


def test_used_cores_are_those_of_all_programs():
    cores = os.cpu_count()
    began = time.process_time()
    used = used_cores(0.3)
    assert 0 <= used <= 1.1 * cores and time.process_time() - began < 0.3


def test_help_teaches():
    done = run("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert "--namespaces" in done.stdout
    assert "--repeats 3 " in done.stdout


def test_a_tiny_run(image_folder: Path, tmp_path: Path):
    out = tmp_path / "deep" / "out"
    arguments = tiny(image_folder, out, "--methods", "plain", "fp32", "3lc:s=1.00")
    done = forked_demo.ended(tmp_path, arguments)
    assert done.returncode == 0, done.stderr
    assert f"report: {out / 'report.html'}" in done.stdout
    results = json.loads((out / "results.json").read_text())
    assert results["settings"]["steps"] == 6
    defined = ", ".join(results["definitions"]).split(", ")
    assert set(defined) == set(ROW_KEYS) - {"method"}
    for row, name in zip(results["rows"], ("plain", "fp32", "3lc:s=1.00"), strict=True):
        assert set(row) == {*ROW_KEYS, "detail"}
        assert row["method"] == name
        assert row["failed"] is None
        assert row["bit_equal"] is True
        assert row["steps"] == 6
        assert 0 <= row["accuracy"] <= 1
        busy = bool(results["warnings"])
        assert row["ms_per_step"] is None if busy else row["ms_per_step"] > 0
        assert row["detail"]["repeats"][0]["ms_per_step"] > 0
        assert row["detail"]["curve"][-1]["step"] == 6
    fp32 = results["rows"][1]
    assert fp32["times_smaller"] == 1
    assert 32 < fp32["bits_per_value"] < 33  # headers cost a little
    assert results["rows"][2]["times_smaller"] > 5
    assert results["versions"]["commit"]
    assert results["machine"]["load_at_the_end"] > 0
    assert results["machine"]["cores_used_before"] >= 0
    assert results["rows"][2]["detail"]["spec"].startswith("direct(3lc:s=1,")
    assert all("the machine was busy" in warning for warning in results["warnings"])
    page = (out / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == (1 if busy else 3)
    assert "http://" not in page and "https://" not in page
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


def test_repeats_are_what_their_seeds_alone_would_give(image_folder: Path, tmp_path: Path):
    def demo_of(name: str, *more: str) -> subprocess.CompletedProcess:
        arguments = tiny(image_folder, tmp_path / name, "--methods", "3lc:s=1.00", *more)
        return forked_demo.ended(tmp_path, arguments)

    done = demo_of("both", "--repeats", "2", "--seed", "4")
    assert done.returncode == 0, done.stderr
    assert "seeds 4, 5" in done.stdout
    assert "3LC s=1.00, seed 5: starting" in done.stderr
    assert demo_of("alone", "--seed", "5").returncode == 0
    both, alone = (
        json.loads((tmp_path / name / "results.json").read_text()) for name in ("both", "alone")
    )
    assert (both["settings"]["seeds"], both["settings"]["repeats"]) == ([4, 5], 2)
    for row, expected in zip(both["rows"], alone["rows"], strict=True):
        first, second = row["detail"]["repeats"]
        (only,) = expected["detail"]["repeats"]
        assert [first["seed"], second["seed"], only["seed"]] == [4, 5, 5]
        for key in ("accuracy", "wire_mb_per_rank", "bit_equal"):
            assert second[key] == only[key]
        curves = [[point["accuracy"] for point in it["curve"]] for it in (first, second, only)]
        assert curves[0] != curves[1] == curves[2]


def run_with_a_broken_row(arguments: list[str]) -> int:
    request = parse(arguments)
    broken = Method("broken", "3lc:s=9", "broken")  # the command line would refuse it
    return controller.run(
        dataclasses.replace(request, methods=[broken, *request.methods]), "pytest"
    )


def test_a_failing_row_is_marked_and_the_others_run(image_folder: Path, tmp_path: Path):
    arguments = tiny(image_folder, tmp_path / "out", "--methods", "bf16")
    done = forked_demo.ended(tmp_path, arguments, run_with_a_broken_row)
    assert done.returncode == 1
    assert "demo: broken failed:" in done.stderr
    failed, ended = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert "9" in failed["failed"]
    assert failed["ms_per_step"] is None
    assert ended["failed"] is None
    assert ended["bit_equal"] is True
    assert (tmp_path / "out" / "report.html").exists()


def children_of(pid: int) -> list[int]:
    """Process ids, in the order of their start."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


def workers_of(demo) -> list[int]:
    """Process ids: a forked demo's children, or those of the fork server of a fresh one."""
    children = children_of(demo.pid)
    if isinstance(demo, subprocess.Popen):
        return [worker for child in children for worker in children_of(child)]
    return children


def is_alive(pid: int) -> bool:
    """Whether a process runs; false for a zombie, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def endless(image_folder: Path, tmp_path: Path) -> list[str]:
    """Options of a demo that would go on for hours."""
    return tiny(image_folder, tmp_path / "out", "--methods", "fp32", "--steps", "1000000")


@pytest.fixture
def fresh_demo(image_folder: Path, tmp_path: Path):
    """A demo that has begun to train, started as a user does it."""
    demo = subprocess.Popen(
        command(*endless(image_folder, tmp_path)),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in demo.stderr:
        if "step 0/" in line:
            break
    yield demo
    demo.kill()
    demo.wait()
    demo.stderr.close()


@pytest.fixture
def endless_demo(image_folder: Path, tmp_path: Path) -> Iterator[forked_demo.Demo]:
    """A demo that has begun to train."""
    with forked_demo.started(tmp_path, endless(image_folder, tmp_path)) as demo:
        deadline = time.monotonic() + 60
        while "step 0/" not in demo.said()[1] and time.monotonic() < deadline:
            time.sleep(0.02)
        yield demo


def check_that_it_ends_with_its_workers(demo, number: int, status: int, out: Path) -> None:
    workers, children = workers_of(demo), children_of(demo.pid)
    assert len(workers) == 2
    demo.send_signal(number)
    assert demo.wait(20) == status
    assert not any(map(is_alive, workers))
    deadline = time.monotonic() + 20  # the fork server ends after the demo
    while any(map(is_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, children))
    assert list(out.iterdir()) == []


def test_ctrl_c_ends_all_workers(fresh_demo: subprocess.Popen, tmp_path: Path):
    check_that_it_ends_with_its_workers(fresh_demo, signal.SIGINT, 130, tmp_path / "out")


def test_a_closed_terminal_ends_all_workers(endless_demo: forked_demo.Demo, tmp_path: Path):
    check_that_it_ends_with_its_workers(endless_demo, signal.SIGTERM, 143, tmp_path / "out")


def run_until_the_fourth_training(arguments: list[str]) -> int:
    run_row = controller.Workers.run_row

    def interrupted_later(self, method, seed, news):
        if (method.name, seed) == ("bf16", 2):
            raise KeyboardInterrupt
        return run_row(self, method, seed, news)

    controller.Workers.run_row = interrupted_later
    return controller.run(parse(arguments), "pytest")


def test_ctrl_c_keeps_the_trainings_that_are_done(image_folder: Path, tmp_path: Path):
    options = ["--methods", "fp32", "bf16", "--repeats", "2"]
    arguments = tiny(image_folder, tmp_path / "out", *options)
    done = forked_demo.ended(tmp_path, arguments, run_until_the_fourth_training)
    assert done.returncode == 130
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [(row["method"], len(row["detail"]["repeats"])) for row in results["rows"]] == [
        ("fp32", 2),
        ("bf16", 1),
    ]
    assert results["warnings"][-1] == "interrupted: 3 of 4 trainings were done, and stand here"
    assert "interrupted: 3 of 4" in (tmp_path / "out" / "report.html").read_text()
    assert "interrupted: 3 of 4" in done.stderr


def test_workers_end_with_a_controlling_process_that_is_killed(endless_demo: forked_demo.Demo):
    workers = workers_of(endless_demo)
    assert len(workers) == 2
    endless_demo.kill()
    deadline = time.monotonic() + 20
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, workers))


def test_a_killed_worker_is_named(endless_demo: forked_demo.Demo):
    os.kill(workers_of(endless_demo)[1], signal.SIGKILL)
    done = endless_demo.ended(60)
    assert done.returncode == 1
    assert "fp32 failed: rank 1 ended with signal SIGKILL" in done.stderr
