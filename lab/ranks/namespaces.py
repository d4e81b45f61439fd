"""Real links: a network namespace for each rank, a veth pair to a bridge, and `tbf` in both
directions.

The bridge is in a separate namespace, so that the host's network is not affected. Needs root and
iproute2 (`ip`, `tc`); Linux only."""

import ctypes
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from lab.ranks.links import BURST_BYTES

_QUEUE = (
    "100ms"  # how long tbf lets packets wait before it drops them; about a slow switch's buffer
)
_NETWORK = "10.71.0"
_ASIDE = "aside"  # a bridge for ranks that are cut off
_CLONE_NEWNET = 0x40000000  # of sched.h


class NamespaceError(Exception):
    """Namespaces that can't be made here: one line that says why and what to do."""


class Namespaces:
    """A star of `ranks` namespaces, which this program makes and deletes. Use as a context manager:
    they are removed in any case. SIGTERM and SIGHUP, which would end the program at once, raise an
    exception meanwhile, as Ctrl-C does, where they have no handler. (After SIGKILL, `ip netns list`
    shows the namespaces that are left.)

    Attributes:
        interface: the name of every rank's interface inside its namespace.
    """

    interface = "link0"

    def __init__(self, ranks: int, bytes_per_second: float | None) -> None:
        self._bits_per_second = None if bytes_per_second is None else round(8 * bytes_per_second)
        self._hub = f"deltawire-{os.getpid()}-hub"
        self._names = [f"deltawire-{os.getpid()}-{rank}" for rank in range(ranks)]
        self._caught: list[int] = []

    def __enter__(self) -> "Namespaces":
        check_rights()
        try:
            self._catch_signals()
            self._build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *unused) -> None:
        self.remove()

    def remove(self) -> None:
        """Deletes the namespaces, which no exception interrupts; their interfaces go with them."""
        for number in self._caught:
            signal.signal(number, signal.SIG_IGN)
        for name in [*self._names, self._hub]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        for number in self._caught:
            signal.signal(number, signal.SIG_DFL)
        self._caught.clear()

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the process that made them may remove them
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.default_int_handler)
                self._caught.append(number)

    def address(self, rank: int) -> str:
        """The address at which the others reach the rank."""
        return f"{_NETWORK}.{rank + 1}"

    def command_prefix(self, rank: int) -> list[str]:
        """The words to put before a command to run it in the rank's namespace."""
        return ["ip", "netns", "exec", self._names[rank]]

    def name(self, rank: int) -> str:
        """The name of the rank's namespace, for `ip netns`."""
        return self._names[rank]

    def split(self, ranks: Sequence[int]) -> None:
        """From now on these ranks reach each other, and no other ones; packets to those are lost,
        and connections stay."""
        known = subprocess.run(
            ["ip", "-n", self._hub, "link", "show", _ASIDE], capture_output=True, check=False
        )
        if known.returncode != 0:
            run_command("ip", "-n", self._hub, "link", "add", _ASIDE, "type", "bridge")
            run_command("ip", "-n", self._hub, "link", "set", _ASIDE, "up")
        for rank in ranks:
            run_command("ip", "-n", self._hub, "link", "set", f"port{rank}", "master", _ASIDE)

    def heal(self) -> None:
        """All reach all again."""
        for rank in range(len(self._names)):
            run_command("ip", "-n", self._hub, "link", "set", f"port{rank}", "master", "hub")

    def change_rate(self, bytes_per_second: float) -> None:
        """Changes the rate of all links, while they are in use."""
        self._bits_per_second = round(8 * bytes_per_second)
        for rank, name in enumerate(self._names):
            self._slow_down(name, self.interface)
            self._slow_down(self._hub, f"port{rank}")

    def _build(self) -> None:
        run_command("ip", "netns", "add", self._hub)
        run_command("ip", "-n", self._hub, "link", "add", "hub", "type", "bridge")
        run_command("ip", "-n", self._hub, "link", "set", "hub", "up")
        for rank, name in enumerate(self._names):
            port = f"port{rank}"
            run_command("ip", "netns", "add", name)
            run_command("ip", "-n", name, "link", "set", "lo", "up")
            run_command(
                *("ip", "-n", name, "link", "add", self.interface, "type", "veth"),
                *("peer", "name", port, "netns", self._hub),
            )
            run_command("ip", "-n", self._hub, "link", "set", port, "master", "hub", "up")
            address = f"{self.address(rank)}/24"
            run_command("ip", "-n", name, "address", "add", address, "dev", self.interface)
            run_command("ip", "-n", name, "link", "set", self.interface, "up")
            self._slow_down(name, self.interface)  # what the rank sends
            self._slow_down(self._hub, port)  # what the rank receives

    def _slow_down(self, namespace: str, device: str) -> None:
        if self._bits_per_second is None:
            return
        run_command(
            *("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf"),
            *("rate", f"{self._bits_per_second}bit", "burst", str(BURST_BYTES), "latency", _QUEUE),
        )


def enter_namespace(name: str) -> None:
    """Moves the calling thread, and those that it starts from now on, into a namespace."""
    with open(f"/var/run/netns/{name}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise NamespaceError(f"setns failed: {os.strerror(ctypes.get_errno())}")


def interface_bytes(interface: str) -> tuple[int, int]:
    """(sent, received) by an interface in the calling thread's namespace, headers included."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            numbers = counts.split()
            return int(numbers[8]), int(numbers[0])
    raise NamespaceError(f"this network namespace has no interface {interface}")


def check_rights() -> None:
    """Raises NamespaceError where namespaces can't be made, with the reason."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise NamespaceError(
                f"network namespaces need the program '{tool}'; install it: "
                "apt-get install iproute2"
            )
    if os.geteuid() != 0:
        raise NamespaceError("making network namespaces needs root; run this with sudo")


def can_be_made() -> bool:
    """Whether this user may make namespaces and slow their links down here."""
    try:
        with Namespaces(1, 12.5e6):
            return True
    except NamespaceError:
        return False


def run_command(*command: str) -> None:
    """Runs a program of iproute2. Raises NamespaceError with what it says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"status {done.returncode}"
        raise NamespaceError(
            f"'{' '.join(command)}' failed ({reason}); this machine or container may not allow "
            "network namespaces"
        )
