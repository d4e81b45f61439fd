"""Real links between network namespaces, where this machine allows them."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import forked_demo
import pytest

from lab.ranks.namespaces import NamespaceError, Namespaces, enter_namespace


def names_of_namespaces(pid: int) -> list[str]:
    """Those of a controlling process: others on this machine may have theirs."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    return [line for line in listed.stdout.split() if line.startswith(f"deltawire-{pid}-")]


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda tool: f"/sbin/{tool}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NamespaceError, match="needs root"), Namespaces(2, 12.5e6):
        pass


def test_without_iproute2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    with pytest.raises(NamespaceError, match="apt-get install iproute2"), Namespaces(2, 12.5e6):
        pass


def reaches(network: Namespaces, one: int, other: int, seconds: float = 10.0) -> bool:
    """Whether a rank can connect to another one within that time."""

    def run() -> bool:  # only this thread changes its namespace
        enter_namespace(network.name(one))
        with concurrent.futures.ThreadPoolExecutor(1) as listener:
            ours = listener.submit(listen).result()
        with contextlib.suppress(TimeoutError), ours:
            at = network.address(other), ours.getsockname()[1]
            socket.create_connection(at, timeout=seconds).close()
            return True
        return False

    def listen() -> socket.socket:
        enter_namespace(network.name(other))
        return socket.create_server(("", 0))

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def test_a_split_network_heals(namespaces):
    with Namespaces(3, None) as network:
        network.split([1, 2])
        assert reaches(network, 1, 2) and not reaches(network, 0, 2, 0.3)
        network.heal()
        network.split([2])
        assert reaches(network, 0, 1) and not reaches(network, 1, 2, 0.3)
        network.heal()
        assert reaches(network, 0, 2)


def test_a_tiny_run_over_real_links(namespaces, image_folder: Path, tmp_path: Path):
    pytest.importorskip("deltawire.torch")
    arguments = [
        *("--namespaces", "--link", "200mbit", "--methods", "plain", "fp32"),
        *("--ranks", "2", "--steps", "6", "--batch", "4"),
        *("--data", image_folder, "--out", tmp_path / "out"),
    ]
    with forked_demo.started(tmp_path, arguments) as demo:
        done = demo.ended()
    assert done.returncode == 0, done.stderr
    plain, fp32 = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert plain["detail"]["label"] == "plain DDP (real link)"
    for row in (plain, fp32):
        assert row["bit_equal"] is True
        # 2 ranks send one tensor each: 1.7 MB at 25 MB/s, less one burst; no machine is faster. A
        # row of a busy machine has no time, but that is still what its only training took.
        assert row["detail"]["repeats"][0]["ms_per_step"] > 60
    assert names_of_namespaces(demo.pid) == []


def test_namespaces_are_removed_whatever_happens(namespaces):
    with pytest.raises(ZeroDivisionError), Namespaces(3, 12.5e6):
        assert len(names_of_namespaces(os.getpid())) == 4
        raise ZeroDivisionError
    assert names_of_namespaces(os.getpid()) == []


WAITING = """
import time
from lab.ranks.namespaces import Namespaces
with Namespaces(2, None):
    print("they are there", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_namespaces_behind(namespaces, number: signal.Signals):
    root = Path(__file__).resolve().parents[2]
    program = subprocess.Popen([sys.executable, "-c", WAITING], cwd=root, stdout=subprocess.PIPE)
    try:
        assert program.stdout.readline() == b"they are there\n"
        assert len(names_of_namespaces(program.pid)) == 3
        program.send_signal(number)
        assert program.wait(60) != 0
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
    assert names_of_namespaces(program.pid) == []


def test_the_programs_own_signals_are_as_before(namespaces):
    before = signal.getsignal(signal.SIGTERM)
    with Namespaces(2, None):
        if before is signal.SIG_DFL:
            assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is before
