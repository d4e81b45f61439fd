"""A line between two namespaces, with a delay; and what `lab.probes.far_sites` makes of rounds."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from lab.probes.far_sites import KILLED, Round, parse, row
from lab.ranks.far_sites import FarSites
from lab.ranks.namespaces import NamespaceError, enter_namespace

DELAY = 0.05
MESSAGE = bytes(range(256)) * 400


@pytest.fixture
def sites() -> Iterator[FarSites]:
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(FarSites(4, 2.5e6, DELAY))
        except NamespaceError as reason:
            pytest.skip(str(reason))
        yield made


def test_a_line_has_its_delay_and_carries_every_byte(sites: FarSites) -> None:
    found: dict[str, object] = {}

    def listen() -> None:
        enter_namespace(sites.name(3))
        with socket.create_server((sites.address(3), 5000)) as server:
            listens.set()
            server.settimeout(20)
            with server.accept()[0] as line:
                found["message"] = b"".join(iter(lambda: line.recv(1 << 16), b""))

    def call() -> None:
        enter_namespace(sites.name(1))
        assert listens.wait(20)
        began = time.monotonic()
        with socket.create_connection((sites.address(2), 5000), timeout=20) as line:
            found["seconds"] = time.monotonic() - began
            line.sendall(MESSAGE)

    listens = threading.Event()
    threads = [threading.Thread(target=each) for each in (listen, call)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(40)
    assert found["message"] == MESSAGE
    assert found["seconds"] >= 2 * DELAY, "there and back"


def test_the_table_counts_whole_rounds_alone() -> None:
    rounds = [
        Round(number, 10.0 * number, seconds, 5_000_000, members, "", 100.0 / number)
        for number, seconds, members in [(1, 90, 4), (2, 4, 4), (3, 2, 4), (4, 4, 4), (5, 70, 3)]
    ]
    rounds += [Round(number, 10.0 * number, 50, 9, 4, "", 1.0) for number in range(6, 10)]
    link = parse([]).link
    text = row("m", link, 4, (rounds, 10.0 * KILLED, 55.0))
    assert text == "| m | 4.00 | 5.00 | 50% | 10.0 | 5.0 | 100 | 1.0 |"


@pytest.mark.parametrize("given", [["--link", "none"], ["--ranks", "3"], ["--loss", "1"]])
def test_a_line_that_there_is_not(given: list[str], capsys) -> None:
    with pytest.raises(SystemExit):
        parse(given)
    assert "--link" in capsys.readouterr().err
