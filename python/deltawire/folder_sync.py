"""Folders whose names are to survive a crash of the machine."""

import errno
import os

# Of file systems that flush no folders, as some over a network.
_CANNOT = (errno.EINVAL, errno.ENOTSUP)


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
