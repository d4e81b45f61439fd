"""Ways to train a model on a GPU: those that don't take one say so at registration, on every rank;
and process groups of NCCL."""

import os

import deltawire.torch
import gpu
import pytest
import torch
import torch.distributed as dist
from deltawire.torch.core.device.staging import Staging
from gpu import DEVICE, OnDevice, backward, results
from models import BUCKET_CAP_MB, descend, fingerprint, wrapped
from ranks import attempted
from torch.nn.parallel import DistributedDataParallel

pytestmark = gpu.needs_cuda


def with_fused_optimizer():
    model = wrapped(OnDevice())
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    deltawire.torch.register(model, "gcomp", optimizer=optimizer)


REFUSED = {with_fused_optimizer: "counts its steps on the GPU"}


def refused(rank, world_size, report):
    return {action.__name__: attempted(action) for action in REFUSED}


def test_what_is_for_the_cpu_only_is_refused():
    values = results(refused, 2)
    for action, text in REFUSED.items():
        for value in values:
            print(action.__name__, value[action.__name__])
            kind, said, _ = value[action.__name__]
            assert kind in ("DTypeError", "InvalidArgumentError", "DeltawireError"), said
            assert text in said


def test_a_cuda_graph_is_refused_by_name():
    """The exchange would not be replayed."""
    staging, buffer = Staging(10.0), torch.ones(8, device=DEVICE)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        doubled = 2 * buffer
        with pytest.raises(deltawire.DeltawireError, match="CUDA graph is being captured"):
            staging.load(0, doubled, pytest.fail, pytest.fail)


def group_of(rank, backend):
    """(a process group of this backend, the error's text if NCCL refuses two ranks on a GPU)."""
    # To NCCL these are two hosts: it refuses two ranks of a host on one GPU.
    os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_NET="Socket")
    os.environ.update(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_IB_DISABLE="1")
    group = dist.new_group(backend=backend)
    try:
        dist.all_reduce(torch.ones(1, device=DEVICE), group=group)
        torch.cuda.synchronize()
    except RuntimeError as cause:
        return None, str(cause)
    return group, ""


def in_group(rank, world_size, report, backend, spec):
    """Trains in a process group of this backend; (fingerprint, that of the same in gloo's, why not
    if it can't)."""
    group, refusal = group_of(rank, backend)
    if refusal:
        return None, None, refusal
    found = []
    for each in (group, None):
        model = DistributedDataParallel(OnDevice(), process_group=each, bucket_cap_mb=BUCKET_CAP_MB)
        hook = deltawire.torch.register(model, spec)
        for step in range(80 if spec == "auto" else 4):
            backward(model, rank, step)
            descend(model)
        if spec == "auto":
            assert hook.metrics()["plans"] > 0 and hook.metrics()["native_ms"] > 0
        hook.close()
        assert hook.last_error is None
        found.append(fingerprint(model))
    return *found, ""


def check_group(values):
    if values[0][2]:
        pytest.skip(f"NCCL refuses two ranks on one GPU: {values[0][2][:300]}")
    assert values[0] == values[1], "the replicas differ"
    assert values[0][0] == values[0][1], "other bits than in gloo's group"


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_a_group_of_nccl(backend):
    """What `register` gathers goes through it, and what DDP broadcasts."""
    check_group(results(in_group, 2, backend, "3lc"))


def test_auto_in_a_group_of_nccl():
    """NCCL carries the native all-reduce, and what the ranks decide."""
    found = results(in_group, 2, "nccl", "auto")
    check_group([(mark, mark, refusal) for mark, _, refusal in found])


def rounds_in_group(rank, world_size, report, backend):
    """As `in_group`, with local steps; a state is saved and loaded on the way."""
    group, refusal = group_of(rank, backend)
    if refusal:
        return None, None, refusal
    found = []
    for each in (group, None):
        model = OnDevice()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        options = {"steps": 2, "outer": "nesterov", "group": each}
        trainer = deltawire.torch.LocalSteps(model, optimizer, "3lc", **options)
        deltawire.torch.Averager(trainer)
        for step in range(6):
            backward(model, rank, step)
            trainer.step()
            if step == 2:
                trainer.load_state_dict(trainer.state_dict())
        trainer.close()
        assert trainer.last_error is None
        found.append(fingerprint(model))
    return *found, ""


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_rounds_in_a_group_of_nccl(backend):
    """It carries rank 0's weights, and what the trainer gathers."""
    check_group(results(rounds_in_group, 2, backend))


def alone(rank, world_size, report):
    """A group of NCCL with this rank alone in it."""
    groups = [dist.new_group([each], backend="nccl") for each in range(world_size)]
    model = DistributedDataParallel(OnDevice(), process_group=groups[rank])
    try:
        deltawire.torch.register(model, "3lc")
    except ValueError as refusal:
        return str(refusal)
    return None


def test_a_group_of_one_rank_has_nothing_to_exchange():
    assert all("world size is 1" in text for text in results(alone, 2))
