"""Sites that are far apart: a network namespace for each of two, and between them a line with a
rate, a delay and a loss.

Packets cross in a process of this program that keeps each of them for the delay (through TUN
devices, so that TCP sees a real line); `tbf` limits the rate. It works where the kernel has no
`netem`. Needs root, iproute2 and /dev/net/tun; Linux only."""

import collections
import contextlib
import errno
import fcntl
import multiprocessing
import os
import random
import select
import struct
import time
from collections.abc import Sequence

from lab.ranks.links import BURST_BYTES
from lab.ranks.namespaces import (
    NamespaceError,
    OwnNamespaces,
    enter_namespace,
    run_command,
)

_NETWORK = "10.72.0"
_QUEUE = "100ms"  # how long tbf lets packets wait before it drops them
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # of linux/if_tun.h
_PACKET_BYTES = 65_536
_AT_ONCE = 64  # packets that are read from one device before the other's turn


class FarSites(OwnNamespaces):
    """Two sites; the first half of the ranks is in the first one, the rest in the second. After
    SIGKILL the process that carries packets ends by itself.

    Args:
        ranks: how many.
        bytes_per_second: of the line, in each direction.
        delay_seconds: in each direction.
        loss: the part of the packets that is lost, in each direction.

    Attributes:
        interface: the name of every site's interface inside its namespace.
    """

    interface = "line0"

    def __init__(
        self, ranks: int, bytes_per_second: float, delay_seconds: float, loss: float = 0.0
    ) -> None:
        self._ranks = ranks
        self._bits_per_second = round(8 * bytes_per_second)
        self._delay, self._loss = delay_seconds, loss
        self._names = [f"deltawire-{os.getpid()}-site-{site}" for site in "ab"]
        self._carrier: multiprocessing.process.BaseProcess | None = None
        super().__init__(self._names)

    def site_of(self, rank: int) -> int:
        """0 or 1."""
        return 2 * rank // self._ranks

    def address(self, rank: int) -> str:
        """The address at which the others reach the rank: its site's."""
        return f"{_NETWORK}.{self.site_of(rank) + 1}"

    def name(self, rank: int) -> str:
        """The name of the rank's namespace, for `ip netns`."""
        return self._names[self.site_of(rank)]

    def remove(self) -> None:
        """Ends the process, and deletes the namespaces."""
        if self._carrier is not None:
            self._carrier.kill()
            self._carrier.join()
        super().remove()

    def _start_carrier(self) -> None:
        context = multiprocessing.get_context("spawn")
        ready, theirs = context.Pipe(duplex=False)
        self._carrier = context.Process(
            target=_carry,
            args=(self._names, self.interface, theirs, self._delay, self._loss),
            daemon=True,
        )
        self._carrier.start()
        theirs.close()
        failure = ready.recv() if ready.poll(60) else "its process didn't start"
        if failure:
            raise NamespaceError(f"no line between the sites: {failure}")

    def _build(self) -> None:
        for name in self._names:
            run_command("ip", "netns", "add", name)
            run_command("ip", "-n", name, "link", "set", "lo", "up")
        self._start_carrier()
        for site, name in enumerate(self._names):
            self._join(site, name)

    def _join(self, site: int, name: str) -> None:
        own, other = f"{_NETWORK}.{site + 1}", f"{_NETWORK}.{2 - site}"
        run_command(
            *("ip", "-n", name, "address", "add", own, "peer", other, "dev", self.interface)
        )
        run_command("ip", "-n", name, "link", "set", self.interface, "up")
        run_command(
            *("tc", "-n", name, "qdisc", "replace", "dev", self.interface, "root", "tbf"),
            *("rate", f"{self._bits_per_second}bit", "burst", str(BURST_BYTES), "latency", _QUEUE),
        )


def _carry(names: Sequence[str], interface: str, say, delay: float, loss: float) -> None:
    """Carries packets from each site to the other until it is killed, or its program has ended."""
    try:
        devices = [_open_device(name, interface) for name in names]
    except (OSError, NamespaceError) as cause:
        say.send(str(cause))
        return
    say.send("")
    with contextlib.suppress(OSError):
        os.nice(-10)  # a packet is due at its time, however busy the ranks are
    draw = random.Random(1)
    waiting: list[collections.deque] = [collections.deque() for _ in devices]  # (due, packet)
    poller = select.poll()
    for device in devices:
        poller.register(device, select.POLLIN)
    program = multiprocessing.parent_process().sentinel
    poller.register(program, select.POLLIN)
    ready: set[int] = set()
    while program not in ready:
        now = time.monotonic()
        dues = [queue[0][0] for queue in waiting if queue]
        ready = {at for at, _ in poller.poll(1e3 * max(0.0, min(dues) - now) if dues else None)}
        for device, queue in zip(devices, waiting, strict=True):
            for packet in _packets(device):
                if draw.random() >= loss:
                    queue.append((time.monotonic() + delay, packet))
        now = time.monotonic()
        for device, queue in zip(reversed(devices), waiting, strict=True):
            while queue and queue[0][0] <= now:
                with contextlib.suppress(OSError):  # of a site that is being removed
                    os.write(device, queue.popleft()[1])


def _packets(device: int) -> list[bytes]:
    """Those that wait to be sent, a few at once."""
    found: list[bytes] = []
    while len(found) < _AT_ONCE:
        try:
            found.append(os.read(device, _PACKET_BYTES))
        except OSError as cause:
            if cause.errno not in (errno.EAGAIN, errno.EIO):
                raise
            break
    return found


def _open_device(namespace: str, interface: str) -> int:
    """A new TUN device in the namespace; this process is its other end."""
    enter_namespace(namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", interface.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(device, _TUNSETIFF, request)
    return device
