"""What torch's own tests ask of communication hooks, and what a DDP model may be used with."""

import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from models import Net, descend, fingerprint, steps_by, train_step, train_steps, wrapped
from ranks import attempted, results, started
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel


class Powers(torch.nn.Module):
    """As in torch's tests of communication hooks: one parameter, and inputs that differ by rank."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.p = torch.nn.Parameter(torch.randn(40, 20))

    def forward(self, x, rank):
        return self.p * x ** (1 + rank)


def of_one_step(rank, attach):
    model = DistributedDataParallel(Powers())
    hook = attach(model)
    torch.manual_seed(1)
    model(torch.randn(40, 20), rank).mean().backward()
    if hook is not None:
        hook.close()
    return model.module.p.grad.clone()


def beside_torchs_hooks(rank, world_size, report):
    plain = of_one_step(rank, lambda model: None)
    gaps = {}
    for spec, theirs in (
        ("fp32", default_hooks.allreduce_hook),
        ("fp16", default_hooks.fp16_compress_hook),
        ("bf16", None),  # torch has one for GPUs alone
    ):
        ours = of_one_step(rank, lambda m, s=spec: deltawire.torch.register(m, s))
        native = plain
        if theirs is not None:
            native = of_one_step(rank, lambda m, h=theirs: m.register_comm_hook(None, h))
        gaps[spec] = [
            ((ours - other).abs() - 1e-5 * other.abs()).max().item() for other in (plain, native)
        ]
    return gaps, plain.abs().max().item()


def test_fp32_fp16_and_bf16_are_as_near_as_torchs_own_hooks():
    """Within the tolerances of torch's tests: rtol 1e-5; atol 0 of float32, 1e-4 of 16 bits."""
    for gaps, largest in results(beside_torchs_hooks, 2):
        assert largest > 1e-3, "the gradients are too small for the tolerances"
        assert max(gaps["fp32"]) <= 0
        assert max(gaps["fp16"] + gaps["bf16"]) <= 1e-4
        assert gaps["fp16"][0] > 0 and gaps["bf16"][0] > 0, "nothing was rounded: nothing tested"


def uneven_inputs(rank, world_size, report):
    """Rank 1 has two batches more; then it is the only one."""
    ends = {}
    for spec in ("plain", "fp32", "3lc"):
        model = wrapped(Net())
        hook = deltawire.torch.register(model, spec) if spec != "plain" else None
        with model.join():
            train_steps(model, rank, range(3 + 2 * rank))
        ends[spec] = fingerprint(model)
        if hook:
            ends[spec + " steps"] = hook.metrics()["steps"]
            assert hook.last_error is None
            hook.close()
    return ends


def test_join_lets_ranks_have_more_batches_than_others():
    first, second = results(uneven_inputs, 2)
    assert first == second, "the replicas differ"
    assert first["fp32"] == first["plain"] and first["fp32 steps"] == 5
    assert first["3lc"] != first["plain"]


def join_and_divide(rank, world_size, report):
    model = wrapped(Net())
    deltawire.torch.register(model, "fp32", timeout=20)
    try:
        with model.join(divide_by_initial_world_size=False):
            train_steps(model, rank, range(3))
    except RuntimeError as caught:
        return str(caught)
    return ""


def test_join_that_divides_by_the_ranks_that_are_left_is_refused():
    with started(join_and_divide, 2) as ranks:
        texts = [outcome.value for outcome in ranks.outcomes().values()]
    assert all("divide_by_initial_world_size=False" in text for text in texts), texts
    assert all("leave the argument out" in text for text in texts)


def zero(rank, world_size, report):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ends = []
    for spec in (None, "fp32", "3lc"):
        model = wrapped(Net())
        if spec:
            deltawire.torch.register(model, spec)
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9
        )
        steps_by(optimizer, model, rank, range(3))
        ends.append(fingerprint(model))
    refused = attempted(
        lambda: deltawire.torch.register(wrapped(Net()), "gcomp", optimizer=optimizer)
    )
    return ends, refused


def test_zero_shards_the_optimizer_and_leaves_gradients_alone():
    first, second = results(zero, 2)
    assert first == second, "the replicas differ, or the refusals"
    (plain, ours, lossy), (kind, text, _) = first
    assert plain == ours != lossy and kind == "DTypeError"
    assert "ZeroRedundancyOptimizer is not supported" in text and "leave optimizer= out" in text


def average_weights(rank, world_size, report):
    """DDP within halves of the ranks, torch's averager over all, as in torch's documentation."""
    ends = []
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    for spec in (None, "fp32"):
        model = DistributedDataParallel(Net(), process_group=halves[rank // 2])
        hook = deltawire.torch.register(model, spec) if spec else None
        averager = PeriodicModelAverager(period=2, warmup_steps=1)
        for number in range(6):
            train_step(model, rank, number)
            averager.average_parameters(model.parameters())
        ends.append(fingerprint(model))
        if hook:
            hook.close()
    return ends


def test_torchs_averager_beside_the_hook():
    for plain, ours in results(average_weights, 4):
        assert plain == ours


class Wide(torch.nn.Module):
    """More than DDP's first bucket of 1 MiB."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(400, 400) for _ in range(3)))

    def forward(self, x):
        return self.layers(x)


def compile_several_buckets(rank, world_size, report):
    """dynamo's ddp_optimizer cuts the graph where buckets end."""
    ends, buckets = [], 0
    x = torch.randn(4, 400, generator=torch.Generator().manual_seed(rank))
    for spec in (None, "fp32"):
        torch._dynamo.reset()
        ddp = DistributedDataParallel(Wide(), bucket_cap_mb=1)
        hook = deltawire.torch.register(ddp, spec) if spec else None
        model = torch.compile(ddp, backend="aot_eager")
        for _ in range(3):
            model.zero_grad()
            model(x).square().mean().backward()
            descend(model)
        ends.append(fingerprint(ddp))
        if hook:
            buckets = hook.metrics()["buckets"]
    return ends, buckets


def test_a_compiled_model_of_several_buckets():
    first, second = results(compile_several_buckets, 2)
    assert first == second
    (plain, ours), buckets = first
    assert plain == ours and buckets > 1


VERSIONS = {
    "2.5.1+cpu": True,
    "1.13.1": True,
    "2.6.0+debian": False,
    "2.14.0a0+git": False,
    "3.0.0": False,
}


@pytest.mark.parametrize(("version", "is_old"), VERSIONS.items())
def test_a_pytorch_that_is_too_old_is_named(version, is_old):
    from deltawire.torch.version import check

    if not is_old:
        return check(version)
    with pytest.raises(deltawire.DeltawireError) as refused:
        check(version)
    assert refused.value.code == "State"
    assert f"PyTorch {version} is too old" in str(refused.value)
    assert "install torch>=2.6" in str(refused.value)
