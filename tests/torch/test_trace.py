"""deltawire.torch.trace: the gradients of a training run, written as the optimizer uses them."""

import errno
import logging
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import threading

import deltawire
import deltawire.torch
import numpy as np
import pytest
import torch
from deltawire import trace_files
from deltawire.torch import significance_of
from models import WIDTH, Net, backward, wrapped
from ranks import results
from torch import nn

SGD = torch.optim.SGD


class Words(nn.Module):
    """An embedding with sparse gradients and a layer over it; one layer that nobody uses."""

    def __init__(self, mode_sparse: bool = True):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(50, 4, sparse=mode_sparse)
        self.fc = nn.Linear(4, 3)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, words):
        return self.fc(self.embedding(words)).square().sum()


def run(model, optimizer, count: int, each=None) -> None:
    for step in range(count):
        optimizer.zero_grad()
        model(torch.tensor([3, 1, 3, step])).backward()
        if each is not None:
            each(step + 1)
        optimizer.step()


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
def test_gradients_of_16_bits_are_widened(tmp_path, dtype, caplog):
    model = nn.Linear(5, 3).to(dtype)
    optimizer = SGD(model.parameters(), lr=0.1)
    deltawire.torch.trace(model, tmp_path / "t", steps=[1])
    model(torch.randn(2, 5).to(dtype)).sum().backward()
    gradient = model.weight.grad.clone()
    with caplog.at_level(logging.WARNING):
        optimizer.step()
    found = deltawire.read_trace(tmp_path / "t").load(1).gradients[0]
    assert same_bits(found.values, gradient.float())
    assert found.significance is None
    assert caplog.text.count("significance is not recorded") == 1


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


def test_without_optimizer_the_first_of_this_model_counts_and_a_second_is_refused(tmp_path):
    model, another = Words(), nn.Linear(2, 2)
    first, second = SGD(model.fc.parameters(), 0.05), SGD(model.embedding.parameters(), 0.05)
    recording = deltawire.torch.trace(model, tmp_path / "t", steps=[1, 9])
    SGD(another.parameters(), 0.1).step()
    assert recording.steps_seen == 0
    run(model, first, 1)
    SGD(another.parameters(), 0.1).step()
    with pytest.raises(deltawire.InvalidArgumentError, match="two optimizers"):
        second.step()
    second.step()
    assert not recording.active
    assert deltawire.read_trace(tmp_path / "t").step_numbers == (1,)


def test_it_ends_by_remove_and_by_its_block(tmp_path):
    model = Words()
    optimizer = SGD(model.parameters(), lr=0.05)
    with deltawire.torch.trace(model, tmp_path / "a", steps=[1, 2, 3, 4]) as first:
        run(model, optimizer, 2)
    second = deltawire.torch.trace(model, tmp_path / "b", optimizer=optimizer, every=1)
    run(model, optimizer, 1)
    assert second.active
    second.remove()
    second.remove()
    run(model, optimizer, 2)
    assert (first.steps, second.steps) == ((1, 2), (1,))
    assert not first.active and not second.active
    assert deltawire.read_trace(tmp_path / "a").step_numbers == (1, 2)


def test_significance_may_be_left_out_or_insisted_on(tmp_path, caplog):
    model = Words(mode_sparse=False)
    known, unknown = SGD(model.parameters(), 0.05), torch.optim.Adamax(model.parameters(), 0.05)
    deltawire.torch.trace(model, tmp_path / "a", optimizer=known, steps=[1], significance=False)
    run(model, known, 1)
    with caplog.at_level(logging.WARNING):
        deltawire.torch.trace(model, tmp_path / "b", optimizer=unknown, steps=[1, 2])
        run(model, unknown, 2)
    assert caplog.text.count("significance is not recorded") == 1
    for folder in ("a", "b"):
        for step in deltawire.read_trace(tmp_path / folder):
            assert {each.significance for each in by_name(step).values()} == {None}
    insisted = deltawire.torch.trace(
        model, tmp_path / "c", optimizer=unknown, steps=[1], significance=True
    )
    with pytest.raises(deltawire.DTypeError, match="Adamax"):
        run(model, unknown, 1)
    assert not insisted.active
    run(model, unknown, 1)


def test_a_step_with_a_closure_is_refused(tmp_path):
    model = nn.Linear(2, 2)
    for i, call in enumerate((lambda o, f: o.step(f), lambda o, f: o.step(closure=f))):
        optimizer = torch.optim.LBFGS(model.parameters())
        recording = deltawire.torch.trace(model, tmp_path / str(i), steps=[1])
        with pytest.raises(deltawire.InvalidArgumentError, match="closure"):
            call(optimizer, lambda: model(torch.ones(1, 2)).sum())
        assert not recording.active


def test_what_cannot_be_meant_is_refused_before_anything_is_made(tmp_path):
    model = Words()
    optimizer = SGD(model.parameters(), lr=0.05)
    bad_arguments = [
        {},
        {"steps": [1], "every": 1},
        {"steps": []},
        {"steps": [0]},
        {"steps": [1.5]},
        {"every": 0},
        {"every": 5, "limit": 0},
        {"steps": [1], "spec": "3lc"},
        {"steps": [1], "optimizer": SGD(nn.Linear(1, 1).parameters(), 0.1)},
        {"steps": [1], "optimizer": "sgd"},
    ]
    for arguments in bad_arguments:
        with pytest.raises((ValueError, TypeError)) as caught:
            deltawire.torch.trace(model, tmp_path / "t", **arguments)
        assert isinstance(caught.value, deltawire.DeltawireError), arguments
    for other in (nn.Linear(2, 2).double(), nn.ReLU(), nn.LazyLinear(3), "model"):
        with pytest.raises(deltawire.DeltawireError):
            deltawire.torch.trace(other, tmp_path / "t", steps=[1])
    assert not (tmp_path / "t").exists()
    assert not optimizer._optimizer_step_pre_hooks
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "mine").touch()
    with pytest.raises(deltawire.InvalidArgumentError, match="not empty"):
        deltawire.torch.trace(model, tmp_path / "t", steps=[1])


def test_a_full_disk_ends_the_recording_and_the_training_can_go_on(tmp_path, monkeypatch):
    model = Words()
    optimizer = SGD(model.parameters(), lr=0.05)
    recording = deltawire.torch.trace(model, tmp_path / "t", optimizer=optimizer, every=1)
    run(model, optimizer, 2)

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(trace_files, "write_floats", full)
    with pytest.raises(deltawire.DeltawireError, match="step 3 .*No space left"):
        run(model, optimizer, 1)
    assert not recording.active
    run(model, optimizer, 1)
    assert deltawire.read_trace(tmp_path / "t").step_numbers == (1, 2)


KILLED = """
    import sys, torch, deltawire.torch
    model = torch.nn.Linear(300, 300)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    deltawire.torch.trace(model, sys.argv[1], optimizer=optimizer, every=1, limit=1_000_000)
    for step in range(1_000_000):
        model(torch.ones(1, 300)).sum().backward()
        optimizer.step()
        print(step, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_is_ended_leaves_whole_steps(tmp_path, number):
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "t")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    watchdog = threading.Timer(90, program.kill)
    watchdog.start()
    try:
        for _ in range(5):
            assert program.stdout.readline()
        program.send_signal(number)
        program.communicate()
    finally:
        watchdog.cancel()
        program.kill()
    assert program.returncode == -number
    steps = [step.number for step in deltawire.read_trace(tmp_path / "t")]
    assert len(steps) >= 5
    assert steps == list(range(1, len(steps) + 1))
    if number == signal.SIGINT:
        assert not list((tmp_path / "t").glob(".*.partial/*"))


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


def test_models_whose_gradients_are_sharded_are_refused(tmp_path):
    class FullyShardedDataParallel(nn.Linear):
        pass

    FullyShardedDataParallel.__module__ = "torch.distributed.fsdp"
    with pytest.raises(deltawire.DTypeError, match="shards"):
        deltawire.torch.trace(
            nn.Sequential(FullyShardedDataParallel(2, 2)), tmp_path / "t", steps=[1]
        )
