"""How a recording ends, and what deltawire.torch.trace refuses."""

import errno
import logging
import os
import signal
import time

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.traces import files
from ranks import started
from torch import nn
from words import Words, run

SGD = torch.optim.SGD


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


def test_other_hooks_of_the_optimizer_run_in_its_last_step(tmp_path):
    model, seen = Words(), []
    optimizer = SGD(model.parameters(), lr=0.05)
    first = deltawire.torch.trace(model, tmp_path / "a", optimizer=optimizer, steps=[1])
    second = deltawire.torch.trace(model, tmp_path / "b", optimizer=optimizer, steps=[1])
    optimizer.register_step_pre_hook(lambda *_: seen.append(None))
    run(model, optimizer, 2)
    assert len(seen) == 2
    assert first.steps == second.steps == (1,)
    assert first.steps_seen == 1 and not first.active
    first.remove()
    assert len(optimizer._optimizer_step_pre_hooks) == 2


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
            assert {each.significance for each in step.gradients if each is not None} == {None}
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

    monkeypatch.setattr(files, "write_floats", full)
    with pytest.raises(deltawire.DeltawireError, match="step 3 .*No space left"):
        run(model, optimizer, 1)
    assert not recording.active
    run(model, optimizer, 1)
    assert deltawire.read_trace(tmp_path / "t").step_numbers == (1, 2)


def record(rank, world_size, report, folder):
    """Stays amid the sixth step, when a file of it is written."""
    write = files.write_floats

    def and_stay(place, *rest):
        done = write(place, *rest)
        if place.name == ".000006.partial":
            report("amid")
            # Not at once: where another thread takes the signal, no sleep of this one ends early.
            for _ in range(900):
                time.sleep(0.1)
        return done

    files.write_floats = and_stay
    model = Words()
    optimizer = SGD(model.parameters(), lr=0.05)
    deltawire.torch.trace(model, folder, optimizer=optimizer, every=1)
    run(model, optimizer, 6)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_is_ended_leaves_whole_steps(tmp_path, number):
    with started(record, 1, tmp_path / "t") as program:
        assert program.hear(0) == "amid"
        program.signal(0, number)
        if number == signal.SIGINT:
            assert program.outcomes()[0].raised == "KeyboardInterrupt"
        else:
            assert program.exit_codes() == [-number]
    assert [step.number for step in deltawire.read_trace(tmp_path / "t")] == [1, 2, 3, 4, 5]
    if number == signal.SIGINT:
        assert not list((tmp_path / "t").glob(".*.partial/*"))


def test_models_whose_gradients_are_sharded_are_refused(tmp_path):
    class FullyShardedDataParallel(nn.Linear):
        pass

    FullyShardedDataParallel.__module__ = "torch.distributed.fsdp"
    with pytest.raises(deltawire.DTypeError, match="shards"):
        deltawire.torch.trace(
            nn.Sequential(FullyShardedDataParallel(2, 2)), tmp_path / "t", steps=[1]
        )


def test_gradients_that_float32_cannot_hold_are_refused(tmp_path):
    model = Words(mode_sparse=False)
    model.frozen = nn.Parameter(torch.zeros(3, dtype=torch.float64), requires_grad=False)
    optimizer = SGD(model.parameters(), lr=0.05)
    deltawire.torch.trace(model, tmp_path / "t", steps=[1])
    model.frozen.requires_grad_()
    model.frozen.grad = torch.ones(3, dtype=torch.float64)
    with pytest.raises(deltawire.DTypeError, match="gradient of 'frozen' is torch.float64"):
        optimizer.step()
    assert not (tmp_path / "t" / "trace.json").exists()
