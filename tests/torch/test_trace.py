"""deltawire.torch.trace: the gradients of a training run, written as the optimizer uses them."""

import logging
import shlex
import sys

import deltawire
import deltawire.torch
import numpy as np
import pytest
import torch
from deltawire.torch import significance_of
from models import WIDTH, Net, backward, wrapped
from ranks import results
from torch import nn
from words import Words, run

SGD = torch.optim.SGD


def by_name(step) -> dict:
    return {each.tensor.name: each for each in step.gradients if each is not None}


def same_bits(array, tensor) -> bool:
    tensor = tensor.detach().contiguous()
    return array.shape == tuple(tensor.shape) and array.tobytes() == tensor.numpy().tobytes()


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", [SGD, torch.optim.Adam])
def test_gradients_and_significance_of_the_listed_steps(tmp_path, given, kind):
    model = Words(mode_sparse=False)
    optimizer = kind(model.parameters(), lr=0.05)
    recording = deltawire.torch.trace(
        model, tmp_path / "t", optimizer=optimizer if given else None, steps=[4, 1]
    )
    expected = {}

    def remember(step):
        expected[step] = {
            name: (each.grad.clone(), significance_of(optimizer, each))
            for name, each in model.named_parameters()
            if each.grad is not None
        }

    run(model, optimizer, 6, remember)
    assert recording.steps == (1, 4)
    assert recording.steps_seen == 4
    assert not recording.active
    trace = deltawire.read_trace(tmp_path / "t")
    assert [(each.name, each.shape) for each in trace.tensors] == [
        (name, tuple(each.shape)) for name, each in model.named_parameters()
    ]
    assert not any(each.pairs for each in trace.tensors)
    assert trace.step_numbers == (1, 4)
    for step in trace:
        found = by_name(step)
        assert set(found) == set(expected[step.number])
        assert set(found) == {"embedding.weight", "fc.weight", "fc.bias"}
        for name, (gradient, significance) in expected[step.number].items():
            assert same_bits(found[name].values, gradient)
            assert same_bits(found[name].significance, significance)


def test_sparse_gradients_are_keys_and_values(tmp_path):
    model = Words()
    optimizer = SGD(model.parameters(), lr=0.05)
    deltawire.torch.trace(model, tmp_path / "t", optimizer=optimizer, steps=[2])
    dense, seen = [], []

    def remember(step):
        dense.append(model.embedding.weight.grad.to_dense())
        seen.append(significance_of(optimizer, model.embedding.weight))

    run(model, optimizer, 2, remember)
    step = deltawire.read_trace(tmp_path / "t").load(2)
    gradient = by_name(step)["embedding.weight"]
    assert gradient.tensor.pairs
    assert gradient.keys.tolist() == [*range(4, 8), *range(12, 16)]  # words 1 and 3, whole rows
    assert same_bits(gradient.dense(), dense[1])
    assert np.count_nonzero(gradient.values) == 8
    assert same_bits(gradient.significance, seen[1].reshape(-1)[gradient.keys])
    assert not by_name(step)["fc.weight"].tensor.pairs


def test_sparse_gradients_of_two_sparse_dimensions(tmp_path):
    parameter = nn.Parameter(torch.zeros(5, 6, 2))
    model = nn.ParameterList([parameter])
    optimizer = SGD([parameter], lr=0.1)
    deltawire.torch.trace(model, tmp_path / "t", steps=[1])
    where = torch.tensor([[4, 0, 4], [1, 5, 1]])
    values = torch.arange(6.0).reshape(3, 2) + 1
    parameter.grad = torch.sparse_coo_tensor(where, values, (5, 6, 2))
    optimizer.step()
    (gradient,) = deltawire.read_trace(tmp_path / "t").load(1).gradients
    assert gradient.keys.tolist() == [10, 11, 50, 51]
    assert gradient.values.tolist() == [3, 4, 6, 8]


def test_a_sparse_momentum_has_no_significance(tmp_path, caplog):
    model = Words()
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    deltawire.torch.trace(model, tmp_path / "t", optimizer=optimizer, steps=[1, 2])
    with caplog.at_level(logging.WARNING):
        run(model, optimizer, 2)
    assert "momentum_buffer of a parameter is sparse" in caplog.text
    first, second = deltawire.read_trace(tmp_path / "t")
    assert by_name(first)["embedding.weight"].significance is not None
    assert by_name(second)["embedding.weight"].significance is None
    assert by_name(second)["embedding.weight"].keys.tolist() == [*range(4, 8), *range(12, 16)]


def test_every_nth_step_up_to_a_limit(tmp_path):
    model = Words()
    optimizer = SGD(model.parameters(), lr=0.05)
    recording = deltawire.torch.trace(model, tmp_path / "t", every=3, limit=2)
    run(model, optimizer, 10)
    assert deltawire.read_trace(tmp_path / "t").step_numbers == (3, 6)
    assert recording.steps_seen == 6
    assert "2 of 6 steps, ended" in repr(recording)
    written = sum(path.stat().st_size for path in (tmp_path / "t").glob("*/*"))
    assert recording.bytes_written == written


def test_the_words_say_what_was_recorded(tmp_path):
    model = Words()
    settings = {"lr": torch.tensor(0.5), "momentum": 0.9, "weight_decay": 0.0, "nesterov": True}
    optimizer = SGD(model.parameters(), **settings)
    deltawire.torch.trace(model, tmp_path / "a", steps=[1])
    deltawire.torch.trace(
        model, tmp_path / "b", optimizer=optimizer, steps=[1], name="words, made up"
    )
    run(model, optimizer, 1)
    first, second = (deltawire.read_trace(tmp_path / name) for name in "ab")
    assert (first.model, second.model) == ("Words", "words, made up")
    assert first.optimizer == second.optimizer == "SGD, lr=0.5, momentum=0.9, nesterov=True"
    assert first.command == shlex.join(sys.orig_argv)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_16_bits_are_widened(tmp_path, dtype):
    model = nn.Linear(5, 3).to(dtype)
    optimizer = SGD(model.parameters(), lr=0.1)
    deltawire.torch.trace(model, tmp_path / "t", steps=[1])
    model(torch.randn(2, 5).to(dtype)).sum().backward()
    gradient = model.weight.grad.clone()
    seen = deltawire.torch.significance_of(optimizer, model.weight)
    optimizer.step()
    found = deltawire.read_trace(tmp_path / "t").load(1).gradients[0]
    assert same_bits(found.values, gradient.float())
    assert same_bits(found.significance, seen)


def test_channels_last_gradients_are_written_row_major(tmp_path):
    model = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    optimizer = SGD(model.parameters(), lr=0.1)
    deltawire.torch.trace(model, tmp_path / "t", steps=[1])
    model(torch.randn(1, 3, 5, 5).to(memory_format=torch.channels_last)).square().sum().backward()
    gradient, seen = model.weight.grad.clone(), significance_of(optimizer, model.weight)
    optimizer.step()
    found = by_name(deltawire.read_trace(tmp_path / "t").load(1))["weight"]
    assert same_bits(found.values, gradient)
    assert same_bits(found.significance, seen)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradscaler_leaves_no_scale_and_its_skipped_steps_do_not_count(tmp_path, fused):
    model, plain = Net(), Net()
    optimizer = SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    recording = deltawire.torch.trace(model, tmp_path / "t", optimizer=optimizer, steps=[1, 2])
    expected = []
    for step in range(3):
        x = torch.full((4, WIDTH), 0.1 * (step + 1))
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
        if step != 1:
            plain.load_state_dict(model.state_dict())
            plain.zero_grad()
            plain(x).square().mean().backward()
            expected.append([each.grad.clone() for each in plain.parameters()])
        scaler.step(optimizer)
        scaler.update()
    assert recording.steps == (1, 2)
    for step, gradients in zip(deltawire.read_trace(tmp_path / "t"), expected, strict=True):
        for found, gradient in zip(step.gradients, gradients, strict=True):
            torch.testing.assert_close(torch.from_numpy(found.values), gradient)


def test_clipped_gradients_are_recorded_clipped(tmp_path):
    model = Words(mode_sparse=False)
    optimizer = SGD(model.parameters(), lr=0.05)
    deltawire.torch.trace(model, tmp_path / "t", steps=[1])
    run(model, optimizer, 1, lambda _: nn.utils.clip_grad_norm_(model.parameters(), 0.01))
    gradients = by_name(deltawire.read_trace(tmp_path / "t").load(1)).values()
    norm = np.sqrt(sum(float((each.values.astype(np.float64) ** 2).sum()) for each in gradients))
    assert norm == pytest.approx(0.01, rel=1e-4)


def test_parameters_that_the_optimizer_does_not_step_have_no_gradient(tmp_path):
    model = Words(mode_sparse=False)
    optimizer, other = SGD(model.fc.parameters(), lr=0.05), SGD(model.embedding.parameters(), 0.1)
    deltawire.torch.trace(model, tmp_path / "t", optimizer=optimizer, steps=[1, 2])
    for _ in range(2):
        run(model, optimizer, 1)
        other.step()
    for step in deltawire.read_trace(tmp_path / "t"):
        assert set(by_name(step)) == {"fc.weight", "fc.bias"}


def traced_ranks(rank, world_size, report, folder, codec):
    model = Net()
    ddp = wrapped(model)
    hook = deltawire.torch.register(ddp, codec) if codec else None
    optimizer = SGD(ddp.parameters(), lr=0.05)
    recording = deltawire.torch.trace(ddp, folder, optimizer=optimizer, steps=[1, 2])
    gradients = []
    for step in range(2):
        backward(ddp, rank, step)
        gradients.append([each.grad.clone().numpy() for each in model.parameters()])
        optimizer.step()
    if hook:
        hook.close()
    return gradients, recording.steps, recording.active, recording.steps_seen


@pytest.mark.parametrize("codec", [None, "3lc"])
def test_under_ddp_rank_0_writes_the_mean_that_the_hook_left(tmp_path, codec):
    first, second = results(traced_ranks, 2, str(tmp_path / "t"), codec)
    assert first[1:] == ((1, 2), False, 2)
    assert second[1:] == ((), False, 0)
    trace = deltawire.read_trace(tmp_path / "t")
    assert [each.name for each in trace.tensors] == [name for name, _ in Net().named_parameters()]
    for step, gradients in zip(trace, first[0], strict=True):
        for found, gradient in zip(step.gradients, gradients, strict=True):
            assert same_bits(found.values, torch.from_numpy(gradient))


def test_a_compiled_model_has_its_plain_names(tmp_path):
    model = torch.compile(Words(mode_sparse=False), backend="eager")
    optimizer = SGD(model.parameters(), 0.1)
    deltawire.torch.trace(model, tmp_path / "t", steps=[1])
    run(model, optimizer, 1)
    found = deltawire.read_trace(tmp_path / "t").tensors
    assert [each.name for each in found] == [name for name, _ in Words().named_parameters()]


def traced_alone(rank, world_size, report, folder):
    groups = [torch.distributed.new_group([other]) for other in range(world_size)]
    ddp = wrapped(Net(), process_group=groups[rank])
    optimizer = SGD(ddp.parameters(), lr=0.05)
    recording = deltawire.torch.trace(ddp, f"{folder}/{rank}", optimizer=optimizer, steps=[1])
    backward(ddp, rank, 0)
    optimizer.step()
    return recording.steps


def test_rank_0_is_that_of_the_ddp_models_own_group(tmp_path):
    assert results(traced_alone, 2, str(tmp_path)) == [(1,), (1,)]
    assert all(deltawire.read_trace(tmp_path / rank).step_numbers == (1,) for rank in "01")
