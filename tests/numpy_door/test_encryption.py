"""Ranks whose connections are encrypted, and somebody in between who has no token."""

import contextlib
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import deltawire
import pytest
from ports import kept_port

from lab.ranks.namespaces import NamespaceError, Namespaces

SECRET = secrets.token_hex(32)
LIMIT = 90  # seconds, of a rank on a busy machine
RANK = """
import sys, deltawire, numpy as np
rank, address, encryption = sys.argv[1:]
values = np.full(3000, 2.0 + int(rank), np.float32)
try:
    with deltawire.Session(
        "direct(fp32)", rank=int(rank), world_size=2, address=address,
        encryption=encryption or None, connect_timeout=20.0, timeout=20.0,
    ) as session:
        for _ in range(3):
            values[:] = 2.0 + int(rank)
            session.all_reduce({"x": values})
        print(f"mean {values.max():g}")
except deltawire.DeltawireError as error:
    print(f"{error.code}: {error}")
"""
Meddle = Callable[[int, bytearray], bytes]


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Forger:
    """Changes the last value of every frame from one end to 1000, and mends the checksums."""

    def __init__(self) -> None:
        self.forged = 0
        self.seen = b""

    def __call__(self, connection: int, held: bytearray) -> bytes:
        self.seen += bytes(held)
        passed = bytearray()
        while held:
            at = held.find(b"DWDM")
            if at < 0:
                passed += held
                held.clear()
            elif at > 0:
                passed += held[:at]
                del held[:at]
            elif len(held) < 32 or len(held) < 32 + struct.unpack_from("<Q", held, 16)[0]:
                break
            else:
                end = 32 + struct.unpack_from("<Q", held, 16)[0]
                frame = held[32:end]
                if frame:
                    head = struct.unpack_from("<I", frame, 8)[0]
                    frame[-4:] = struct.pack("<f", 1000.0)
                    struct.pack_into("<I", frame, head - 4, crc32c(frame[head:]))
                    crc = crc32c(frame[20:head], crc32c(frame[:16]))
                    struct.pack_into("<I", frame, 16, crc)
                    self.forged += 1
                passed += held[:32] + frame
                del held[:end]
        return bytes(passed)


@contextlib.contextmanager
def relay_to(address: str, meddle: Meddle) -> Iterator[str]:
    """Another address for the same listener; `meddle` sees what comes back from there."""
    host, port = address.split(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket, number: int | None) -> None:
        held = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                held += data
                target.sendall(bytes(held) if number is None else meddle(number, held))
                if number is None:
                    held.clear()
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        number = 0
        with contextlib.suppress(OSError):
            while True:
                dialer, _ = listener.accept()
                try:
                    target = socket.create_connection((host, int(port)))
                except OSError:
                    dialer.close()
                    continue
                for one, other, which in ((dialer, target, None), (target, dialer, number)):
                    threading.Thread(target=pump, args=(one, other, which), daemon=True).start()
                number += 1

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def said_by_ranks(
    addresses: tuple[str, str], encryptions: tuple[str, str], **environment: str
) -> list[str]:
    """What two ranks say at the end, in processes of their own."""
    environment = (
        os.environ | {"DELTAWIRE_TOKEN": SECRET, "OPENBLAS_NUM_THREADS": "1"} | environment
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), addresses[rank], encryptions[rank]],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        return [process.communicate(timeout=LIMIT)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("encryption", ["off", "required"])
def test_somebody_in_between_changes_no_mean(encryption: str) -> None:
    forger = Forger()
    with kept_port() as port, relay_to(f"127.0.0.1:{port}", forger) as relay:
        said = said_by_ranks((f"127.0.0.1:{port}", relay), (encryption, encryption))
    if encryption == "off":  # why encryption is worth its cost: both ranks are content
        assert forger.forged > 0 and said == ["mean 501.5", "mean 501.5"], said
    else:
        assert forger.forged == 0 and said == ["mean 2.5", "mean 2.5"], said
        assert b"DWDM" not in forger.seen and b"direct(fp32)" not in forger.seen


def test_a_byte_that_changes_on_the_way_ends_both_ranks() -> None:
    seen = 0

    def meddle(connection: int, held: bytearray) -> bytes:
        nonlocal seen
        seen += len(held)
        if seen > 9000:  # within the means
            held[-1] ^= 1
        passed = bytes(held)
        held.clear()
        return passed

    with kept_port() as port, relay_to(f"127.0.0.1:{port}", meddle) as relay:
        said = said_by_ranks((f"127.0.0.1:{port}", relay), ("required", "required"))
    for text in said:
        assert text.startswith("Corrupt: ") and "on the way" in text, said
        # No rank has seen a step that counts; whether another one has is all that is unknown.
        assert "no step of this session counts" in text and "but perhaps not on" not in text, said
    assert "rank 0" in said[1]


def test_other_settings_are_named() -> None:
    with kept_port() as port:
        said = said_by_ranks((f"127.0.0.1:{port}",) * 2, ("required", "off"))
    for text in said:
        assert text.startswith("Mismatch: "), said
        assert 'rank 0 has encryption="required"' in text, said
        assert 'rank 1 has encryption="off"' in text, said


def test_the_environment_may_say_so() -> None:
    forger = Forger()
    with kept_port() as port, relay_to(f"127.0.0.1:{port}", forger) as relay:
        said = said_by_ranks(
            (f"127.0.0.1:{port}", relay), ("", ""), DELTAWIRE_ENCRYPTION="required"
        )
    assert forger.forged == 0 and said == ["mean 2.5", "mean 2.5"], said


def test_what_is_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"rank": 0, "world_size": 1, "token": SECRET}
    with pytest.raises(deltawire.InvalidArgumentError, match='"auto", "required" or "off"'):
        deltawire.Session("fp32", **place, encryption="on")
    monkeypatch.setenv("DELTAWIRE_ENCRYPTION", "yes")
    with pytest.raises(deltawire.InvalidArgumentError, match='encryption is "yes"'):
        deltawire.Session("fp32", **place)


FIRST_BYTE = """
import socket, sys
listener = socket.create_server((sys.argv[1], 29600))
print("listening", flush=True)
connection, _ = listener.accept()
connection.settimeout(60)
print(connection.recv(1).hex())
"""


def test_auto_encrypts_what_leaves_the_machine() -> None:
    """Two network namespaces are two machines; a rank begins there with TLS, and here without."""
    try:
        namespaces = Namespaces(2, None).__enter__()
    except NamespaceError as cause:
        pytest.skip(f"two machines: {cause}")
    environment = os.environ | {"DELTAWIRE_TOKEN": SECRET, "OPENBLAS_NUM_THREADS": "1"}
    begins = []
    try:
        for address, second in ((namespaces.address(0), 1), ("127.0.0.1", 0)):
            here, there = namespaces.command_prefix(0), namespaces.command_prefix(second)
            with subprocess.Popen(
                [*here, sys.executable, "-c", FIRST_BYTE, address],
                stdout=subprocess.PIPE,
                text=True,
            ) as listener:
                assert listener.stdout.readline() == "listening\n"
                command = [*there, sys.executable, "-c", RANK, "1", f"{address}:29600", "auto"]
                rank = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
                try:
                    begins.append(listener.communicate(timeout=LIMIT)[0].strip())
                finally:
                    rank.kill()
                    rank.wait()
                    listener.kill()
    finally:
        namespaces.remove()
    assert begins == ["16", b"D".hex()]
