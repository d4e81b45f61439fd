"""Who writes a store, for locks and for the errors of a second writer."""

import json
import os
import secrets
import socket
from pathlib import Path
from typing import NamedTuple

from deltawire import foreign_json
from deltawire.errors import printable


class WriterName(NamedTuple):
    """A writer.

    Attributes:
        host: its machine.
        pid: its process there.
        token: drawn for each lock.
        pids: what gives processes their numbers: the system since it started, and its PID
            namespace. Empty where that can't be told.
    """

    host: str
    pid: int
    token: str
    pids: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def to_bytes(self) -> bytes:
        """For a lock's file."""
        return json.dumps(self._asdict()).encode()

    def knows_to_be_dead(self, other: "WriterName") -> bool:
        """Whether the other is a process that would be here and isn't. One of another container of
        this machine, whose number may be anybody's here, is not known to be dead."""
        if not self.pids or self.pids != other.pids or other.pid <= 0:
            return False
        try:
            os.kill(other.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def own_name() -> WriterName:
    """A name for this process, with a new token."""
    return WriterName(socket.gethostname(), os.getpid(), secrets.token_hex(8), _pids())


def _pids() -> str:
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{started} {os.stat('/proc/self/ns/pid').st_ino}"
    except (OSError, ValueError):
        return ""


def parse(data: bytes) -> WriterName | None:
    """The name in a lock's file; None if there is none in it."""
    try:
        fields = foreign_json.parse(data)
        host, pid, token = fields["host"], fields["pid"], fields["token"]
        pids = fields.get("pids", "")  # 0.1 had none
    except foreign_json.UNFIT:
        return None
    if type(pid) is not int or not all(isinstance(each, str) for each in (host, token, pids)):
        return None
    return WriterName(printable(host, 200), pid, token, pids)
