"""Locks that make one process a store's only writer, and the name that they keep of it.

In a folder it is the system's lock on a file, which is released when the process ends, however it
ends. On an object store it is an object that names its owner. That is made by a request that fails
if the object exists, where the filesystem has one (fsspec's mode "create"); elsewhere two writers
that start within the same moment are told apart by what they read back. A writer looks at it again
before each manifest, so one that was taken for dead and replaced finds out; only the time of one
request is left in which it may not.
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import weakref
from pathlib import Path
from typing import NamedTuple

from deltawire import foreign_json
from deltawire.errors import make_error, printable, wrong_state

_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


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


def _own_name() -> WriterName:
    """A name for this process, with a new token."""
    return WriterName(socket.gethostname(), os.getpid(), secrets.token_hex(8), _pids())


def _pids() -> str:
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{started} {os.stat('/proc/self/ns/pid').st_ino}"
    except (OSError, ValueError):
        return ""


def _parse(data: bytes) -> WriterName | None:
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


class FolderLock:
    """Of a folder's writer: held from construction until `release`."""

    _file = -1

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise make_error(
                "Io", f"{path} is a symbolic link, which a writer does not follow: remove it"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _parse(os.pread(self._file, 4096, 0))
            self.close_file()
            if not isinstance(error, BlockingIOError):
                raise make_error(
                    "Io",
                    f"{path} can't be locked: {error.strerror}; a store that is written needs a "
                    "filesystem with locks",
                ) from error
            raise wrong_state(
                f"{path.parent} already has a writer, {owner or 'of unknown name'}: a store has "
                "one at a time; close that one first"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, _own_name().to_bytes(), 0)
        _held.add(self)

    def check(self) -> None:
        """Nobody takes this lock from its owner."""

    def release(self) -> None:
        """Lets the next writer in."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self.close_file()

    def close_file(self) -> None:
        """In a forked child: it must not keep the lock when the writer dies."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close_file()


def _close_in_child() -> None:
    for lock in list(_held):
        lock.close_file()


os.register_at_fork(after_in_child=_close_in_child)


class ObjectLock:
    """Of an object store's writer: held from construction until `release`."""

    def __init__(self, system, path: str, place: str, take_over: bool) -> None:
        self._system = system
        self._path = path
        self._place = place
        self._own = _own_name()
        owner = self._owner()
        if owner is not None and not take_over and not self._own.knows_to_be_dead(owner):
            raise wrong_state(
                f"{place} already has a writer, {owner}: a store has one at a time; close that "
                "one, or open the store with take_over=True if it is dead"
            )
        data = self._own.to_bytes()
        if owner is None:
            try:
                system.pipe_file(path, data, mode="create")
            except (FileExistsError, NotImplementedError, TypeError, ValueError) as error:
                if not isinstance(error, FileExistsError):
                    system.pipe_file(path, data)
        else:
            system.pipe_file(path, data)
        self.check()

    def _owner(self) -> WriterName | None:
        try:
            data = self._system.cat_file(self._path)
        except FileNotFoundError:
            return None
        return _parse(data) or WriterName("an unknown machine", 0, "")

    def check(self) -> None:
        """Raises DeltawireError, code "State", if the store has another writer by now."""
        owner = self._owner()
        if owner is None or owner.token != self._own.token:
            raise wrong_state(
                f"{self._place} was taken over by {owner or 'somebody who has left'}: this writer "
                "publishes no more; a store has one writer at a time"
            )

    def release(self) -> None:
        """Lets the next writer in."""
        owner = self._owner()
        if owner is not None and owner.token == self._own.token:
            self._system.rm_file(self._path)
