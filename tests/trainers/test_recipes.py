"""Recipes that need PyTorch alone: each is run as it stands, with a codec that changes nothing, and
without us."""

import ast
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from hosts import hosts
from recipes import (
    FOLDER,
    MOST_LINES,
    check_against_plain,
    check_ratio,
    lossless,
    own_lines,
    run_command,
    run_ranks,
    torchrun_ranks,
    with_ours,
    without_ours,
)

PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_recipe_has_more_than_five_lines_of_ours(name):
    assert 2 <= len(own_lines(name)) <= MOST_LINES
    plain = without_ours(name)
    ast.parse(plain)
    code = plain.split('"""', 2)[2]
    assert "deltawire" not in code and "hook" not in code.replace("hook=", "")


@pytest.mark.parametrize(("name", "world"), [("ddp.py", 2), ("local_steps.py", 2), ("fsdp.py", 4)])
def test_recipe(name, world, tmp_path):
    ranks = torchrun_ranks(world)
    ours = run_ranks(with_ours(name), tmp_path / "ours", ranks)
    check_ratio(ours, world)
    plain = run_ranks(without_ours(name), tmp_path / "plain", ranks)
    if name == "local_steps.py":  # whose plain program is of ranks that never meet
        assert ours.count("loss") == plain.count("loss") == world
        return
    exact = run_ranks(lossless(name), tmp_path / "exact", ranks)
    check_against_plain(ours, exact, plain, world)


def test_slurm_script_is_bash_and_sets_what_the_program_reads(tmp_path):
    run_command(["bash", "-n", str(FOLDER / "slurm.sh")], tmp_path)
    script = with_ours("slurm.sh")
    assert "#SBATCH --nodes=2" in script and "srun" in script and "slurm.py" in script
    # The script's own commands, with a Slurm of two lines: what srun would start says what it has.
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\necho node7\necho node8\n")
    (tools / "srun").write_text("#!/bin/sh\necho $MASTER_ADDR $MASTER_PORT $OMP_NUM_THREADS $*\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    said = run_command(
        ["bash", str(FOLDER / "slurm.sh")],
        tmp_path,
        {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "SLURM_JOB_NODELIST": "node[7-8]",
            "SLURM_JOB_ID": "123456",
            "SLURM_CPUS_PER_TASK": "4",
            "PYTHON": "python",
        },
    )
    assert said.split() == ["node7", "23456", "4", "--kill-on-bad-exit=1", "python", "slurm.py"]


def test_slurm_program(tmp_path):
    ranks = [
        {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"} for rank in range(2)
    ]
    texts = with_ours("slurm.py"), lossless("slurm.py"), without_ours("slurm.py")
    runs = [run_ranks(text, tmp_path / str(i), ranks) for i, text in enumerate(texts)]
    check_ratio(runs[0])
    check_against_plain(*runs)


@pytest.mark.thorough
def test_torchrun_on_two_hosts(tmp_path):
    shutil.copy(FOLDER / "ddp.py", tmp_path)

    def host(number, namespaces):
        own = {"NODE_RANK": str(number), "MASTER_ADDR": namespaces.address(0)}
        own["GLOO_SOCKET_IFNAME"] = namespaces.interface
        command = [*namespaces.command_prefix(number), str(FOLDER / "multinode.sh"), "ddp.py"]
        return run_command(command, tmp_path, own)

    with hosts() as network, ThreadPoolExecutor(2) as threads:
        said = list(threads.map(lambda number: host(number, network), range(2)))
    for number in range(2):
        assert re.search(rf"rank {number}: loss", said[number])
    check_ratio(said[0] + said[1])


def test_tensorboard_gets_what_scalars_says(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is in requirements-trainers.txt")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_ranks(with_ours("tensorboard_scalars.py"), tmp_path / "run", torchrun_ranks(2))
    for rank in range(2):
        events = EventAccumulator(str(tmp_path / "run" / "runs" / f"rank-{rank}"))
        events.Reload()
        tags = events.Tags()["scalars"]
        assert {"loss", "deltawire/ratio", "deltawire/residual_norm"} <= set(tags)
        assert "deltawire/bucket_0/encode_ms" in tags
        ratio = events.Scalars("deltawire/ratio")
        assert [event.step for event in ratio] == list(range(20))
        assert all(event.value > 4 for event in ratio)
