"""Why a rank of a training has left: the others read its exception, and of one that only died of
another's end whose that was. Ranks here are processes whose exceptions nobody catches."""

import contextlib
import datetime
import multiprocessing
import os
import tempfile
import time

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from models import Net, backward, train_step, wrapped
from ranks import AT_ONCE
from served import sgd
from sharded import Uneven, cut, mesh_of, needs_fsdp2
from sharded import train_step as train_sharded

VICTIM = 1
LONG = 60.0  # a timeout that a test never waits for
BUG = "a bug of the user"


def ddp(rank):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc", timeout=LONG)
    return hook, lambda step: train_step(model, rank, step)


def sharded(rank):
    model = cut(Uneven(), mesh_of(2, 2))
    hook = deltawire.torch.register(model, "3lc", timeout=LONG)
    return hook, lambda step: train_sharded(model, rank, step)


def local_steps(rank):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    trainer = deltawire.torch.LocalSteps(net, optimizer, "fp32", steps=1, timeout=LONG)
    return trainer, lambda step: trainer.step()


def parameter_server(rank):
    model = Net()
    server = deltawire.torch.ParameterServer(model, sgd(model), timeout=LONG)

    def train_one(step):
        if server.serves:
            server.serve()
        backward(model, rank, step)
        server.step()

    return server, train_one


def train(make, how, rank, world_size, init, pipe):
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group(
        "gloo", init_method=f"file://{init}", rank=rank, world_size=world_size, timeout=limit
    )
    dist.barrier()
    hook, train_one = make(rank)
    with contextlib.ExitStack() as stack:
        if how != "uncaught":  # the program lives on: only its block can tell the others
            stack.callback(time.sleep, LONG)
            stack.enter_context(contextlib.suppress(ValueError))
        if how == "close":
            stack.callback(hook.close)
        if how == "with":
            stack.enter_context(hook)
        for step in range(100):
            if rank == VICTIM and step == 2:
                raise ValueError(BUG)
            try:
                train_one(step)
            except RuntimeError as error:
                pipe.send((str(error), getattr(error, "suspect", None), str(hook.last_error)))
                raise


def survivors(make, how, world_size):
    """What each of them has heard, by rank."""
    context = multiprocessing.get_context("forkserver")
    pipes, processes = {}, []
    with tempfile.TemporaryDirectory(prefix="deltawire-leaving-") as folder:
        init = os.path.join(folder, "store")
        for rank in range(world_size):
            pipes[rank], theirs = context.Pipe(duplex=False)
            processes.append(
                context.Process(
                    target=train, args=(make, how, rank, world_size, init, theirs), daemon=True
                )
            )
            processes[-1].start()
            theirs.close()
        try:
            others = [rank for rank in pipes if rank != VICTIM]
            for rank in others:
                assert pipes[rank].poll(90 if rank == others[0] else AT_ONCE), f"rank {rank}"
            return {rank: pipes[rank].recv() for rank in others}
        finally:
            for process in processes:
                process.kill()
                process.join(10)


@pytest.mark.parametrize(
    ("make", "how"),
    [(ddp, "uncaught"), (ddp, "close"), (ddp, "with")]
    + [(local_steps, "uncaught"), (local_steps, "with"), (parameter_server, "with")],
)
def test_an_exception_that_ends_a_rank_is_told_to_the_others(make, how):
    for rank, (text, suspect, last) in survivors(make, how, 3).items():
        assert suspect == VICTIM and text == last, f"rank {rank}: {text}"
        assert f"rank {VICTIM} gave up: ValueError: {BUG}" in text
        assert "in good order" not in text
        assert "reports: " not in text, "it has told so itself"


@needs_fsdp2
def test_a_rank_that_dies_of_another_says_of_whom():
    """Rank 0 shares a replica with the victim, and dies of a collective of torch's own; rank 2
    meets rank 0 alone."""
    heard = survivors(sharded, "uncaught", 4)
    for rank in (2, 3):
        text, suspect, last = heard[rank]
        assert f"global rank {VICTIM} gave up: ValueError: {BUG}" in text, f"rank {rank}: {text}"
        assert suspect == VICTIM and text == last
        assert "reports: " not in text, "whoever passes it on"
