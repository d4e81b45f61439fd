"""Training with parameter servers: what workers have is what the servers say."""

import contextlib
import copy
import os
import pickle
import time
import warnings
from pathlib import Path

import deltawire.torch
import pytest
import torch
from models import Net, backward, batch, fingerprint, steps_by
from ranks import results, started
from served import SOON, part_of, sgd

STEPS = 6


def momentum(model):
    return sgd(model, momentum=0.9, weight_decay=1e-3)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


OPTIMIZERS = {
    "SGD": sgd,
    "momentum": momentum,
    "nesterov": lambda model: sgd(model, momentum=0.9, nesterov=True),
    "Adam": adam,
    "AdamW": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1),
    "RMSprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.001),
    "Adagrad": lambda model: torch.optim.Adagrad(model.parameters(), lr=0.01),
}


def trained_here(workers, make, steps=STEPS):
    """The same training in one process: mean gradients, torch's own step."""
    model = Net()
    optimizer = make(model)
    for step in range(steps):
        sums = None
        for worker in range(workers):
            backward(model, worker, step)
            own = [parameter.grad.clone() for parameter in model.parameters()]
            sums = own if sums is None else [a + b for a, b in zip(sums, own, strict=True)]
        for parameter, total in zip(model.parameters(), sums, strict=True):
            parameter.grad = total / workers
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def each_optimizer(rank, world_size, report):
    """Without compression the servers' steps are torch's."""
    for name, make in OPTIMIZERS.items():
        model = Net()
        server = deltawire.torch.ParameterServer(
            model, make(model), "fp32", servers=2, timeout=SOON
        )
        if server.serves:
            assert server.serve() == STEPS
        else:
            for step in range(STEPS):
                backward(model, rank - 2, step)
                assert server.step()
            server.close()
            for own, due in zip(model.parameters(), trained_here(2, make), strict=True):
                assert torch.allclose(own, due, rtol=1e-4, atol=1e-6), name
        server.close()


def test_servers_step_as_torchs_optimizers():
    results(each_optimizer, 4)


WARNED = [
    (
        momentum,
        "optimizer",
        "sbc:p=1%",
        "fp32",
        "give SGD momentum=0 and 5 times the learning rate",
    ),
    (momentum, "rate", "sbc:p=1%", "fp32", None),
    (adam, "optimizer", "3lc", "fp32", "LeNet-5 lost 8 points"),
    (adam, "rate", "3lc", "fp32", None),
    (adam, "optimizer", "fp32", "3lc", None),
    (OPTIMIZERS["RMSprop"], "rate", "3lc", "3lc", "Take int8"),
    (momentum, "optimizer", "3lc", "3lc", None),
]


def warned(rank, world_size, report):
    told = []
    for make, way, push, pull, _ in WARNED:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            part_of(rank, 1, make, push=push, pull=pull, momentum=way)
        ours = [each for each in caught if each.category is deltawire.torch.MomentumWarning]
        told.append([(str(each.message), each.filename) for each in ours])
    return told


def test_rank_0_says_where_the_optimizer_does_not_go_with_the_push():
    for case, told, silent in zip(WARNED, *results(warned, 2), strict=True):
        assert silent == [] and len(told) == (case[-1] is not None), case
        for text, file in told:
            assert case[-1] in text and "\n" not in text and file.endswith("served.py")


def by_rules(rank, world_size, report):
    """(Fingerprint, bytes pushed) of each way."""
    found = []
    for way in ("rate", "optimizer"):
        options = {"spec": "step<2: bf16, rest 3lc", "min_elements": 1, "momentum": way}
        print_of, metrics = part_of(rank, STEPS, OPTIMIZERS["AdamW"], **options)
        found.append((print_of, metrics["push_bytes"]))
    return found


def test_servers_step_by_the_rule_for_adamw_and_3lc():
    _, *workers = results(by_rules, 3)
    by_rule, as_it_is = zip(*workers, strict=True)
    assert len({fingerprint for fingerprint, _ in by_rule}) == 1
    assert by_rule[0][0] != as_it_is[0][0]
    assert by_rule[0][1] > as_it_is[0][1], "mean squares travel beside gradients"


def compressed(rank, world_size, report):
    options = {"spec": "3lc:s=1.75", "servers": 2, "is_staged": rank % 2 == 0}
    overlaps = ("both", "push", "none")
    return [part_of(rank, STEPS, momentum, overlap=each, **options) for each in overlaps]


def test_workers_are_bit_equal_whatever_overlaps_and_each_change_is_encoded_once():
    prints = set()
    for ranks in zip(*results(compressed, 5), strict=True):
        servers, workers = ([metrics for _, metrics in part] for part in (ranks[:2], ranks[2:]))
        prints |= {fingerprint for fingerprint, _ in ranks[2:]}
        parts = [metrics["encodes_per_step"] for metrics in servers]
        assert sum(parts) == len(list(Net().parameters())), "whole tensors, each encoded once"
        for metrics in workers:
            assert metrics["step"] == metrics["steps"] == STEPS
            assert metrics["push_ratio"] > 8 and metrics["pull_ratio"] > 8
            assert metrics["push_ms"] > 0 and metrics["wait_ms"] > 0
        pushed = sum(metrics["push_bytes"] for metrics in workers)
        assert pushed == sum(metrics["push_bytes"] for metrics in servers)
    assert len(prints) == 1 and prints != {fingerprint(Net())}


class Around(torch.nn.Module):
    """Uses a layer's weight without calling the layer, as MultiheadAttention does."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.called = torch.nn.Linear(64, 64)
        self.read = torch.nn.Linear(64, 64)
        self.norm = torch.nn.BatchNorm1d(64)

    def forward(self, x):
        y = self.norm(torch.tanh(self.called(x)))
        return torch.nn.functional.linear(y, self.read.weight, self.read.bias)


def around(rank, world_size, report):
    return part_of(rank, STEPS, spec="3lc", network=Around, overlap="both")


def test_layers_that_are_not_called_are_waited_for():
    found = results(around, 3)
    assert len({fingerprint for fingerprint, _ in found[1:]}) == 1


def late_use(rank, world_size, report):
    """A layer that is called at first, and read from the third step on."""
    model = Around()
    server = deltawire.torch.ParameterServer(model, sgd(model), overlap="both", timeout=SOON)
    if server.serves:
        server.serve()
        return None
    model.read.register_forward_hook(lambda *_: None)
    for step in range(4):
        x, y = batch(0, step)
        head = model.read if step < 2 else (lambda z: z @ model.read.weight.T)
        (head(torch.tanh(model.called(x))) - y).square().mean().backward()
        server.step()
    return None


def test_a_layer_that_is_read_too_early_is_an_error():
    with started(late_use, 2) as ranks:
        outcomes = ranks.outcomes()
    assert outcomes[1].raised == "DeltawireError" and "'read.weight' was used while" in (
        outcomes[1].text
    )
    assert outcomes[0].raised == "DeltawireError" and "rank 1" in outcomes[0].text


def rates(rank, world_size, report):
    """A scheduler of the servers' optimizer; the same in one process."""

    def with_schedule(model):
        optimizer = sgd(model, rate=0.5)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1)

    model = Net()
    optimizer, scheduler = with_schedule(model)
    server = deltawire.torch.ParameterServer(model, optimizer, "fp32", timeout=SOON)
    if server.serves:
        server.serve(after_step=scheduler.step)
    else:
        steps_by(server, model, 0, range(STEPS))
    server.close()
    if rank == 0:
        return
    alone = Net()
    optimizer, scheduler = with_schedule(alone)
    for step in range(STEPS):
        backward(alone, 0, step)
        optimizer.step()
        scheduler.step()
    for own, due in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(own, due, rtol=1e-4, atol=1e-6)


def test_a_schedule_runs_on_the_servers():
    results(rates, 2)


def accumulated(rank, world_size, report):
    model = Net()
    server = deltawire.torch.ParameterServer(model, sgd(model), "fp32", timeout=SOON)
    if server.serves:
        server.serve()
        return
    optimizer = sgd(reference := Net())
    for step in range(3):
        for each in (model, reference):
            each.zero_grad()
        for half in range(2):
            x, y = batch(half, step)
            (reference(x) - y).square().mean().backward()
            with server.no_sync() if half == 0 else contextlib.nullcontext():
                (model(x) - y).square().mean().backward()
        optimizer.step()
        server.step()
    server.close()
    for own, due in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(own, due, rtol=1e-4, atol=1e-6)


def test_gradients_are_accumulated_without_leaving():
    results(accumulated, 2)


def uneven(rank, world_size, report):
    """The first worker has fewer batches: training ends with it, and nobody hangs."""
    model = Net()
    with deltawire.torch.ParameterServer(model, sgd(model), timeout=SOON) as server:
        if server.serves:
            return server.serve()
        made = 0
        for step in range(3 if rank == 1 else 9):
            backward(model, rank, step)
            made += server.step()
        ended = server.ended
    return made, ended, fingerprint(model)


def test_workers_with_fewer_batches_end_training():
    steps, first, second = results(uneven, 3)
    assert steps == 3 and first[0] == second[0] == 3
    assert not first[1] and second[1] and first[2] == second[2]


def sockets():
    """Open sockets of this process."""
    links = Path("/proc/self/fd").iterdir()
    return sum(os.readlink(link).startswith("socket:") for link in links if link.is_symlink())


def left(rank, world_size, report):
    """The object lives on, as a program's globals do until its process ends."""
    model = Net()
    server = deltawire.torch.ParameterServer(model, sgd(model), timeout=SOON)
    during = sockets()
    if server.serves:
        server.serve()
    else:
        backward(model, rank, 0)
        server.step()
    server.close()
    return during - sockets()


def test_close_leaves_the_others_before_the_process_ends():
    """A process that ends without a goodbye looks like a crash to those that still close."""
    for closed in results(left, 3):
        assert closed >= 4  # two to each of the others


def backed_up(rank, world_size, report, folder):
    """The last worker is slower than the others, however slow these are: at each step it waits
    until they are two steps ahead, or at the last."""
    steps = 12

    def slow(server, worker):
        if worker == 0:
            (folder / str(server.steps)).touch()
        ahead = folder / str(min(server.steps + 2, steps - 1))
        end = time.monotonic() + SOON
        while worker == 2 and not ahead.exists():
            assert time.monotonic() < end
            time.sleep(0.001)

    return part_of(rank, steps, spec="3lc", backup=1, before=slow)


def test_a_slow_worker_is_not_waited_for_and_ends_equal(tmp_path):
    found = results(backed_up, 4, tmp_path)
    assert len({fingerprint for fingerprint, _ in found[1:]}) == 1
    late = found[3][1]
    assert late["late_pushes"] > 0 and late["skipped_steps"] > 0


def stale(rank, world_size, report):
    def slow_at_times(server, worker):
        if worker == server.steps % 3:
            time.sleep(0.05)

    return part_of(rank, 9, spec="3lc", staleness=2, before=slow_at_times, is_staged=rank == 3)


def test_workers_that_may_be_ahead_end_equal():
    found = results(stale, 4)
    assert len({fingerprint for fingerprint, _ in found[1:]}) == 1
    assert all(metrics["steps"] == 9 for _, metrics in found)
    assert all(metrics["late_pushes"] == 0 for _, metrics in found)


def copies(rank, world_size, report):
    model = Net()
    optimizer = sgd(model)
    server = deltawire.torch.ParameterServer(model, optimizer, overlap="both", timeout=SOON)
    if server.serves:
        server.serve()
        return
    backward(model, 0, 0)
    server.step()
    saved = model.state_dict()  # it waits for the parameters
    whole = {name: value.clone() for name, value in saved.items()}
    server.wait()
    assert all(torch.equal(whole[name], value) for name, value in model.state_dict().items())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert fingerprint(copied) == fingerprint(model)
        backward(copied, 0, 1)  # a plain module: nothing leaves
    with pytest.raises(TypeError, match="copied or pickled"):
        copy.deepcopy(server)
    with pytest.raises(deltawire.DeltawireError, match="step"):
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.5
    backward(model, 0, 1)
    with pytest.raises(deltawire.DeltawireError, match="after_step=scheduler.step"):
        server.step()


def test_copies_are_plain_modules_and_the_optimizer_is_the_servers():
    with started(copies, 2) as ranks:
        outcomes = ranks.outcomes()
    assert outcomes[1].raised is None, outcomes[1].text
    assert outcomes[0].raised == "DeltawireError" and "after_step" in outcomes[0].text
