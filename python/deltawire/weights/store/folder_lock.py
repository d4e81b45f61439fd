"""The lock of a folder's writer: the system's lock on a file that names the owner.

The system releases it when the process ends, however it ends.
"""

import contextlib
import errno
import fcntl
import os
import weakref
from pathlib import Path

from deltawire.errors import make_error
from deltawire.weights.store import writer_name

_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


class FolderLock:
    """Held from construction until `release`."""

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
            owner = writer_name.parse(os.pread(self._file, 4096, 0))
            self.close_file()
            if not isinstance(error, BlockingIOError):
                raise make_error(
                    "Io",
                    f"{path} can't be locked: {error.strerror}; a store that is written needs a "
                    "filesystem with locks",
                ) from error
            raise make_error(
                "State",
                f"{path.parent} already has a writer, {owner or 'of unknown name'}: a store has "
                "one at a time; close that one first",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, writer_name.own_name().to_bytes(), 0)
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
