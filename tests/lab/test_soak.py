"""The soak: ranks that are killed, cut off and made to send garbage end with the bits of an
undisturbed run; and it can fail."""

import dataclasses
from pathlib import Path

import pytest

from lab.probes.soak import __main__ as soak
from lab.probes.soak.rank import Fault, Plan, Report

PLAN = Plan("3lc", 16, 2, 2, 1, Path(), 8, 2.0)
FAULTS = (
    Fault(3, "garble", 1, "before"),
    Fault(5, "cut", 0, "amid"),
    Fault(11, "kill", 1, "amid"),
    Fault(13, "raise", 0, "after"),
)


def test_faults_heal_and_leave_no_trace():
    plain = soak.soaked(PLAN)
    disturbed = soak.soaked(dataclasses.replace(PLAN, faults=FAULTS))
    assert disturbed.log[16] == plain.log[16]
    assert disturbed.fired == {"garble": 1, "kill": 1, "cut": 1, "raise": 1}
    assert disturbed.attempts == 5 and plain.attempts == 1
    assert disturbed.repeated >= 4  # the killed rank's checkpoint is of step 8
    assert {"Corrupt", "PeerLost", "_OwnException"} <= set(disturbed.codes)


def test_ranks_that_differ_end_the_run():
    run = soak.Soak(PLAN)
    same = {rank: Report(5, "aa") for rank in range(2)}
    run._check(same)
    for other in (Report(5, "ab"), Report(6, "aa")):
        with pytest.raises(soak.SoakFailed, match="the ranks differ, "):
            run._check({**same, 1: other})
    run._compare(0, 50, "aa")
    with pytest.raises(soak.SoakFailed, match="rank 1's weights of step 50 differ"):
        run._compare(1, 50, "ab")


def test_faults_are_the_seeds():
    faults = soak.chosen_faults(dataclasses.replace(PLAN, steps=1000), 0.05, ["kill", "cut"])
    assert faults == soak.chosen_faults(
        dataclasses.replace(PLAN, steps=1000, spec="fp32"), 0.05, ["kill", "cut"]
    )
    assert 20 < len(faults) < 100 and {fault.kind for fault in faults} == {"kill", "cut"}
    assert {fault.victim for fault in faults} == {0, 1}


@pytest.mark.parametrize("given", [["fp32", "--ranks", "1"], ["fp32", "--rate", "2"], []])
def test_a_command_line_that_can_not_be_meant(given, capsys):
    with pytest.raises(SystemExit) as ended:
        soak.main(given)
    assert ended.value.code == 2 and "usage" in capsys.readouterr().err
