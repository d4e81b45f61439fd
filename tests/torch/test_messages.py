"""Error texts cross from rank to rank and into Python, whatever bytes are in them."""

import struct
import threading

import numpy as np
import pytest
import torch
import torch.distributed as dist
from deltawire import DeltawireError, _core
from ranks import started
from spec_hashes import crc32c


def connected(rank, world_size, spec):
    """A session between all ranks of the test."""
    listener = _core.Listener("127.0.0.1")
    ports = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size)]
    dist.all_gather(ports, torch.tensor([listener.endpoint[1]]))
    endpoints = [("127.0.0.1", int(port)) for port in ports]
    mesh = _core.Mesh(rank, endpoints, b"\x07" * 32, "")
    return _core.Session(listener, mesh, spec, _core.ReducerOptions(256, "exact"))


def fail_with_a_long_name(rank, world_size, report, name):
    """Rank 0's codec refuses a NaN, in a message that quotes a name too long to travel whole."""
    session = connected(rank, world_size, "3lc")
    values = np.ones(5000, np.float32)
    if rank == 0:
        values[7] = np.nan
    over, errors = threading.Event(), []

    def completed(error, _report):
        errors.append(error)
        over.set()

    session.submit(
        [(name, values.ctypes.data, values.nbytes, values.shape)],
        _core.Step(0, 0, True),
        20_000,
        completed,
    )
    assert over.wait(60), "the callback never came"
    session.close()
    return type(errors[0]).__name__, errors[0].suspect, str(errors[0])


@pytest.mark.parametrize("shift", [0, 1])  # one of them cuts amid a character
def test_a_text_cut_on_its_way_stays_text(shift):
    name = "x" * shift + "é" * 300
    with started(fail_with_a_long_name, 2, name) as ranks:
        outcomes = ranks.outcomes()
    for rank, outcome in outcomes.items():
        assert outcome.raised is None, outcome
        kind, suspect, text = outcome.value
        assert (kind, suspect) == ("DeltawireError", 0), rank
        assert "é" * 200 in text and "\ufffd" not in text


def state_with_a_part_twice(rank, world_size, report, name):
    """Loads residuals whose two parts have one name, of any bytes; the error quotes it."""
    session = connected(rank, world_size, "gather(sbc)")
    saved = session.save()
    head = saved.index(b"DWSTATE\n")
    entry = struct.pack("<IQQff", len(name), 0, 0, 1.0, 0.0) + name
    channel = saved[head : head + 12] + struct.pack("<I", 2) + saved[head + 16 : head + 24]
    channel += 2 * entry
    channel += struct.pack("<I", crc32c(channel))
    place = saved[:16] + struct.pack("<Q", len(channel)) + saved[24:28]
    state = place + struct.pack("<I", crc32c(place)) + saved[32:head] + channel
    try:
        session.load(np.frombuffer(state, np.uint8))
    except DeltawireError as error:
        return error.code, str(error)
    finally:
        session.close()
    return None


def test_a_message_that_is_no_utf8_becomes_an_exception():
    with started(state_with_a_part_twice, 1, b"w\xff\x00\xc3") as ranks:
        outcome = ranks.outcomes()[0]
    assert outcome.raised is None, outcome
    code, text = outcome.value
    assert code == "Corrupt" and "w\ufffd \ufffd" in text and "twice" in text
