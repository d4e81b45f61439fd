"""New files, which are never written through a link that somebody has put in their place.

In a folder that others may write to, a name that a program is known to use may be a link to a file
of this user: who opens it for writing overwrites that one.
"""

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

# Of file systems that flush no folders, as some over a network.
_CANNOT = (errno.EINVAL, errno.ENOTSUP)


def create(path: Path) -> BinaryIO:
    """Opens a new file for writing. Raises FileExistsError if the name is taken, also by a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def replace(path: Path, parts: Iterable, *, sync: bool = False) -> None:
    """Puts a file in its place, whole or not at all; a link there is replaced, not followed. With
    `sync` its bytes are on the disk before it has its name. Raises OSError."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # of a process that was killed, or a link
    try:
        with create(partial) as opened:
            opened.writelines(parts)
            opened.flush()
            if sync:
                os.fsync(opened.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def sync_folder(folder: str | os.PathLike) -> None:
    """Makes new names in a folder survive a crash, where that can be had: not where the file system
    flushes no folders, or the folder may be written and not be read."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        os.close(opened)
