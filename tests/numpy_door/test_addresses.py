"""Where ranks meet and joiners call: lists, files, the environment, names, IPv6."""

import socket
import threading
import time
from pathlib import Path

import deltawire
import numpy as np
import pytest
from deltawire.network import Doors
from ports import kept_port

SETTINGS = {
    "elastic": True,
    "token": "a secret of the tests, of no special length",
    "timeout": 20.0,
    "connect_timeout": 40.0,
    "arrival_timeout": 20.0,
}


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_a_list_a_file_and_the_environment(tmp_path: Path, monkeypatch) -> None:
    assert Doors("10.0.0.1:1, [fd00::1]:2,").resolved() == [("10.0.0.1", 1), ("fd00::1", 2)]
    file = tmp_path / "members"
    file.write_text("# of the job\n10.0.0.1:1  # rank 0\n\n[::1]:2\n")
    monkeypatch.setenv("DELTAWIRE_ADDRESS", f"@{file}")
    doors = Doors(None)
    assert doors.first == ("10.0.0.1", 1)
    assert doors.resolved() == [("10.0.0.1", 1), ("::1", 2)]
    file.write_text("10.0.0.3:3\n")
    assert doors.resolved() == [("10.0.0.3", 3)]
    file.unlink()  # it is being replaced
    assert doors.resolved() == [("10.0.0.3", 3)]


def test_a_name_stands_for_all_its_addresses(monkeypatch) -> None:
    def resolve(host, port, type):  # noqa: A002
        if host != "members.example":
            raise socket.gaierror("no such name")
        v4 = [(socket.AF_INET, type, 6, "", (f"10.0.0.{number}", port)) for number in (1, 2, 1)]
        return [*v4, (socket.AF_INET6, type, 6, "", ("fd00::1", port, 0, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    doors = Doors("members.example:7,unknown.example:8")
    hosts = ["10.0.0.1", "10.0.0.2", "fd00::1"]
    assert doors.resolved() == [*((host, 7) for host in hosts), ("unknown.example", 8)]


@pytest.mark.parametrize("text,words", [("", "DELTAWIRE_ADDRESS"), ("@/no/such", "/no/such")])
def test_no_address(text: str, words: str, monkeypatch) -> None:
    monkeypatch.delenv("DELTAWIRE_ADDRESS", raising=False)
    with pytest.raises(deltawire.InvalidArgumentError, match=words):
        Doors(text or None)


def test_a_session_with_a_fixed_number_of_ranks_meets_at_one_address() -> None:
    with pytest.raises(deltawire.InvalidArgumentError, match="give rank 0's alone"):
        deltawire.Session("fp32", rank=0, world_size=2, address="a:1,b:2", token=SETTINGS["token"])


def take_steps(place: dict, address: str, said: list) -> None:
    """Until one counts that three members took."""
    with deltawire.Session("fp32", **place, address=address, **SETTINGS) as session:
        while True:
            session.all_reduce({"values": np.ones(10, np.float32)})
            if session.world_size == 3:
                break
            time.sleep(0.01)  # the third one needs a core, too
        said.append([each["address"] for each in session.members()])


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_over_ipv6_a_joiner_finds_a_member_that_its_file_names_later(tmp_path: Path) -> None:
    file = tmp_path / "members"
    said: list[list[str]] = []
    with kept_port() as port, socket.create_server(("::1", 0), family=socket.AF_INET6) as gone:
        file.write_text(f"[::1]:{gone.getsockname()[1]}\n")
        places = [{}, {"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 2}]
        addresses = [f"@{file}", f"[::1]:{port}", f"[::1]:{port}"]
        threads = [
            threading.Thread(target=take_steps, args=(place, address, said))
            for place, address in zip(places, addresses, strict=True)
        ]
        threads[0].start()
        gone.accept()[0].close()  # it has called where no member is any more
        gone.close()
        file.write_text(f"[::1]:{port}\n")
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(said) == 3 and said[0] == said[1] == said[2]
    assert all(each.startswith("[::1]:") for each in said[0])
