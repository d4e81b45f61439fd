"""Ways to send a new version of weights to those who have the old one.

A version is an array of patterns, uint16 or uint8. A way that needs a program or a package which
isn't there says so before it is used.
"""

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from deltawire import patches

_TYPES = {2: "bfloat16", 1: "float8_e4m3fn"}  # by the bytes of an element
_LONG_WINDOW = "--long=27"  # 128 MB: the whole old version


class WayFailed(Exception):
    """A way that did not give the new version, or whose program failed: one line."""


class Way:
    """A way to send a version.

    Attributes:
        name: for the table.
        missing: what this machine lacks for it, or "".
    """

    def __init__(self, name: str, send: Callable, receive: Callable, *needed: str) -> None:
        self.name = name
        self._send, self._receive = send, receive
        self.missing = " and ".join(each for each in needed if not _is_there(each))

    def bytes(self, old: np.ndarray, new: np.ndarray) -> int:
        """What it sends. Raises WayFailed unless the receiver gets `new` of it."""
        sent = self._send(old, new)
        if self._receive(sent, old).tobytes() != new.tobytes():
            raise WayFailed(f"{self.name}: the new version does not come back")
        return len(sent)


def _is_there(needed: str) -> bool:
    """A program, or after "import " a package."""
    package = needed.removeprefix("import ")
    if package != needed:
        return importlib.util.find_spec(package) is not None
    return shutil.which(needed) is not None


def _tensor(version: np.ndarray):
    import torch

    return torch.from_numpy(version).view(getattr(torch, _TYPES[version.itemsize]))


def _send_patch(old: np.ndarray, new: np.ndarray) -> bytes:
    return patches.make(_tensor(old), _tensor(new))


def _receive_patch(sent: bytes, old: np.ndarray) -> np.ndarray:
    new = old.copy()
    patches.apply(sent, _tensor(new))
    return new


def _send_xor(old: np.ndarray, new: np.ndarray) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress((old ^ new).tobytes())


def _receive_xor(sent: bytes, old: np.ndarray) -> np.ndarray:
    import zstandard

    return old ^ np.frombuffer(zstandard.ZstdDecompressor().decompress(sent), old.dtype)


def _send_indices(old: np.ndarray, new: np.ndarray) -> bytes:
    places = np.flatnonzero(old != new)
    return places.astype("<i4").tobytes() + new[places].tobytes()


def _receive_indices(sent: bytes, old: np.ndarray) -> np.ndarray:
    changes = len(sent) // (4 + old.itemsize)
    new = old.copy()
    new[np.frombuffer(sent, "<i4", changes)] = np.frombuffer(sent, old.dtype, offset=4 * changes)
    return new


def _send_varints(old: np.ndarray, new: np.ndarray) -> bytes:
    places = np.flatnonzero(old != new)
    return _varints(np.diff(places, prepend=-1) - 1) + new[places].tobytes()


def _receive_varints(sent: bytes, old: np.ndarray) -> np.ndarray:
    # An element of values follows for each gap, whose last byte is below 128.
    data = np.frombuffer(sent, np.uint8)
    ends = np.flatnonzero(data < 128)
    gap_bytes = np.concatenate(([0], ends + 1))
    all_bytes = gap_bytes + np.arange(len(gap_bytes)) * old.itemsize
    changes = int(np.searchsorted(all_bytes, len(sent)))
    gaps = np.zeros(changes, np.int64)
    starts, stops = gap_bytes[:changes], gap_bytes[1 : changes + 1]
    for place in range(int((stops - starts).max(initial=0))):
        inside = starts + place < stops
        gaps[inside] |= (data[(starts + place)[inside]] & 127).astype(np.int64) << 7 * place
    new = old.copy()
    values = np.frombuffer(sent, old.dtype, offset=int(gap_bytes[changes]))
    new[np.cumsum(gaps + 1) - 1] = values
    return new


def _varints(numbers: np.ndarray) -> bytes:
    """Numbers of 7 bits a byte, the lowest first; all but the last have the highest bit set."""
    places = np.arange(5)
    lengths = np.maximum(1, (numbers[:, None] >= 1 << 7 * places).sum(axis=1))
    digits = (numbers[:, None] >> 7 * places & 127).astype(np.uint8)
    digits |= np.where(places < lengths[:, None] - 1, 128, 0).astype(np.uint8)
    return digits[places < lengths[:, None]].tobytes()


def _by_program(send: list[str], receive: list[str]) -> tuple[Callable, Callable]:
    """A way through files: OLD, NEW and SENT in the commands stand for their paths."""

    def run(command: list[str], folder: Path) -> None:
        paths = {name: str(folder / name) for name in ("OLD", "NEW", "SENT")}
        for name, path in paths.items():
            command = [part.replace(name, path) for part in command]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise WayFailed(f"{command[0]}: {done.stderr.strip()}")

    def send_files(old: np.ndarray, new: np.ndarray) -> bytes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "OLD").write_bytes(old.tobytes())
            (folder / "NEW").write_bytes(new.tobytes())
            run(send, folder)
            return (folder / "SENT").read_bytes()

    def receive_files(sent: bytes, old: np.ndarray) -> np.ndarray:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "OLD").write_bytes(old.tobytes())
            (folder / "SENT").write_bytes(sent)
            run(receive, folder)
            return np.frombuffer((folder / "NEW").read_bytes(), old.dtype)

    return send_files, receive_files


_ZSTD = ["zstd", "-q", _LONG_WINDOW, "--patch-from=OLD", "-o"]

WAYS = (
    Way("patch", _send_patch, _receive_patch),
    Way("XOR, zstd -3", _send_xor, _receive_xor, "import zstandard"),
    Way("int32 + value", _send_indices, _receive_indices),
    Way("varint gap + value", _send_varints, _receive_varints),
    Way(
        "zstd -19 --patch-from",
        *_by_program([*_ZSTD, "SENT", "-19", "NEW"], [*_ZSTD, "NEW", "-d", "SENT"]),
        "zstd",
    ),
    Way(
        "bsdiff",
        *_by_program(["bsdiff", "OLD", "NEW", "SENT"], ["bspatch", "OLD", "NEW", "SENT"]),
        *("bsdiff", "bspatch"),
    ),
    Way(
        "xdelta3 -9",
        *_by_program(
            ["xdelta3", "-e", "-9", "-s", "OLD", "NEW", "SENT"],
            ["xdelta3", "-d", "-s", "OLD", "SENT", "NEW"],
        ),
        "xdelta3",
    ),
)
