"""Where ranks meet and joiners call: lists, files, the environment, names, IPv6."""

import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import deltawire
import numpy as np
import pytest
from deltawire.session.network import Doors
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


RANK = """
import sys, deltawire, numpy as np
print("begins", flush=True)
with deltawire.Session(
    "fp32", rank=int(sys.argv[1]), world_size=2, address=sys.argv[2], token="t" * 40 + sys.argv[3],
    connect_timeout=60,
) as session:
    values = np.full(1000, float(sys.argv[1]), np.float32)
    session.all_reduce({"x": values})
    print(values[0])
"""


def rank_of(*command: str) -> subprocess.Popen:
    """A rank that is about to connect."""
    pipe = subprocess.PIPE
    rank = subprocess.Popen([*command], stdout=pipe, stderr=subprocess.STDOUT, text=True)
    assert rank.stdout.readline() == "begins\n"
    return rank


def both_say(ranks: list[subprocess.Popen]) -> list[str]:
    try:
        return [rank.communicate(timeout=90)[0].strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def has_own_mounts() -> bool:
    command = ["unshare", "-m", "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    return (
        shutil.which("unshare") is not None
        and not subprocess.run(command, capture_output=True, check=False).returncode
    )


@pytest.mark.skipif(not has_own_mounts(), reason="needs a process with mounts of its own")
def test_a_name_whose_address_comes_later_and_changes(tmp_path: Path) -> None:
    """Rank 1 begins before there is one; then it is that of another machine."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    with kept_port() as port:
        shell = f'mount --bind {hosts} /etc/hosts && exec "$@"'
        unshared = ("unshare", "-m", "sh", "-c", shell, "sh")
        command = (sys.executable, "-c", RANK)
        ranks = [rank_of(*unshared, *command, "1", f"rank0.deltawire.invalid:{port}", "")]
        time.sleep(2)
        with hosts.open("a") as file:
            file.write("127.0.0.9 rank0.deltawire.invalid\n")
        time.sleep(2)
        assert ranks[0].poll() is None, ranks[0].communicate()[0]
        hosts.write_text("127.0.0.1 localhost rank0.deltawire.invalid\n")
        ranks.append(rank_of(*command, "0", f"127.0.0.1:{port}", ""))
        assert both_say(ranks) == ["0.5", "0.5"]


def test_a_line_break_behind_the_token() -> None:
    with kept_port() as port:
        ranks = [
            rank_of(sys.executable, "-c", RANK, str(rank), f"127.0.0.1:{port}", end)
            for rank, end in enumerate(("", "\n"))
        ]
        assert both_say(ranks) == ["0.5", "0.5"]
