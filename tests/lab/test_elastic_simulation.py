"""Elastic sessions on a virtual clock keep their promises; and what is broken is found."""

import pytest
from deltawire.elastic import founding, hosting

from lab.elastic_simulation.__main__ import main
from lab.elastic_simulation.job import Job
from lab.elastic_simulation.plan import draw_plan
from lab.elastic_simulation.promises import broken_promises


def run(seed: int) -> Job:
    job = Job(draw_plan(seed))
    job.run()
    return job


def test_seeds_keep_every_promise() -> None:
    changes = 0
    for seed in range(30):
        job = run(seed)
        assert not broken_promises(job), f"python -m lab.elastic_simulation --seed {seed} --trace"
        changes += len({each.epoch for each in job.commits}) - 1
    assert changes >= 5


def test_a_seed_repeats_itself() -> None:
    assert run(17).trace == run(17).trace != run(18).trace


# 282: rank 0 is frozen until after its deadline, and when it wakes up the last of the others calls.
# 760: a member dies between the agreement and the mesh, and the time to meet is short.
@pytest.mark.parametrize("seed", [282, 760])
def test_seeds_that_found_faults(seed: int) -> None:
    assert not broken_promises(run(seed))


def test_two_groups_that_go_on_are_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosting, "may_go_on", lambda *_: True)
    assert main(["--seeds", "100"]) == 1
    assert "two groups go on" in capsys.readouterr().out


def test_an_error_of_the_code_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(founding, "View", None)
    assert "TypeError" in broken_promises(run(0))[0]
