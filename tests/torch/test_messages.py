"""Error texts come into Python whatever bytes are in them."""

import struct

import numpy as np
import torch
import torch.distributed as dist
from deltawire import DeltawireError, _core
from ranks import results
from spec_hashes import crc32c


def connected(rank, world_size, spec):
    """A session between all ranks of the test."""
    listener = _core.Listener("127.0.0.1")
    ports = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size)]
    dist.all_gather(ports, torch.tensor([listener.endpoint[1]]))
    endpoints = [("127.0.0.1", int(port)) for port in ports]
    mesh = _core.Mesh(rank, endpoints, b"\x07" * 32, "")
    return _core.Session(listener, mesh, spec, _core.ReducerOptions(256, "exact"))


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
    ((code, text),) = results(state_with_a_part_twice, 1, b"w\xff\x00\xc3")
    assert code == "Corrupt" and "w\ufffd \ufffd" in text and "twice" in text
