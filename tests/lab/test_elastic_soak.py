"""The soak of elastic sessions: members that are killed, frozen and join keep the same bits; and it
can fail."""

import subprocess
import sys

from lab.probes.elastic_soak.__main__ import Ledger, torn


class _Member:
    id, step, epoch, knocked_at = 3, -1, 0, None


def _step(step: int, epoch: int, ids: list[int], digest: str) -> tuple:
    return ("step", step, epoch, ids, digest, 1.0, [])


def test_members_survive_faults() -> None:
    command = [sys.executable, "-m", "lab.probes.elastic_soak", "--steps", "60", "--every", "12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 steps" in done.stdout and "faults: 0" in done.stdout


def test_members_that_differ_are_found() -> None:
    ledger, one, other = Ledger(), _Member(), _Member()
    ledger.note(one, _step(4, 0, [0, 3], "aa"))
    ledger.note(other, _step(4, 0, [0, 3], "aa"))
    assert not ledger.faults
    ledger.note(one, _step(5, 0, [0, 3], "aa"))
    ledger.note(other, _step(5, 0, [0, 3], "ab"))  # other bits
    ledger.note(one, _step(6, 0, [0, 3], "aa"))
    ledger.note(other, _step(6, 1, [3], "aa"))  # another epoch
    ledger.note(one, _step(8, 1, [3], "aa"))  # a step that is missing
    assert len(ledger.faults) == 3, ledger.faults
    assert torn(ledger) == [0, 1, 2, 3, 7]


def test_who_waits_for_long_to_train_is_found() -> None:
    ledger, joiner = Ledger(), _Member()
    joiner.knocked_at = 5
    for step in (6, 7):
        ledger.note(joiner, _step(step, 1, [0, 3], "aa"))
    assert ledger.waited == [1]
