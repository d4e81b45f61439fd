"""What a method of compression is to the corpus's ranking, and deltawire's codecs as methods.

docs/reference/corpus.md shows how to add one.
"""

import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

import deltawire
import numpy as np
from deltawire import _core


@dataclasses.dataclass(frozen=True)
class Layout:
    """What sender and receiver both know of a tensor.

    Attributes:
        name: unique among the tensors of a message, and the same in every step.
        shape: row-major.
        dtype: "float32" or "bfloat16".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def count(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor to send.

    Attributes:
        layout: what the receiver knows, too.
        values: float32, of the layout's shape, C-contiguous; those of bfloat16 are widened.
        significance: of `values`' shape: how much of each the optimizer sees (glossary); None where
            it isn't known.
    """

    layout: Layout
    values: np.ndarray
    significance: np.ndarray | None = None


class Method(Protocol):
    """A way to send tensors. One object sends one stream of steps, so it may keep what it likes
    from step to step, such as a residual; the receiver uses the same object, but only what a
    message and the layouts say, and what it had from earlier messages.

    Thread rule: one thread.
    """

    def encode(self, tensors: Sequence[Tensor]) -> bytes:
        """A step's message; the values are only read."""

    def decode(self, message: bytes, layouts: Sequence[Layout]) -> list[np.ndarray]:
        """The values that arrive: float32, of the layouts' shapes, in their order."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of the ranking.

    Attributes:
        name: of the row.
        whose: OURS, or what the method is from, with its version.
        make: a new method, for a new stream.
        lossless: every bit comes back, which is checked.
        significance: it needs it, so that only gradients recorded with it say something.
    """

    name: str
    whose: str
    make: Callable[[], Method]
    lossless: bool = False
    significance: bool = False


def raw_bytes(tensor: Tensor) -> bytes:
    """The values in their own dtype: 4 or 2 bytes each, little-endian."""
    if tensor.layout.dtype == "bfloat16":
        return as_halves(tensor.values).tobytes()
    return tensor.values.astype("<f4", copy=False).tobytes()


def as_halves(values: np.ndarray) -> np.ndarray:
    """Widened bfloat16 as uint16 again."""
    return (values.view(np.uint32) >> 16).astype("<u2")


def from_raw(data: bytes, layout: Layout) -> np.ndarray:
    """The reverse of `raw_bytes`."""
    if layout.dtype == "bfloat16":
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(layout.shape)
    return np.frombuffer(data, "<f4").reshape(layout.shape)


class Messages:
    """deltawire's codec in a Channel: frames with checksums, residuals, small tensors raw."""

    def __init__(self, spec: str) -> None:
        self._channel = deltawire.Channel(spec)

    def encode(self, tensors: Sequence[Tensor]) -> bytes:
        """The Channel's message."""
        if tensors[0].layout.dtype == "float32":
            return self._channel.encode({each.layout.name: each.values for each in tensors})
        halves = [(each.layout, as_halves(each.values)) for each in tensors]
        core = self._channel._core  # takes memory of bfloat16, which NumPy alone can't describe
        message = core.encode(_places(halves), 0, 0, 1, 1.0)
        core.commit()
        return message

    def decode(self, message: bytes, layouts: Sequence[Layout]) -> list[np.ndarray]:
        """Into new arrays, which the Channel replaces."""
        if layouts[0].dtype == "float32":
            found = {each.name: np.empty(each.shape, np.float32) for each in layouts}
            self._channel.decode(message, found, accumulate=False)
            return list(found.values())
        halves = [(each, np.empty(each.shape, "<u2")) for each in layouts]
        data = np.frombuffer(message, np.uint8)
        self._channel._core.decode(data, _places(halves), (0, 0, 1), False, 1.0, 1.0)
        return [from_raw(array.tobytes(), layout) for layout, array in halves]


def _places(halves: list[tuple[Layout, np.ndarray]]) -> list[tuple[str, int, list[int], str]]:
    return [
        (layout.name, array.ctypes.data, array.nbytes, list(array.shape), layout.dtype)
        for layout, array in halves
    ]


class Files:
    """deltawire's codec in .dw files, which alone take significance in Python. The file's own
    header, which repeats what the layouts say, is not sent."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._heads: list[bytes] = []

    def encode(self, tensors: Sequence[Tensor]) -> bytes:
        """The files one after the other, each behind its length."""
        parts, self._heads = [], []
        for tensor in tensors:
            file = deltawire.encode(tensor.values, self._spec, significance=tensor.significance)
            (head,) = struct.unpack_from("<I", file, 12)  # format.md, section 6
            self._heads.append(file[:head])
            parts += [struct.pack("<I", len(file) - head), file[head:]]
        return b"".join(parts)

    def decode(self, message: bytes, layouts: Sequence[Layout]) -> list[np.ndarray]:
        """Each file, with its header again."""
        found, at = [], 0
        for head, layout in zip(self._heads, layouts, strict=True):
            (size,) = struct.unpack_from("<I", message, at)
            at += 4
            found.append(deltawire.decode(head + message[at : at + size]).reshape(layout.shape))
            at += size
        return found


OURS = "deltawire"
# The codecs as they are chosen without thinking, and the settings that pages of this site advise.
SPECS = (
    *("fp32", "bf16", "fp16", "fp8", "blockint", "blockint:bits=4", "fp4", "int8"),
    *("gcomp", "gcomp:lossless=on", "gcomp:cut=0", "gcomp:cut=18", "zstd", "zlib", "truncate"),
    *("3lc", "3lc:s=1.75", "sbc", "sbc:p=0.1%", "topk", "topk:k=1%,values=2bit,positions=auto"),
    *("dropping", "threshold", "randomk", "fastsgd", "fastsgd:keep=0.1,residual=on", "logquant"),
    *("signsgd", "onebit", "terngrad", "qsgd", "natural", "sketchml", "twobit"),
)


def entry_of(spec: str) -> Entry:
    """A codec of deltawire."""
    significance = deltawire.uses_significance(spec)
    kind = Files if significance else Messages
    return Entry(
        spec, OURS, lambda: kind(spec), lossless=_core.is_lossless(spec), significance=significance
    )
