"""checkpoints.md: torchrun starts the ranks again when one dies; they meet, and go on."""

import datetime
import json
import multiprocessing
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from deltawire.torch.core.process_group import agree_on_attempt
from models import fingerprint
from programs import run_program

PAGE = (Path(__file__).resolve().parents[2] / "docs/guides/checkpoints.md").read_text()


def run_rank(program, dies_after):
    """A rank of a job. Rank 1 kills itself in its first life, after so many steps."""
    torch.set_num_threads(1)
    rank, life = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    steps = 0
    step = torch.optim.SGD.step

    def counted(self, *args, **kwargs):
        nonlocal steps
        steps += any(p.grad is not None and p.grad.any() for p in self.param_groups[0]["params"])
        if (rank, life, steps) == (1, 0, dies_after):
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *args, **kwargs)

    torch.optim.SGD.step = counted
    end = run_program(program)
    end["hook"].close()
    Path(f"rank-{rank}.json").write_text(json.dumps([life, steps, fingerprint(end["model"])]))
    dist.destroy_process_group()


def run_agent(folder, program, ranks, dies_after):
    """What `torchrun --nproc-per-node=RANKS --max-restarts=1` does, with ranks that are forked."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.chdir(folder)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        run_id=folder.name,
        max_restarts=1,
        monitor_interval=0.1,
        start_method="fork",
    )
    elastic_launch(config, run_rank)(program, dies_after)


def trained(folder, ranks, dies_after=None):
    """By rank: [its life, its steps in that, the model's fingerprint]."""
    folder.mkdir(exist_ok=True)
    program = folder / "elastic.py"
    program.write_text(re.search(r"```python\n(# elastic\.py.*?)```", PAGE, re.S)[1])
    agent = multiprocessing.get_context("forkserver").Process(
        target=run_agent, args=(folder, str(program), ranks, dies_after)
    )
    agent.start()
    agent.join(110)
    if agent.is_alive():
        agent.terminate()  # it ends its ranks, which kill() would leave behind
        agent.join(10)
    assert agent.exitcode == 0
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)]


def has_libuv() -> bool:
    """Without it torch's own elastic agent finds no store of its own, whatever its settings."""
    try:
        dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    except RuntimeError as cause:
        assert "libuv" in str(cause)
        return False
    return True


@pytest.mark.skipif(not has_libuv(), reason="this PyTorch was built without libuv")
def test_a_killed_rank_costs_the_steps_since_the_checkpoint(tmp_path):
    straight = trained(tmp_path / "straight", 2)
    assert [end[:2] for end in straight] == [[0, 20]] * 2
    restarted = trained(tmp_path / "restarted", 2, dies_after=18)
    assert [end[:2] for end in restarted] == [[1, 5]] * 2, "not from the checkpoint of step 15"
    assert [end[2] for end in restarted] == [end[2] for end in straight]


# The agreement itself, with threads as ranks of one store.


def met(store, ranks, timeout=20.0):
    """What each of `ranks`, (rank, world size), agreed on, or raised."""

    def meet(place):
        try:
            return agree_on_attempt(store, *place, datetime.timedelta(seconds=timeout))
        except deltawire.DeltawireError as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(meet, ranks))


def test_every_attempt_has_a_name_of_its_own():
    store = dist.HashStore()
    names = []
    for world_size in (3, 3, 2, 3):
        agreed = met(store, [(rank, world_size) for rank in range(world_size)])
        assert len(set(agreed)) == 1
        names.append(agreed[0])
    assert len(set(names)) == 4


def test_what_dead_ranks_have_left_counts_for_nothing():
    store = dist.HashStore()
    first = met(store, [(0, 2), (1, 2)])[0]
    (late,) = met(store, [(1, 2)], 0.2)  # rank 0 never came: it must not take the last attempt
    assert late.code == "Timeout" and "rank 0" in str(late)
    (lead,) = met(store, [(0, 2)], 0.2)  # rank 1 has died: it says no yes
    assert lead.code == "Timeout"
    again = met(store, [(0, 2), (1, 2)])
    assert again[0] == again[1] != first


@pytest.mark.parametrize("left", [b"", b"no JSON", b"3", b'["a"]', b'["a", 3]', b"[" * 9999])
def test_what_others_have_left_is_no_attempt(left):
    store = dist.HashStore()
    dist.PrefixStore("deltawire/attempt", store).set("attempt", left)
    names = met(store, [(0, 2), (1, 2)])
    assert isinstance(names[0], str) and names[0] == names[1]


def test_a_rank_that_never_came_is_named():
    (lead,) = met(dist.HashStore(), [(0, 2)], 0.2)
    assert lead.code == "Timeout" and "rank 1" in str(lead)


def test_where_to_meet_is_the_environments():
    with pytest.raises(deltawire.InvalidArgumentError, match="init_method="):
        deltawire.torch.init_process_group("gloo", init_method="tcp://127.0.0.1:1")
