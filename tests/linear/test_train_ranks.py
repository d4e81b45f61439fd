"""`deltawire train linear` on a cluster: ranks that meet at an address, of mpirun, of srun."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_program import BINARY, FAILURE, ROOT, TIMEOUT, USAGE, assert_refused
from hosts import hosts
from ports import kept_port

SLURM = ROOT / "examples" / "linear" / "slurm.sh"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
LAUNCHERS = re.compile(r"^(OMPI|PMI|PMIX|SLURM)_")


def alone(**more: str) -> dict[str, str]:
    """An environment in which no launcher has started the program."""
    return {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)} | more


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_bytes(bytes(range(32)))
    return path


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as number:
        yield number


@pytest.fixture
def meeting(data: Path, token: Path, port: int) -> tuple[object, ...]:
    """Arguments of ranks that meet on this machine."""
    return ("--data", data, "--rendezvous", f"127.0.0.1:{port}", "--token-file", token)


def started(*arguments: object, **environment: str) -> subprocess.Popen:
    command = [BINARY, "train", "linear", *arguments]
    return subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=alone(**environment),
    )


def ended(processes: list[subprocess.Popen]) -> list[tuple[int, str]]:
    """Each process's exit status and standard error."""
    said = []
    try:
        for process in processes:
            errors = process.communicate(timeout=TIMEOUT)[1]
            said.append((process.returncode, errors))
    finally:
        for process in processes:
            process.kill()
    return said


def report_of(*arguments: object) -> dict:
    """What one process prints with --json -."""
    process = started(*arguments, "--json", "-")
    printed, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    return json.loads(printed)


def losses(report: dict) -> list[float]:
    return [epoch["test_loss"] for epoch in report["epochs"]]


def test_ranks_meet_at_rank_0_and_train_as_workers_do(
    data: Path, token: Path, port: int, tmp_path: Path
) -> None:
    settings = ("--data", data, "--epochs", 10)
    meeting = (*settings, "--rendezvous", f"localhost:{port}", "--token-file", token)
    out, model = tmp_path / "out.json", tmp_path / "model.npz"
    # Rank 0 is the last to come.
    ranks = [started(*meeting, "--world", 3, "--rank", rank) for rank in (2, 1)]
    ranks.append(started(*meeting, "--world", 3, "--rank", 0, "--json", out, "--model", model))
    assert ended(ranks) == [(0, "")] * 3
    report = json.loads(out.read_text())
    assert report["settings"]["workers"] == 3 and model.is_file()
    assert losses(report) == losses(report_of(*settings, "--workers", 3))


def test_srun_says_rank_and_world(meeting: tuple) -> None:
    meeting += ("--epochs", 10)
    ranks = [
        started(*meeting, SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="2") for rank in range(2)
    ]
    assert ended(ranks) == [(0, "")] * 2


def test_machines_meet_at_the_first(data: Path, token: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    settings = ("--data", data, "--epochs", 10)
    with hosts(3) as network:
        meeting = ("--rendezvous", f"{network.address(0)}:7171", "--token-file", token)
        ranks = [
            subprocess.Popen(
                [
                    *network.command_prefix(rank),
                    *map(str, (BINARY, "train", "linear", *settings, *meeting)),
                    *("--world", "3", "--rank", str(rank), *(("--json", out) if rank == 0 else ())),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=alone(),
            )
            for rank in (2, 0, 1)
        ]
        assert ended(ranks) == [(0, "")] * 3
    report = json.loads(out.read_text())
    assert losses(report) == losses(report_of(*settings, "--workers", 3))


def test_ports_and_listen_are_kept_to(meeting: tuple) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        only = taken.getsockname()[1]
        meeting += ("--world", 2, "--timeout", 3)
        member = started(*meeting, "--rank", 1, "--ports", only, "--listen", "lo")
        ((status, said),) = ended([member])
    assert status == FAILURE and f":{only} is taken" in said and "rank 1" in said, said


def test_ranks_that_do_not_fit_are_named_by_all(meeting: tuple) -> None:
    meeting += ("--world", 2)
    ranks = [started(*meeting, "--rank", 0), started(*meeting, "--rank", 1, "--lr", 0.25)]
    for status, said in ended(ranks):
        assert status == FAILURE, said
        assert '"optimizer":"adagrad:lr=0.25' in said.replace('\\"', '"'), said
        assert said.startswith("deltawire: ") and said.count("\n") == 1, said


def test_a_missing_rank_0_is_reported_at_the_timeout(meeting: tuple, port: int) -> None:
    lone = started(*meeting, "--rank", 1, "--world", 2, "--timeout", 2)
    ((status, said),) = ended([lone])
    assert status == FAILURE
    place = f"rank 1 found nobody in 2000 ms at 127.0.0.1:{port}, where rank 0 should listen"
    assert said.startswith(f"deltawire: {place}") and said.count("\n") == 1, said


def test_another_token_is_said_on_both_sides(
    data: Path, token: Path, port: int, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(32))
    meeting = ("--data", data, "--rendezvous", f"127.0.0.1:{port}", "--world", 2, "--timeout", 3)
    ranks = [
        started(*meeting, "--rank", rank, "--token-file", file)
        for rank, file in enumerate((token, other))
    ]
    for status, said in ended(ranks):
        assert status == FAILURE and "same token?" in said, said


def test_a_second_rank_0_is_refused(data: Path, token: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ("--rendezvous", address, "--rank", 0, "--world", 2, "--token-file", token)
        ((status, said),) = ended([started("--data", data, *options)])
    assert status == FAILURE and "is there another rank 0?" in said, said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rendezvous", "HERE"], "is not HOST:PORT"),
        (["--rendezvous", "::1:80"], "[fd00::1]:29600"),
        (["--rendezvous", "a:0"], "is not HOST:PORT"),
        (["--rendezvous", "a:80", "--rank", "2"], "--rank 2 is not in a world of 2"),
        (["--rendezvous", "a:80", "--rank", "-1"], "--rank -1 is not in a world of 2"),
        (["--rendezvous", "a:80", "--ports", "9-8"], "--ports"),
        (["--rendezvous", "a:80", "--workers", "2"], "the one or the other"),
        (["--rendezvous", "a:80", "--encryption", "on"], "--encryption: encryption, or"),
        ([], "go with --rendezvous"),
    ],
)
def test_refused_before_anybody_is_met(
    arguments: list[str], message: str, data: Path, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if LAUNCHERS.match(name):
            monkeypatch.delenv(name)
    options = {"--rank": "1", "--world": "2", "--token-file": str(token)}
    options |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    words = [f"{name}={value}" for name, value in options.items()]
    assert_refused(USAGE, [message], "train", "linear", "--data", data, *words)


def test_what_a_rendezvous_needs(data: Path, token: Path) -> None:
    meeting = ("--data", data, "--rendezvous", "127.0.0.1:7171")
    ranks = [started(*meeting, "--token-file", token), started(*meeting, "--rank", 1, "--world", 2)]
    needs = ["needs --rank and --world", "needs --token-file"]
    for (status, said), message in zip(ended(ranks), needs, strict=True):
        assert status == USAGE and message in said, said


def test_srun_without_a_rendezvous_is_refused(data: Path) -> None:
    lone = started("--data", data, SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="4")
    ((status, said),) = ended([lone])
    assert status == USAGE and "srun started this process as rank 1 of 4" in said, said
    assert "--rendezvous" in said


needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs openmpi-bin")


def under_mpirun(count: int, *arguments: object) -> subprocess.CompletedProcess:
    command = [*MPIRUN, "-n", count, BINARY, "train", "linear", *arguments]
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env=alone(),
    )


@needs_mpirun
def test_mpirun_without_an_address_is_refused(data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    done = under_mpirun(2, "--data", data, "--epochs", 10, "--model", model)
    assert done.returncode == USAGE
    assert "of 2, and each would train alone" in done.stderr, done.stderr
    assert not model.exists()


@needs_mpirun
def test_mpirun_starts_ranks_that_meet(data: Path, token: Path, port: int) -> None:
    meeting = ("--rendezvous", f"127.0.0.1:{port}", "--token-file", token)
    done = under_mpirun(2, "--data", data, "--epochs", 1, *meeting)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 1/1") == 1 and "times smaller than plain pairs" in done.stdout


@needs_mpirun
def test_workers_of_workers_are_refused(data: Path) -> None:
    done = under_mpirun(2, "--data", data, "--workers", 2)
    assert done.returncode == USAGE and "leave --workers out" in done.stderr, done.stderr


@needs_mpirun
def test_one_process_of_mpirun_trains_alone(data: Path) -> None:
    done = under_mpirun(1, "--data", data, "--epochs", 1)
    assert done.returncode == 0 and "epoch 1/1" in done.stdout, done.stderr


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_slurm_script_starts_ranks_that_meet(data: Path, tmp_path: Path) -> None:
    """Runs the script's own commands with a stand-in for Slurm of two lines."""
    assert "#SBATCH --nodes=2" in SLURM.read_text()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\necho localhost\necho node8\n")
    (tools / "srun").write_text(
        "#!/bin/bash\n"
        'echo "$1" > srun-said; shift; status=0\n'
        "for rank in 0 1 2; do\n"
        '  SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=3 "$@" & pids+=($!)\n'
        "done\n"
        'for pid in "${pids[@]}"; do wait "$pid" || status=$?; done\n'
        "exit $status\n"
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    job = next(number for number in range(os.getpid() % 9000, 10_000) if _is_free(20_000 + number))
    done = subprocess.run(
        ["bash", SLURM, "--data", data, "--model", "model.npz", "--epochs", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env=alone(
            PATH=f"{tools}:{os.environ['PATH']}",
            SLURM_JOB_NODELIST="node[7-8]",
            SLURM_JOB_ID=f"12{job:04}",
            DELTAWIRE=str(BINARY),
        ),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 1/2") == 1 and (tmp_path / "model.npz").is_file()
    assert (tmp_path / "srun-said").read_text() == "--kill-on-bad-exit=1\n"
    assert not list(tmp_path.glob("*.token")), "the secret is gone with the job"
