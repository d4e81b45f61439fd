"""The times of steps and copies that `auto` measures, by the CPU's clock and by a device's."""

import pytest
import torch
from deltawire.errors import DeltawireError
from deltawire.torch.auto import clocks
from deltawire.torch.auto.clocks import HostClock
from deltawire.torch.auto.measuring import StepClock, StepTimes


def test_the_clock_counts_whole_steps_from_their_first_forward_pass():
    now = 0.0

    def after(seconds, call, *given):
        nonlocal now
        now += seconds
        call(*given)

    played = HostClock()
    played.now = lambda: now
    clock = StepClock(played)
    clock.restart(1)
    for _ in range(3):
        after(10, clock.begin)
        after(4, clock.begin)  # a second micro-batch
        after(1, clock.ready, False)
        after(1, clock.ready, True, True)
        after(1, clock.over)
        after(1, clock.over)
    after(1, clock.ready, True)  # without a forward pass that was seen
    after(1, clock.over)
    assert clock.times() == [StepTimes((5.0, 6.0), 8.0, True)] * 2


class Moment:
    """An event of a device that is played on the host."""

    def __init__(self, at, over):
        self.at, self.over, self.stream = at, over, None

    def record(self, stream):
        self.stream = stream

    def query(self):
        return self.over

    def elapsed_time(self, other):
        assert self.over and other.over
        return other.at - self.at


@pytest.fixture
def played(monkeypatch):
    """(Device, moments recorded on it): one each 4 ms, over when the test says so."""
    device, made = torch.device("cuda", 1), []

    def event(enable_timing):
        assert enable_timing
        made.append(Moment(4.0 * len(made), False))
        return made[-1]

    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(torch.cuda, "current_stream", {device: "current"}.get)
    monkeypatch.setattr(clocks, "is_captured", lambda device: False)
    return device, made


def test_a_step_of_a_device_takes_as_long_as_the_device(played, monkeypatch):
    device, made = played
    clock = StepClock(clocks.clock_of(device, 0.05, 3))
    for _ in range(2):
        clock.begin()
        clock.ready(False)
        clock.ready(True)
        clock.over()
        clock.over()
    assert {each.stream for each in made} == {"current"} and len(made) == 8
    with pytest.raises(DeltawireError, match=r"cuda:1 was not done with a step after 0\.05 s") as e:
        clock.times()
    assert (e.value.code, e.value.suspect) == ("Timeout", 3)
    for each in made[:4]:
        each.over = True
    clock.begin()
    clock.ready(True)
    clock.over()
    assert clock._times == [StepTimes((0.004, 0.008), 0.012)], "no moment is kept for long"
    for each in made:
        each.over = True
    assert clock.times()[1:] == [StepTimes((0.004, 0.008), 0.012), StepTimes((0.004,), 0.008)]
    monkeypatch.setattr(clocks, "is_captured", lambda device: True)
    clock.begin()
    clock.ready(True)
    clock.over()
    assert len(clock.times()) == 3, "a CUDA graph is captured, and not run"


def test_copies_take_as_long_as_the_device(played, monkeypatch):
    device, made = played
    clock = clocks.clock_of(device, 0.05, 3)
    waited = []
    monkeypatch.setattr(clocks.DeviceClock, "wait", lambda self, moment: waited.append(moment))
    monkeypatch.setattr(clocks.DeviceClock, "seconds", lambda self, begin, end: end.at - begin.at)
    assert clocks.copy_seconds(torch.device("cpu"), clock) == (4.0 / (1 << 23),) * 2
    assert waited == made[1::2]
