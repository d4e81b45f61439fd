"""torchrun starts the ranks again when one dies: they meet, and go on from the checkpoint."""

import datetime
import json
import multiprocessing
import os
import pathlib
import signal
import threading

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from deltawire.torch.rendezvous import agree_on_attempt
from models import Net, backward, fingerprint, wrapped

RANKS = 2
STEPS = 6


def train(folder, dies_at):
    """A user's script. Rank 1 kills itself at a step of its first life; a rank that sees the
    exchange fail raises."""
    torch.set_num_threads(1)
    folder = pathlib.Path(folder)
    deltawire.torch.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    rank = dist.get_rank()
    model = wrapped(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    hook = deltawire.torch.register(model, "3lc:s=1.5")
    saved = sorted(folder.glob("step-*/.metadata"))
    done = 0
    if saved:
        state = {"model": model.module.state_dict(), "optimizer": momenta(optimizer), "hook": hook}
        dcp.load(state, checkpoint_id=saved[-1].parent)
        model.module.load_state_dict(state["model"])
        done = hook.state_dict()["steps"]
    lives = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for step in range(done, STEPS):
        if rank == 1 and lives == 0 and step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        backward(model, rank, step)
        optimizer.step()
        if step % 2 == 1:
            state = {"model": model.module, "optimizer": momenta(optimizer), "hook": hook}
            dcp.save(state, checkpoint_id=folder / f"step-{step}")
    (folder / f"rank-{rank}.json").write_text(json.dumps([lives, done, fingerprint(model)]))
    hook.close()
    dist.destroy_process_group()


def momenta(optimizer):
    """Made where the optimizer has none yet, so that a checkpoint can be read into them."""
    states = [optimizer.state[p] for p in optimizer.param_groups[0]["params"]]
    for parameter, state in zip(optimizer.param_groups[0]["params"], states, strict=True):
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(parameter)
    return {str(i): state["momentum_buffer"] for i, state in enumerate(states)}


def run_agent(folder, dies_at):
    """What `torchrun --max-restarts=1` does, with ranks that are forked."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=RANKS,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        run_id=os.path.basename(folder),
        max_restarts=1,
        monitor_interval=0.1,
        start_method="fork",
    )
    elastic_launch(config, train)(folder, dies_at)


def trained_by_agent(folder, dies_at):
    folder.mkdir()
    agent = multiprocessing.get_context("forkserver").Process(
        target=run_agent, args=(str(folder), dies_at)
    )
    agent.start()
    agent.join(110)
    if agent.is_alive():
        agent.terminate()  # it ends its ranks, which kill() would leave behind
        agent.join(10)
    assert agent.exitcode == 0
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


def test_a_killed_rank_costs_the_steps_since_the_checkpoint(tmp_path):
    straight = trained_by_agent(tmp_path / "straight", None)
    assert [end[:2] for end in straight] == [[0, 0]] * RANKS
    restarted = trained_by_agent(tmp_path / "restarted", 5)
    assert [end[:2] for end in restarted] == [[1, 4]] * RANKS, "from the checkpoint of step 3"
    assert [end[2] for end in restarted] == [end[2] for end in straight]


# The agreement itself, with threads as ranks of one store.


def met(store, ranks, timeout=20.0):
    """What each of `ranks`, (rank, world size), agreed on, or raised."""
    found = {}

    def meet(rank, world_size):
        try:
            seconds = datetime.timedelta(seconds=timeout)
            found[rank] = agree_on_attempt(store, rank, world_size, seconds)
        except deltawire.DeltawireError as error:
            found[rank] = error

    threads = [threading.Thread(target=meet, args=place) for place in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank, _ in ranks]


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


def test_a_rank_that_never_came_is_named():
    (lead,) = met(dist.HashStore(), [(0, 2)], 0.2)
    assert lead.code == "Timeout" and "rank 1" in str(lead)


def test_where_to_meet_is_the_environments():
    with pytest.raises(deltawire.InvalidArgumentError, match="init_method="):
        deltawire.torch.init_process_group("gloo", init_method="tcp://127.0.0.1:1")
