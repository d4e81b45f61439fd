"""Ranks that train on twins: means, bytes and saved residuals are those of the CPU's way. Without a
GPU the twins are interpreted, over tensors of the CPU."""

import deltawire.torch
import pytest
import torch
from deltawire.torch.core.checkpoint import kept_of
from deltawire.torch.gpu import twin
from ranks import results
from sharded import IS_SUPPORTED, mesh_of
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

SHAPES = ((90, 460), (40,), (300,))
STEPS = 2
SPECS = {
    "float32": [
        "3lc:s=1.75",
        "ring(int8)",
        "topk:k=2%,values=int8",
        "direct(sbc:p=2%)",
        "direct(step>=1: fp32, rest fp8)",
    ],
    "bfloat16": ["gather(int8)", "ring(fp32)"],
    "float16": ["fp16", "direct(3lc:mode=paper,pull=0.5)"],
}
SHARDED = {"float32": [], "bfloat16": ["gather(topk:k=2%)"], "float16": ["3lc:s=1.75"]}


class Given(torch.nn.Module):
    """Whose gradients are what it is called with."""

    def __init__(self, dtype):
        super().__init__()
        given = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in SHAPES]
        self.parts = torch.nn.ParameterList(given)

    def forward(self, gradients):
        return sum((p * g).sum() for p, g in zip(self.parts, gradients, strict=True))


def replicated(dtype, device):
    return DistributedDataParallel(Given(dtype).to(device), bucket_cap_mb=0.05)


def sharded(dtype, device):
    return fully_shard(Given(dtype).to(device), mesh=mesh_of(2, 1, device.type))


def trained(rank, make, spec, dtype, device, twins):
    torch.manual_seed(rank)
    model = make(dtype, device)
    hook = deltawire.torch.register(model, spec, twins=twins)
    means = []
    for _ in range(STEPS):
        model.zero_grad()
        model([torch.randn(shape).to(device, dtype) for shape in SHAPES]).backward()
        gradients = [p.grad for p in model.parameters()]
        if make is sharded:
            gradients = [each.to_local() for each in gradients]
        means.append([each.cpu().view(torch.uint8) for each in gradients])
    sent = [each["bytes_sent"] for each in hook.step_records]
    residuals = kept_of(hook.state_dict(), rank, "residuals")
    hook.close()
    return means, sent, residuals


def both_ways(rank, world_size, report, dtype, device):
    if device.type == "cpu":
        import fast_interpreter

        fast_interpreter.install()
    on_device = True if device.type == "cuda" else (lambda spec: twin(f"direct({spec})"))
    cases = [(replicated, spec) for spec in SPECS[dtype]]
    if IS_SUPPORTED:
        cases += [(sharded, spec) for spec in SHARDED[dtype]]
    for make, spec in cases:
        what, kind = f"{make.__name__} {spec}", getattr(torch, dtype)
        found = [trained(rank, make, spec, kind, device, twins) for twins in (on_device, False)]
        for ours, theirs in zip(found[0][0], found[1][0], strict=True):
            assert all(map(torch.equal, ours, theirs)), f"{what}: means"
        assert found[0][1] == found[1][1], f"{what}: bytes"
        assert torch.equal(found[0][2], found[1][2]), f"{what}: residuals"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("dtype", SPECS)
def test_training_on_twins_is_the_cpus(device, dtype):
    results(both_ways, 2, dtype, device, fresh=range(2), timeout=350)  # the interpreter is slow
