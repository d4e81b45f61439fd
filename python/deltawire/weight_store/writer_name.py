"""Who writes a store, for locks and for the errors of a second writer."""

import json
import os
import secrets
import socket
from typing import NamedTuple

from deltawire import foreign_json
from deltawire.errors import printable


class WriterName(NamedTuple):
    """A writer.

    Attributes:
        host: its machine.
        pid: its process there.
        token: drawn for each lock.
    """

    host: str
    pid: int
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def to_bytes(self) -> bytes:
        """For a lock's file."""
        return json.dumps(self._asdict()).encode()


def own_name() -> WriterName:
    """A name for this process, with a new token."""
    return WriterName(socket.gethostname(), os.getpid(), secrets.token_hex(8))


def parse(data: bytes) -> WriterName | None:
    """The name in a lock's file; None if there is none in it."""
    try:
        fields = foreign_json.parse(data)
        host, pid, token = fields["host"], fields["pid"], fields["token"]
    except foreign_json.UNFIT:
        return None
    if not isinstance(host, str) or type(pid) is not int or not isinstance(token, str):
        return None
    return WriterName(printable(host, 200), pid, token)
