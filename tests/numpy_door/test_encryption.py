"""Who encrypts connections, and how it is said."""

import os
import secrets
import socket
import subprocess
import sys

import deltawire
import pytest
from hosts import hosts
from ports import kept_port

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


def said_by_ranks(
    addresses: tuple[str, str], encryptions: tuple[str, str], **environment: str
) -> list[str]:
    """What two ranks say at the end, in processes of their own."""
    environment = (
        os.environ | {"DELTAWIRE_TOKEN": SECRET, "OPENBLAS_NUM_THREADS": "1"} | environment
    )
    how = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    places = zip("01", addresses, encryptions, strict=True)
    processes = [subprocess.Popen([sys.executable, "-c", RANK, *each], **how) for each in places]
    try:
        return [process.communicate(timeout=LIMIT)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_other_settings_are_named() -> None:
    with kept_port() as port:
        said = said_by_ranks((f"127.0.0.1:{port}",) * 2, ("required", "off"))
    for text in said:
        assert text.startswith("Mismatch: "), said
        assert 'rank 0 has encryption="required"' in text, said
        assert 'rank 1 has encryption="off"' in text, said


@pytest.mark.parametrize(("setting", "first"), [("required", b"\x16"), ("off", b"D")])
def test_the_environment_may_say_so(setting: str, first: bytes) -> None:
    """A rank begins with TLS, or without."""
    environment = os.environ | {"DELTAWIRE_TOKEN": SECRET, "DELTAWIRE_ENCRYPTION": setting}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-c", RANK, "1", address, ""]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as rank:
            try:
                listener.settimeout(LIMIT)
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(LIMIT)
                    assert connection.recv(1) == first
            finally:
                rank.kill()


def test_what_is_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"rank": 0, "world_size": 1, "token": SECRET}
    with pytest.raises(deltawire.InvalidArgumentError, match='"auto", "required" or "off"'):
        deltawire.Session("fp32", **place, encryption="on")
    monkeypatch.setenv("DELTAWIRE_ENCRYPTION", "yes")
    with pytest.raises(deltawire.InvalidArgumentError, match='DELTAWIRE_ENCRYPTION, is "yes"'):
        deltawire.Session("fp32", **place)
    monkeypatch.setenv("DELTAWIRE_ENCRYPTION", "")  # as unset
    deltawire.Session("fp32", **place).close()


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
    environment = os.environ | {"DELTAWIRE_TOKEN": SECRET, "OPENBLAS_NUM_THREADS": "1"}
    begins = []
    with hosts() as network:
        for address, second in ((network.address(0), 1), ("127.0.0.1", 0)):
            here, there = network.command_prefix(0), network.command_prefix(second)
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
    assert begins == ["16", b"D".hex()]
