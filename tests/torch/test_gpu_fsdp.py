"""Sharded models on a GPU: what the hook makes of their gradients is, bit for bit, what a DDP
model's hook makes of the same gradients on the CPU."""

import copy
import signal

import deltawire.torch
import gpu
import pytest
import torch
from deltawire.errors import DeltawireError
from gpu import DEVICE, Given, OnDevice, backward, batch, results, same_bits
from models import wrapped
from ranks import AT_ONCE
from sharded import mesh_of, needs_fsdp2
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

pytestmark = [gpu.needs_gpu, needs_fsdp2]
STEPS = 4


def registered(shape, spec, **options):
    """(model, hook), or (None, what PyTorch lacks). The model is cut by layers."""
    mesh, model = mesh_of(*shape, DEVICE.type), OnDevice()
    policy = MixedPrecisionPolicy(None, options.pop("reduce", None))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    try:
        return model, deltawire.torch.register(model, spec, **options)
    except DeltawireError as error:
        if "lacks" not in str(error):
            raise
        return None, str(error)


def skip_if_lacking(values):
    if isinstance(values[0], str):
        pytest.skip(values[0])


class Whole:
    """The same exchange by DDP on the CPU, of the gradients that this rank alone computes."""

    def __init__(self, spec):
        self._alone, self._given = OnDevice(), wrapped(Given())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DELTAWIRE_FORCE_STAGING", "off")
            self.hook = deltawire.torch.register(self._given, spec)

    def compute(self, model, rank, step):
        """The means of the step that the model is about to make."""
        with torch.no_grad():
            for ours, theirs in zip(self._alone.parameters(), model.parameters(), strict=True):
                ours.copy_(theirs.to_local())
        backward(self._alone, rank, step)
        self._given.zero_grad()
        self._given([each.grad.cpu() for each in self._alone.parameters()]).backward()
        return [each.grad for each in self._given.parameters()]


def descend(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.to_local().sub_(0.05 * parameter.grad.to_local())


def against_the_cpu(rank, world_size, report, specs, options):
    for spec in specs:
        model, hook = registered((2, 1), spec, **options)
        if model is None:
            return hook
        coded_on = DEVICE.type if options.get("twins") else "cpu"
        assert hook.explain().coded_on.startswith(coded_on)
        whole = Whole(spec)
        for step in range(STEPS):
            means = whole.compute(model, rank, step)
            backward(model, rank, step)
            for (name, ours), theirs in zip(model.named_parameters(), means, strict=True):
                assert ours.grad.device.type == DEVICE.type
                assert same_bits(ours.grad.to_local(), theirs), f"{spec}, step {step}: {name}"
            descend(model)
        for each in (hook, whole.hook):
            each.close()
    return True


CODECS = ["fp32", "int8", "3lc:s=1.75", "topk:k=10%"]


@pytest.mark.parametrize(
    ("specs", "options"),
    [
        (CODECS, {}),
        # The end of a step has a flag then, which is where gradients are coded.
        pytest.param(
            [*CODECS, "gather(sbc:p=10%)", "ring(gcomp)"],
            {"twins": gpu.ON_DEVICE, "nonfinite": "pass"},
            marks=gpu.needs_twins,
        ),
    ],
    ids=["copied", "twins"],
)
def test_means_of_replicas_are_those_of_the_cpu(specs, options):
    values = results(against_the_cpu, 2, specs, options)
    skip_if_lacking(values)
    assert values == [True, True]


def against_torch(rank, world_size, report, shape, reduce, twins):
    """fp32 between two nodes is torch's own all-reduce, bit for bit; also where torch reads the
    gradients at once, and adds to them."""
    model, hook = registered(shape, "fp32", reduce=reduce, twins=twins)
    if model is None:
        return hook
    mesh, plain = mesh_of(*shape, DEVICE.type), OnDevice()
    policy = MixedPrecisionPolicy(None, reduce)
    for layer in plain.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(plain, mesh=mesh, mp_policy=policy)
    for step in range(STEPS):
        for each in (model, plain):
            x, y = batch(rank, step)
            if step % 2 == 0:
                each.zero_grad()
            (each(x) - y).square().mean().backward()
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            assert same_bits(ours.grad.to_local(), theirs.grad.to_local()), f"step {step}"
    hook.close()
    return True


ON_TWINS = pytest.param(torch.bfloat16, gpu.ON_DEVICE, marks=gpu.needs_twins)


@pytest.mark.parametrize(
    ("reduce", "twins"), [(None, False), (torch.bfloat16, False), ON_TWINS], ids=str
)
@pytest.mark.parametrize("shape", [(2, 1), (2, 2)], ids=str)
def test_fp32_is_torchs_own_all_reduce(shape, reduce, twins):
    values = results(against_torch, shape[0] * shape[1], shape, reduce, twins)
    skip_if_lacking(values)
    assert all(value is True for value in values)


def state_of(rank, world_size, report):
    """A state saved on the device, loaded by a hook on the CPU, and back."""
    model, hook = registered((2, 1), "3lc:s=1.75")
    if model is None:
        return hook
    for step in range(STEPS):
        backward(model, rank, step)
        descend(model)
    state = hook.state_dict()
    again = fully_shard(copy.deepcopy(OnDevice()).cpu(), mesh=mesh_of(2, 1))
    theirs = deltawire.torch.register(again, "3lc:s=1.75")
    theirs.load_state_dict(state)
    hook.load_state_dict(theirs.state_dict())
    key = f"rank {rank}"
    equal = torch.equal(hook.state_dict()["residuals"][key][0], state["residuals"][key][0])
    hook.close(), theirs.close()
    return equal


def test_a_state_goes_to_the_cpu_and_back():
    values = results(state_of, 2)
    skip_if_lacking(values)
    assert values == [True, True]


def endless(rank, world_size, report):
    model, hook = registered((2, 1), "3lc", timeout=60)
    if model is None:
        report(hook)
        return hook

    def step(number):
        backward(model, rank, number)
        descend(model)

    return gpu.until_another_ends(hook, report, step)


def test_a_killed_rank_is_named_at_once():
    with gpu.started(endless, 2) as ranks:
        said = [ranks.hear(rank) for rank in range(2)]
        skip_if_lacking([said[0] if said[0] != "training" else True])
        ranks.signal(1, signal.SIGKILL)
        outcomes = ranks.outcomes([0], timeout=AT_ONCE)
    assert outcomes[0].raised is None and outcomes[0].value[0] == 1
