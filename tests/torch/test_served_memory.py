"""Memory of served parameters on a GPU, played on the host."""

import pytest
import torch
from deltawire.errors import DeltawireError
from deltawire.torch.server import memory as served_memory
from deltawire.torch.server.memory import ServedMemory


class Event:
    """Of a copy to or from a device."""

    def __init__(self, is_over):
        self.is_over = is_over

    def query(self):
        return self.is_over


class Device:
    """Gives the events of copies, and keeps them."""

    def __init__(self, monkeypatch):
        monkeypatch.setenv("DELTAWIRE_FORCE_STAGING", "on")
        monkeypatch.setattr(served_memory, "_event_on", self.event)
        self.is_busy, self.events = False, []

    def event(self, _):
        self.events.append(Event(not self.is_busy))
        return self.events[-1]


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def parameters():
    first = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    second = torch.nn.Parameter(torch.ones(2, 4, 3).permute(0, 2, 1))
    return ["first", "second"], [first, second]


def host_of(memory, index):
    return memory._hosts[index]


def test_what_the_core_writes_goes_to_the_parameters_and_to_no_others(device):
    names, (first, second) = parameters()
    memory = ServedMemory(names, [first, second], 4)
    assert memory.place(0)[0] != first.data_ptr()
    assert torch.equal(host_of(memory, 0), torch.arange(6.0))
    with memory.written(1, [0]):
        host_of(memory, 0).fill_(7)
        host_of(memory, 1).fill_(8)
    assert first.eq(7).all() and second.eq(1).all()
    with memory.written(1):
        pass
    assert second.eq(8).all()


def test_the_core_does_not_write_what_a_device_still_reads(device):
    memory = ServedMemory(*parameters(), 4)
    device.is_busy = True
    with memory.written(1, [1]):
        pass
    device.is_busy = False
    with memory.written(0.05, [0]):  # the other one may be written
        pass
    late = pytest.raises(DeltawireError, match=r"sent to parameter 'second'.*0\.05 s")
    with late as caught, memory.written(0.05):
        pytest.fail("the core must not write now")
    assert (caught.value.code, caught.value.suspect) == ("Timeout", 4)


def test_a_gradient_is_waited_for(device):
    names, given = parameters()
    memory = ServedMemory(names, given, 4)
    given[1].grad = torch.arange(24.0).view(2, 3, 4)
    assert memory.gradient(1, 1).tolist() == given[1].grad.permute(0, 2, 1).reshape(-1).tolist()
    assert memory.gradient(0, 1).tolist() == [0.0] * 6
    device.is_busy = True
    with pytest.raises(DeltawireError, match="gradient of parameter 'second' was not copied") as it:
        memory.gradient(1, 0.05)
    assert (it.value.code, it.value.suspect) == ("Timeout", 4)


def test_a_parameter_of_the_cpu_is_its_own_memory(monkeypatch):
    monkeypatch.setenv("DELTAWIRE_FORCE_STAGING", "off")
    names, given = parameters()
    memory = ServedMemory(names, given, 0)
    assert [memory.place(at) for at in (0, 1)] == [(each.data_ptr(), each.nbytes) for each in given]
    given[0].grad = torch.ones(2, 3)
    assert memory.gradient(0, 1).ctypes.data == given[0].grad.data_ptr()
