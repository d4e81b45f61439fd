"""Gradients on a GPU: what the hook makes of them is, bit for bit, what it makes of the same
gradients on the CPU; and training with exact codecs is plain DDP's."""

import copy

import deltawire.torch
import gpu
import pytest
import test_sparse
import torch
from gpu import DEVICE, OnDevice, Twin, backward, batch, results, same_bits
from models import descend, fingerprint, wrapped
from torch.nn.parallel import DistributedDataParallel

pytestmark = gpu.needs_gpu
STEPS = 5
BY_DEFAULT = ["fp32", "bf16", "int8", "3lc:s=1.75", "topk:k=10%", "sbc:p=10%", "gcomp"]
BY_PATTERN = ["direct(3lc)", "gather(3lc)", "ring(gcomp)", "ring(onebit)", "powersgd:rank=2"]
ON_TWINS = [*BY_DEFAULT, "fp16", "blockint", "gather(3lc)", "ring(fp8)"]
OPTIONS = {
    "view": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
}


def against_the_cpu(rank, spec, dtype=torch.float32, twins=False, **options):
    """Trains; (fingerprint, buckets) after every mean was compared."""
    model = wrapped(OnDevice(dtype), **options)
    hook = deltawire.torch.register(model, spec, twins=twins)
    assert hook.explain().coded_on.startswith(DEVICE.type if twins else "cpu")
    twin = Twin(model, lambda given: deltawire.torch.register(given, spec))
    for step in range(STEPS):
        means = twin.compute(rank, step)
        backward(model, rank, step, dtype)
        for (name, ours), theirs in zip(model.named_parameters(), means, strict=True):
            assert ours.grad.device.type == DEVICE.type
            assert same_bits(ours.grad, theirs), f"{spec}, step {step}: {name}"
        descend(model)
    ours, theirs = (each.step_records[-1] for each in (hook, twin.hook))
    if ours["buckets"] == theirs["buckets"]:  # each has a frame
        assert ours["bytes_sent"] == theirs["bytes_sent"], spec
    rows = [
        [(row.bytes_sent, row.residual_norm) for row in each.explain().rows]
        for each in (hook, twin.hook)
    ]
    assert rows[0] == rows[1], spec
    buckets = max(record["buckets"] for record in hook.step_records)
    error = hook.last_error
    hook.close()
    twin.hook.close()
    assert error is None
    return fingerprint(model), buckets


def each_of(rank, world_size, report, specs, *dtypes, twins=False):
    return {
        (spec, dtype): against_the_cpu(rank, spec, getattr(torch, dtype), twins)
        for spec in specs
        for dtype in dtypes
    }


def each_on_twins(rank, world_size, report, specs, *dtypes):
    return each_of(rank, world_size, report, specs, *dtypes, twins=gpu.ON_DEVICE)


def check_alike(values):
    assert all(value == values[0] for value in values), "the replicas differ"
    assert all(buckets > 1 for _, buckets in values[0].values())


@pytest.mark.parametrize("specs", [BY_DEFAULT, BY_PATTERN], ids=["codecs", "patterns"])
def test_means_are_those_of_the_cpu(specs):
    check_alike(results(each_of, 2, specs, "float32"))


def test_means_of_16_bits_are_those_of_the_cpu():
    check_alike(results(each_of, 2, ["fp32", "3lc", "ring(gcomp)"], "bfloat16", "float16"))


def test_means_of_four_ranks_are_those_of_the_cpu():
    check_alike(results(each_of, 4, ["3lc", "ring(gcomp)", "gather(sbc:p=10%)"], "float32"))


@gpu.needs_twins
@pytest.mark.parametrize("world_size", [2, 4])
def test_means_on_twins_are_those_of_the_cpu(world_size):
    check_alike(results(each_on_twins, world_size, ON_TWINS, "float32"))


@gpu.needs_twins
def test_means_of_16_bits_on_twins_are_those_of_the_cpu():
    check_alike(results(each_on_twins, 2, ["fp32", "3lc", "ring(fp8)"], "bfloat16", "float16"))


def with_options(rank, world_size, report, twins):
    return {
        name: against_the_cpu(rank, "3lc", twins=twins, **given) for name, given in OPTIONS.items()
    }


@gpu.staged_or_on_twins
def test_means_with_ddps_options_are_those_of_the_cpu(twins):
    check_alike(results(with_options, 2, twins))


class Sleep(torch.autograd.Function):
    """Nothing, but that the GPU takes its time for it in backward."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if gradient.is_cuda:
            torch.cuda._sleep(20_000_000)  # 10 ms
        return gradient.clone()


class Wide(torch.nn.Module):
    """12 million parameters, whose gradients come long after their backward pass was queued."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1000, 1000) for _ in range(12))
        self.to(DEVICE)

    def forward(self, x):
        for layer in self.layers:
            x = Sleep.apply(torch.tanh(layer(x)))
        return x


def at_full_speed(rank, world_size, report, steps):
    """Steps that nothing waits for, plain and hooked, from the same weights."""
    found = []
    for spec in (None, "fp32", "ring(gcomp)"):
        model = DistributedDataParallel(Wide(), bucket_cap_mb=5)
        hook = deltawire.torch.register(model, spec) if spec else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(steps):
            generator = torch.Generator().manual_seed(1000 * rank + step)
            x = torch.randn(64, 1000, generator=generator).to(DEVICE)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        found.append(fingerprint(model))
        if hook is not None:
            assert hook.last_error is None and hook.step_records[-1]["buckets"] > 3
            hook.close()
    return found


def test_training_at_full_speed_is_plain_ddps():
    """A copy that starts too early, or a mean that DDP doesn't wait for, changes bits."""
    first, second = results(at_full_speed, 2, 5)
    assert first == second, "the replicas differ"
    assert len(set(first)) == 1


def scaled(rank, world_size, report):
    """Mixed precision as PyTorch's documentation has it; rank 1's third loss overflows."""
    model = wrapped(OnDevice())
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0, growth_interval=2)
    hook = deltawire.torch.register(model, "3lc", scaler=scaler)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scales, skipped = [], []
    for step in range(6):
        x, y = batch(rank, step)
        before = fingerprint(model)
        optimizer.zero_grad()
        dtype = torch.float16 if DEVICE.type == "cuda" else torch.bfloat16
        with torch.autocast(DEVICE.type, dtype=dtype):
            loss = (model(x).float() - y).square().mean()
        scales.append(scaler.get_scale())
        scaler.scale(loss * (float("inf") if (rank, step) == (1, 2) else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        if fingerprint(model) == before:
            skipped.append(step)
    error, count = hook.last_error, hook.metrics()["nonfinite_steps"]
    hook.close()
    return fingerprint(model), scales, skipped, count, error


def test_a_grad_scaler_skips_an_overflow_on_every_rank():
    first, second = results(scaled, 2)
    assert first == second, "the ranks differ"
    _, scales, skipped, count, error = first
    assert (skipped, count, error) == ([2], 1, None)
    assert scales == [1024.0, 1024.0, 2048.0, 1024.0, 1024.0, 2048.0]


class Tables(test_sparse.Tables):
    """On the device."""

    def __init__(self):
        super().__init__()
        self.to(DEVICE)

    def forward(self, rows):
        return super().forward(rows.to(DEVICE))


def sparse(rank, world_size, report, spec):
    test_sparse.Tables = Tables
    test_sparse.exact(rank, world_size, report, spec)


def test_sparse_gradients_are_plain_ddps():
    results(sparse, 2, "gather(fastsgd)")


def compiled(rank, world_size, report):
    """Compiled, plain and hooked. torch wants buckets of 1 MB and more then."""
    found = []
    for spec in (None, "fp32"):
        torch.manual_seed(7)
        layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6)))
        model = DistributedDataParallel(layers.to(DEVICE), bucket_cap_mb=2)
        hook = deltawire.torch.register(model, spec) if spec else None
        fast = torch.compile(model)
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(1000 * rank + step)
            model.zero_grad()
            fast(torch.randn(8, 512, generator=generator).to(DEVICE)).square().mean().backward()
            descend(model)
        found.append(fingerprint(model))
        if hook is not None:
            assert hook.last_error is None and hook.step_records[-1]["buckets"] > 2
            hook.close()
    return found


def test_a_compiled_model_is_plain_ddps():
    first, second = results(compiled, 2)
    assert first == second and len(set(first)) == 1


def on_a_side_stream(rank, world_size, report):
    """Forward and backward pass on a stream of the user's."""
    found = []
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        model = wrapped(OnDevice())
        hook = deltawire.torch.register(model, "3lc")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for step in range(STEPS):
                torch.cuda._sleep(10_000_000)
                backward(model, rank, step)
                descend(model)
        torch.cuda.current_stream().wait_stream(stream)
        hook.close()
        assert hook.last_error is None
        found.append(fingerprint(model))
    return found


@gpu.needs_cuda
def test_a_backward_pass_on_a_side_stream():
    first, second = results(on_a_side_stream, 2)
    assert first == second and len(set(first)) == 1


def uneven(rank, world_size, report):
    """Two batches more on rank 0; plain and hooked."""
    found = []
    for spec in (None, "fp32"):
        model = wrapped(OnDevice())
        hook = deltawire.torch.register(model, spec) if spec else None
        with model.join():
            for step in range(3 if rank else 5):
                backward(model, rank, step)
                descend(model)
        found.append(fingerprint(model))
        if hook is not None:
            assert hook.last_error is None
            hook.close()
    return found


def test_uneven_numbers_of_batches_are_plain_ddps():
    first, second = results(uneven, 2)
    assert first == second and len(set(first)) == 1


def copied(rank, world_size, report):
    """A copy of a registered model, with a state of the hook's, trains on as the model does."""
    model = wrapped(OnDevice())
    hook = deltawire.torch.register(model, "3lc")
    for step in range(2):
        backward(model, rank, step)
        descend(model)
    other = copy.deepcopy(model)
    again = deltawire.torch.register(other, "3lc")
    again.load_state_dict(hook.state_dict())
    for each in (model, other):
        for step in range(2, 4):
            backward(each, rank, step)
            descend(each)
    for each in (hook, again):
        assert each.last_error is None
        each.close()
    return fingerprint(model), fingerprint(other)


def test_a_copy_with_the_hooks_state_trains_alike():
    first, second = results(copied, 2)
    assert first == second and len(set(first)) == 1
