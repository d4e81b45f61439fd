"""A SuperNode killed in the middle of a round, with real processes of Flower's.

    build/flower-venv/bin/python -m lab.flower.killed [--rounds 4]

A SuperLink and two SuperNodes on this machine run examples/flower. When the second node has
received its second training message, it is killed (SIGKILL, including its children), and started
again at once: Flower treats it as a new node. The program prints what each side logs about it, with
the seconds since the kill.
"""

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.command.program import main_of, make_parser
from lab.ranks.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "examples" / "flower"
GOT_TRAINING = re.compile(r"Receiving: train")
TELLING = re.compile(
    r"deltawire|warn|error|unavailable|accuracy|counts:|ROUND|Receiving|Sending|SuperNode ID|"
    r"aggregate_train",
    re.I,
)


class LabError(Exception):
    """A stage that was not reached in time; one line says which."""


class Processes:
    """Flower's processes and their logs, all in one folder."""

    def __init__(self, folder: Path):
        self.folder, self._processes, self._read = folder, {}, {}
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": "",
        }

    def start(self, name: str, *command: str) -> None:
        """Starts a process in its own process group, which appends to NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                cwd=self.folder,
            )

    def text(self, name: str) -> str:
        """A process's log so far, without colours."""
        file = self.folder / f"{name}.log"
        text = file.read_text(errors="replace") if file.exists() else ""
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def news(self) -> list[tuple[str, str]]:
        """(name, line) of each new line in the logs."""
        found = []
        for name in self._processes:
            lines = self.text(name).splitlines()
            found += [(name, line.strip()) for line in lines[self._read.get(name, 0) :]]
            self._read[name] = len(lines)
        return found

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Sends a signal to the whole group of a process."""
        process = self._processes[name]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.wait(timeout=60)

    def ended(self, name: str) -> bool:
        """Whether the process is gone."""
        return self._processes[name].poll() is not None

    def stop(self) -> None:
        """Ends all processes."""
        for name in self._processes:
            self.kill(name)


def until(happened, seconds: float, what: str) -> None:
    """Waits until `happened()` is true. Raises LabError with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            raise LabError(f"{what} within {seconds:.0f} s; the logs say why")
        time.sleep(0.2)


def listening(port: int) -> bool:
    """Whether a process listens at the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_node(processes: Processes, name: str, partition: int, link: int) -> None:
    """A SuperNode without TLS."""
    processes.start(
        name,
        "flower-supernode",
        "--insecure",
        *("--superlink", f"127.0.0.1:{link}", "--host", "127.0.0.1", "--port", str(free_port())),
        *("--node-config", f"partition-id={partition} num-partitions=2"),
    )


def run(given: argparse.Namespace) -> None:
    """The run, the kill, and what was logged."""
    processes = Processes(given.out or Path(tempfile.mkdtemp()))
    (processes.folder / "home").mkdir(parents=True, exist_ok=True)
    link = free_port()
    (processes.folder / "home" / "config.toml").write_text(
        f'[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    print(f"logs: {processes.folder}", flush=True)
    try:
        processes.start(
            "link",
            *("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(link)),
            "--disable-runtime-dependency-installation",
        )
        until(lambda: listening(link), given.limit, "the SuperLink does not listen")
        start_node(processes, "node0", 0, link)
        start_node(processes, "node1", 1, link)
        rounds = f"num-server-rounds={given.rounds} nodes=2"
        processes.start("run", "flwr", "run", str(APP), "here", "--stream", "--run-config", rounds)
        until(
            lambda: (
                len(GOT_TRAINING.findall(processes.text("node1"))) >= 2 or processes.ended("run")
            ),
            given.limit,
            "node1 got no second training message",
        )
        processes.news()
        processes.kill("node1")
        began = time.monotonic()
        print("  0.0 s  node1 is killed, and started again as node1b", flush=True)
        start_node(processes, "node1b", 1, link)
        _follow(processes, began, given.limit)
    finally:
        processes.stop()


def _follow(processes: Processes, began: float, limit: float) -> None:
    while time.monotonic() < began + limit:
        over = processes.ended("run")
        for name, line in processes.news():
            if TELLING.search(line) and "uvicorn" not in line:
                print(f"{time.monotonic() - began:5.1f} s  {name}: {line}", flush=True)
        if over:
            return
        time.sleep(0.2)
    raise LabError(f"the run has not ended within {limit:.0f} s; the logs say why")


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.flower.killed", __doc__)
    parser.add_argument(
        "--rounds", type=int, default=4, help="default 4; the kill is in the second"
    )
    parser.add_argument("--limit", type=float, default=600, help="seconds for each stage")
    parser.add_argument("--out", type=Path, default=None, help="folder of the logs")
    return parser.parse_args(argv)


main = main_of("lab.flower.killed", parse, run, LabError)


if __name__ == "__main__":
    sys.exit(main())
