"""What the hook holds: bounds in units of the gradients' bytes, as memory.md states them."""

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.errors import make_error
from ranks import results
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def hold(rank, world_size, report, spec, revert):
    """DDP's first step has one bucket with the whole model, the later ones several."""
    torch.manual_seed(0)
    layers = [nn.Linear(256, 256, bias=False) for _ in range(32)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    hook = deltawire.torch.register(model, spec, revert=revert)
    for _ in range(4):
        model.zero_grad()
        model(torch.randn(2, 256)).pow(2).mean().backward()
    metrics = hook.metrics()
    buckets = [record["buckets"] for record in hook.step_records]
    hook.close()
    return sum(4 * p.numel() for p in model.parameters()), buckets, metrics


@pytest.mark.parametrize(
    ("spec", "revert", "peak", "residuals"),
    [
        ("fp32", "exact", 4.0, 0),
        ("3lc", "exact", 4.0, 2.5),
        ("3lc", "fold", 3.0, 1.5),
    ],
)
def test_what_a_model_costs(spec, revert, peak, residuals):
    for gradient_bytes, buckets, metrics in results(hold, 2, spec, revert):
        assert buckets[0] == 1
        assert buckets[-1] > 4
        held = sum(metrics[f"{use}_bytes"] for use in ("residual", "staging", "message"))
        assert held <= metrics["peak_memory_bytes"]
        assert metrics["peak_memory_bytes"] <= peak * gradient_bytes
        assert metrics["staging_bytes"] <= 1.5 * gradient_bytes
        # The pushes' residuals, and those of the mean of the half that this rank owns.
        expected = residuals * gradient_bytes
        assert expected * 0.9 <= metrics["residual_bytes"] <= expected * 1.1


def test_no_memory_is_a_memory_error():
    error = make_error("NoMemory", "out of memory while encoding a message", 1)
    assert isinstance(error, MemoryError)
    assert isinstance(error, deltawire.NoMemoryError)
    assert error.code == "NoMemory"
