"""Snapshots and states: training goes on as if nothing had been."""

import logging
import resource
import shutil
import signal
import time
from pathlib import Path

import deltawire.torch
import torch
from models import Net, backward, fingerprint
from ranks import AT_ONCE, attempted, results, started
from served import SOON, sgd, staged
from watched import logged

STEPS, EVERY = 12, 3


class Normed(torch.nn.Module):
    """With statistics that are each worker's own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(64, 64)
        self.norm = torch.nn.BatchNorm1d(64)
        self.last = torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def train(rank, world_size, report, folder, stop_at=None, staleness=0):
    """Training with snapshots, which says each of its steps on the first worker, and there waits in
    step `stop_at` forever."""
    model = Normed()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.1)
    options = {"snapshot": folder, "every": EVERY, "timeout": SOON, "staleness": staleness}
    with staged(rank == 3):
        server = deltawire.torch.ParameterServer(model, optimizer, "3lc", servers=2, **options)
    if server.serves:
        server.serve(after_step=scheduler.step)
    else:
        while server.steps < STEPS:
            if rank == 2:
                report(server.steps)
                if server.steps == stop_at:
                    signal.pause()
            backward(model, rank, server.steps)
            server.step()
    server.close()
    buffers = [buffer.tolist() for buffer in model.buffers()]
    return server.resumed_at, fingerprint(model), buffers


def finished(folder, *more):
    return results(train, 4, str(folder), *more)


def kill_server_after_step_8(ranks, folder):
    """The workers may be ahead of the servers, whose snapshots of step 6 are to be there."""
    while ranks.hear(2) < 8:
        pass
    end = time.monotonic() + SOON
    while not all((folder / f"rank-{rank}.step-6.snapshot").exists() for rank in range(4)):
        assert time.monotonic() < end, sorted(folder.iterdir())
        time.sleep(0.01)
    ranks.signal(1, signal.SIGKILL)


def test_a_killed_server_is_named_and_training_goes_on_from_the_last_snapshot(tmp_path):
    through = finished(tmp_path / "through")
    folder = tmp_path / "killed"
    with started(train, 4, str(folder), 8) as ranks:
        kill_server_after_step_8(ranks, folder)
        outcomes = ranks.outcomes([0, 3])
    for outcome in outcomes.values():
        assert outcome.raised == "DeltawireError" and "rank 1" in outcome.text, outcome
        assert outcome.after < AT_ONCE
    again = finished(folder)
    assert {value[0] for value in again} == {6}, "of the eight steps at most EVERY are lost"
    assert [value[1:] for value in again[2:]] == [value[1:] for value in through[2:]]
    assert len({value[1] for value in again[2:]}) == 1


def refuse(rank, world_size, report, folder, settings):
    model = Normed()
    return attempted(
        lambda: deltawire.torch.ParameterServer(
            model,
            adam(model),
            snapshot=folder,
            every=EVERY,
            timeout=SOON,
            **{"spec": "3lc", "servers": 2, **settings},
        )
    )


def refused(folder, **settings):
    return results(refuse, 4, str(folder), settings)


def test_snapshots_that_dont_fit_are_refused_by_all(tmp_path):
    finished(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    files = {f"rank-{rank}.step-{step}.snapshot" for rank in range(4) for step in (6, 9, 12)}
    files |= {f"rank-{server}.step-0.snapshot" for server in range(2)}  # all servers have it
    assert names == files
    for errors in (refused(tmp_path, spec="fp32"), refused(tmp_path, min_elements=1)):
        assert all("was saved with" in error[1] for error in errors), errors
    for path in tmp_path.glob("rank-1.*"):
        path.unlink()
    for kind, text, suspect in refused(tmp_path):
        assert kind == "DeltawireError" and suspect == 1
        assert "rank 0 of [0, 6, 9, 12], rank 1 of []" in text


def damaged(rank, world_size, report, folder):
    model = Normed()
    server = deltawire.torch.ParameterServer(
        model, adam(model), "3lc", servers=2, snapshot=folder, every=EVERY, timeout=SOON
    )
    if server.serves:
        server.serve()
    server.close()
    return server.resumed_at


def test_a_damaged_snapshot_leaves_the_one_before(tmp_path):
    finished(tmp_path)
    newest = Path(tmp_path / "rank-0.step-12.snapshot")
    newest.write_bytes(newest.read_bytes()[:-1])
    for path in tmp_path.glob("rank-3.*"):
        path.unlink()  # of a worker: its gradients' rest is lost, and it is said
    assert results(damaged, 4, str(tmp_path)) == [9] * 4
    steps = {int(path.name.split("-")[2].split(".")[0]) for path in tmp_path.iterdir()}
    assert steps == {0, 6, 9}, "the later ones are of a past that is no more"


def without_folder(rank, world_size, report, folder):
    model = Normed()
    server = deltawire.torch.ParameterServer(
        model, adam(model), snapshot=folder, every=1, timeout=SOON
    )
    if server.serves:
        server.serve(after_step=lambda: shutil.rmtree(folder, ignore_errors=True))
    while True:
        backward(model, rank, server.steps)
        server.step()


def test_a_snapshot_that_cant_be_written_ends_training_on_all(tmp_path):
    with started(without_folder, 2, str(tmp_path / "here")) as ranks:
        outcomes = ranks.outcomes()
    for outcome in outcomes.values():
        assert outcome.raised == "DeltawireError" and outcome.after < 60
        assert "its folder" in outcome.text or "cannot be" in outcome.text, outcome


def by_hand(rank, world_size, report):
    """A state at step 4 of all ranks goes on in a new ParameterServer as in the old one."""
    ends = []
    states = []
    for state in (None, states):
        model = Net()
        server = deltawire.torch.ParameterServer(model, sgd(model, momentum=0.9), timeout=SOON)
        if state:
            server.load_state_dict(state[0])

        def save(server=server, state=state):
            if server.steps == 4 and not state:
                states.append(server.state_dict())

        if server.serves:
            server.serve(after_step=save)
        else:
            assert server.steps == (4 if state else 0)
            server.start()
            assert server.steps == (4 if state else 0)
            while server.steps < 8:
                backward(model, rank, server.steps)
                server.step()
                save()
        server.close()
        ends.append(fingerprint(model))
    return ends[0] == ends[1] or rank == 0


def test_states_by_hand_go_on_with_every_bit():
    assert results(by_hand, 3) == [True] * 3


def elsewhere(rank, world_size, report):
    """States of another rank, and ones that are none; nothing is changed, and training goes on."""
    model = Net()
    server = deltawire.torch.ParameterServer(model, sgd(model), timeout=SOON)
    state = server.state_dict()
    caught = [
        attempted(lambda: server.load_state_dict(state | {"rank": 2 - rank})),
        attempted(lambda: server.load_state_dict({"state": state["state"]})),
        attempted(lambda: server.load_state_dict(state | {"state": state["state"][:-1]})),
        attempted(lambda: server.load_state_dict(state | {"step": rank})),
    ]
    server.load_state_dict(state)
    if server.serves:
        assert server.serve() == 1
    else:
        backward(model, rank, 0)
        server.step()
    server.close()
    return caught


def test_states_of_other_places_change_nothing():
    for caught in results(elsewhere, 3):
        assert all(error is not None for error in caught), caught
        places = [text for _, text, _ in caught]
        assert "rank" in places[0] and "lacks" in places[1]
        assert "Corrupt" in places[2] or "checksum" in places[2] or "can't load" in places[2]
        assert "step" in places[3]


def train_on_a_full_disk(rank, world_size, report, folder):
    """The server's disk is full when the snapshot of step 4 is due; then there is room again."""
    warnings, errors = logged(logging.WARNING), []
    model = Net()
    server = deltawire.torch.ParameterServer(
        model, sgd(model), "3lc", snapshot=folder, every=2, timeout=SOON
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def after_step():
        steps = server.metrics()["step"]
        errors.append(server.metrics()["snapshot_error"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 if steps == 4 else soft, hard))

    if server.serves:
        server.serve(after_step)
    else:
        while server.steps < 6:
            backward(model, rank, server.steps)
            server.step()
    server.close()
    return warnings, errors, server.metrics()["snapshot_error"]


def test_a_full_disk_at_a_snapshot_is_warned_of_and_training_goes_on(tmp_path):
    of_server, of_worker = results(train_on_a_full_disk, 2, str(tmp_path))
    (warning,), errors, error = of_server
    file = str(tmp_path / "rank-0.step-4.snapshot")
    for part in ("rank 0", "step 4", file, "File too large", "its newest one is of step 2"):
        assert part in warning, warning
    assert [each is not None for each in errors] == [False] * 4 + [True, True], "after step 5 and 6"
    assert file in errors[4] and error is None, "the one of step 6 was written"
    assert of_worker[0] == [] and of_worker[2] is None
    left = sorted(path.name for path in tmp_path.glob("rank-0.*"))
    assert left == [f"rank-0.step-{step}.snapshot" for step in (0, 2, 6)]
