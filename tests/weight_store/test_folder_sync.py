"""Folders that can't be flushed to the disk, as on some network file systems."""

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from deltawire import DeltawireError, weight_store


def refuse_folders(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """os.fsync fails for folders."""
    real = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, os.strerror(number))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_what_cannot_be_had_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The version is there."""
    refuse_folders(monkeypatch, number)
    store = weight_store.Store(tmp_path / "store")
    store.publish({"w": np.ones(300, np.float32)}, 1)
    assert store.latest() == 1
    assert np.array_equal(store.load(framework="numpy")["w"], np.ones(300, np.float32))


def test_a_disk_that_fails_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is promised then."""
    refuse_folders(monkeypatch, errno.EIO)
    store = weight_store.Store(tmp_path / "store")
    with pytest.raises(DeltawireError, match=r"[Ii]nput/output error"):
        store.publish({"w": np.ones(300, np.float32)}, 1)
