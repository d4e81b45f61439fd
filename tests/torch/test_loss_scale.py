"""Scaled losses: overflows that a scaler provokes, and residuals that follow the scale."""

import logging

import deltawire.torch
import pytest
import torch
from models import Net, backward, batch, fingerprint, wrapped
from ranks import attempted, results
from torch import nn
from watched import logged

STEPS = 6
BAD_STEP = 2


def train_with_scaler(rank, spec, bad_value):
    """Steps with a GradScaler as PyTorch's documentation has them; in one of them rank 1's loss is
    spoiled."""
    torch.manual_seed(0)
    model = wrapped(Net())
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    hook = deltawire.torch.register(model, spec, scaler=scaler)
    scales, skipped = [], []
    for step in range(STEPS):
        before = fingerprint(model)
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        if step == BAD_STEP and rank == 1:
            loss = loss * bad_value
        scales.append(scaler.get_scale())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if fingerprint(model) == before:
            skipped.append(step)
    metrics, records, error = hook.metrics(), hook.step_records, hook.last_error
    hook.close()
    finite = [record["finite"] for record in records]
    return fingerprint(model), scales, skipped, finite, metrics["nonfinite_steps"], error


def overflows(rank, world_size, report, specs):
    bad_values = [float("inf"), float("nan")]
    return {spec: train_with_scaler(rank, spec, bad_values[i % 2]) for i, spec in enumerate(specs)}


def test_an_overflow_is_skipped_by_the_scaler_on_every_rank():
    specs = ["3lc", "sbc:p=1%", "int8", "fastsgd", "fp32", "gather(3lc)", "ring(onebit)", "gcomp"]
    specs.append("powersgd:rank=2")
    first, second = results(overflows, 2, specs)
    for spec in specs:
        assert first[spec] == second[spec], f"{spec}: the ranks differ"
        _, scales, skipped, finite, count, error = first[spec]
        assert error is None, f"{spec}: {error}"
        assert skipped == [BAD_STEP], spec
        assert scales == [1024.0, 1024.0, 2048.0, 1024.0, 1024.0, 2048.0], spec
        assert finite == [step != BAD_STEP for step in range(STEPS)], spec
        assert count == 1


def means_at_scales(rank, spec, scales):
    """The mean gradients of steps whose losses are scaled, in the unit of the unscaled loss."""
    now = [1.0]
    model = wrapped(Net())
    hook = deltawire.torch.register(model, spec, scaler=lambda: now[0])
    means = []
    for step, scale in enumerate(scales):
        now[0] = scale
        x, y = batch(rank, step)
        model.zero_grad()
        ((model(x) - y).square().mean() * scale).backward()
        means += [parameter.grad / scale for parameter in model.parameters()]
    hook.close()
    return means


def same_means(rank, world_size, report, specs):
    """The largest difference that a changing scale makes to a mean."""
    found = {}
    for spec in specs:
        plain = means_at_scales(rank, spec, [1.0] * 4)
        scaled = means_at_scales(rank, spec, [65536.0, 32768.0, 32768.0, 131072.0])
        pairs = zip(plain, scaled, strict=True)
        found[spec] = max((a - b).abs().max().item() for a, b in pairs)
    return found


def test_residuals_follow_the_scale():
    specs = ["3lc:s=1.75", "sbc:p=10%", "int8", "fastsgd:residual=on", "ring(onebit)"]
    for gaps in results(same_means, 2, specs):
        assert gaps == dict.fromkeys(specs, 0.0)


def without_a_trace(rank, world_size, report, specs):
    equal = {}
    for spec in specs:
        outcomes = []
        for spoiled in (False, True):
            model = wrapped(Net())
            hook = deltawire.torch.register(model, spec, nonfinite="pass")
            backward(model, rank, 0)
            if spoiled:
                x, y = batch(rank, 1)
                model.zero_grad()
                ((model(x) - y).square().mean() * (float("nan") if rank else 1.0)).backward()
                assert not any(p.grad.isfinite().all() for p in model.parameters())
                assert hook.metrics()["nonfinite_steps"] == 1
            backward(model, rank, 2)
            outcomes.append([p.grad.clone() for p in model.parameters()])
            hook.close()
        equal[spec] = all(torch.equal(a, b) for a, b in zip(*outcomes, strict=True))
    return equal


def test_a_step_that_passes_leaves_no_trace():
    specs = ["3lc:s=1.75", "gather(sbc)", "direct(int8)", "ring(onebit)"]
    for equal in results(without_a_trace, 2, specs):
        assert equal == dict.fromkeys(specs, True)


def failing(rank, world_size, report):
    """What happens to a NaN without scaler= and nonfinite=, and of loss scales that differ."""
    caught = []
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc", timeout=30)
    x, y = batch(rank, 0)
    loss = (model(x) - y).square().mean() * (float("nan") if rank else 1.0)
    attempted(loss.backward)
    caught.append((hook.last_error.code, str(hook.last_error)))
    hook.close()
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc", scaler=lambda: 2.0 ** (16 - rank), timeout=30)
    attempted(lambda: backward(model, rank, 0))
    caught.append((hook.last_error.code, str(hook.last_error)))
    hook.close()
    return caught


def test_errors_say_what_to_do():
    first, second = results(failing, 2)
    assert second[0][0] == "NotFinite"
    assert "scaler=" in second[0][1] and 'nonfinite="pass"' in second[0][1]
    assert {first[1][0], second[1][0]} <= {"Mismatch"}
    assert any("65536" in text and "32768" in text for _, text in (first[1], second[1]))


def unknown_scaler(rank, world_size, report):
    """The warnings of hooks with an enabled GradScaler that they don't know of."""
    records = logged(logging.WARNING)
    counts = []
    for spec, enabled, options in (
        ("3lc", True, {}),
        ("3lc", False, {}),
        ("fp32", True, {}),
        ("3lc", True, {"scaler": lambda: 1.0}),
    ):
        scaler = torch.amp.GradScaler("cpu", enabled=enabled)
        model = wrapped(Net())
        hook = deltawire.torch.register(model, spec, **options)
        for step in range(2):
            backward(model, rank, step)
        hook.close()
        counts.append(sum("scaler=" in text for text in records))
        records.clear()
        del scaler
    return counts


def test_a_scaler_that_register_was_not_told_of_is_worth_a_warning():
    assert results(unknown_scaler, 2) == [[1, 0, 0, 0]] * 2


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan"), None, "1024 or so"])
def test_a_scale_that_is_none(scale):
    loss_scale = deltawire.torch.core.loss_scale.LossScale(lambda: scale)
    with pytest.raises(ValueError, match=f"scale is {scale}; it must be finite and above 0"):
        loss_scale.now()
