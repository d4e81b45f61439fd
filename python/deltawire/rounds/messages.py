"""The messages of a round between server and client, and the layout of a model in them."""

import dataclasses
import functools
import hashlib
import json
import math
import zlib
from collections.abc import Mapping

import numpy as np

from deltawire import arrays, foreign_json
from deltawire.errors import corrupt, mismatch, wrong_dtype

KINDS = ("same", "delta", "patch", "full")
PATCHES = 1  # the newest format of patches that this side reads

_MOST_ELEMENTS = (1 << 32) - 1  # of a tensor in a frame
_MOST_DIMS = 32  # of an array of NumPy 1

# Spelled as in NumPy; float64 is rounded to float32 when it is sent.
FLOATS = ("float32", "float16", "float64")


@dataclasses.dataclass(frozen=True)
class TensorLayout:
    """A tensor of the model: its name and shape. Values are sent as float32."""

    name: str
    shape: tuple[int, ...]


Layout = tuple[TensorLayout, ...]


@dataclasses.dataclass(frozen=True)
class ModelLayout:
    """Describes a model's tensors, which frames don't. It is sent to a client once, and later only
    its `id`.

    Attributes:
        tensors: the model's, in order.
        also: text of the program that transports the messages, sent with the layout (Flower's mod
            keeps dtypes and the order of uncompressed arrays in it).
    """

    tensors: Layout = ()
    also: str = ""

    @functools.cached_property
    def text(self) -> str:
        """JSON without spaces, as it is sent, and kept in a client's state."""
        pairs = [[tensor.name, list(tensor.shape)] for tensor in self.tensors]
        return json.dumps([pairs, self.also], separators=(",", ":"))

    @functools.cached_property
    def id(self) -> str:
        """A digest of `text`: 16 hexadecimal digits."""
        return hashlib.blake2b(self.text.encode(), digest_size=8).hexdigest()

    @classmethod
    def from_text(cls, text: str) -> "ModelLayout":
        """Parses `text`. Raises DeltawireError, code "Corrupt", for any other."""
        try:
            pairs, also = foreign_json.parse(text)
            tensors = tuple(TensorLayout(name, tuple(shape)) for name, shape in pairs)
        except foreign_json.UNFIT as cause:
            raise corrupt(f"a text that is no model's layout ({cause})") from cause
        names = [tensor.name for tensor in tensors]
        if not (
            all(isinstance(text, str) for text in [also, *names])
            and len(set(names)) == len(names)
            and all(_can_be(tensor.shape) for tensor in tensors)
        ):
            raise corrupt("the layout has names or shapes that no model has")
        return cls(tensors, also)


def _can_be(shape: tuple) -> bool:
    dims = len(shape) <= _MOST_DIMS and all(type(dim) is int and dim >= 0 for dim in shape)
    return dims and math.prod(shape) <= _MOST_ELEMENTS


@dataclasses.dataclass(frozen=True)
class Download:
    """The server's message to a client, for training or evaluation.

    Attributes:
        kind: "same" (the client has it: no frames), "delta" (a frame for each version that it has
            missed), "patch" (a lossless patch for all that it has missed, in place of a frame) or
            "full" (one frame).
        frames: messages of `deltawire.Channel`, oldest first; or the patch, of all the model's
            values in order (src/patch/spec.md).
        spec: canonical, of the deltas' codec, or of the whole model's.
        base: the version that the frames are added to; 0 for "full".
        version: the one that the client has afterwards, from 1.
        digest: `digest_of` the model at that version.
        layout_id: of the model's layout.
        layout: the layout itself, unless the server knows that the client has it; else None.
        round: the number of the current round, from 0.
        accepted, refused: the last rounds in which the server accepted, or refused, this client's
            reply; -1: none.
        weights: "float32", or "bfloat16": the client rounds its model to that after each delta, and
            a patch is of that type.
    """

    kind: str
    frames: tuple[bytes, ...]
    spec: str
    base: int
    version: int
    digest: int
    layout_id: str
    layout: ModelLayout | None = None
    round: int = 0
    accepted: int = -1
    refused: int = -1
    weights: str = "float32"

    @property
    def byte_count(self) -> int:
        """The bytes of all frames, and of the layout if it is sent."""
        layout = 0 if self.layout is None else len(self.layout.text.encode())
        return sum(len(frame) for frame in self.frames) + layout


@dataclasses.dataclass(frozen=True)
class Reply:
    """A client's update of a round.

    Attributes:
        frame: a message of `deltawire.Channel`: the change plus the residual.
        spec: canonical, of its codec.
        round, version: of the download that it answers.
        samples: that it was trained with.
        patches: the newest format of patches that the client reads; 0: it is sent none.
    """

    frame: bytes
    spec: str
    round: int
    version: int
    samples: int
    patches: int = 0


def is_float(array: np.ndarray) -> bool:
    """Whether a model's array is compressed; other arrays are sent unchanged."""
    return array.dtype.name in FLOATS


def as_float32(model: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A copy, C-contiguous. Raises InvalidArgumentError unless it is a dict of arrays by name,
    DTypeError unless these are of floating-point numbers."""
    arrays.check_names(model)
    copies = {}
    for name, array in model.items():
        found = np.asarray(array) if isinstance(array, np.generic) else arrays.as_numpy(name, array)
        if not is_float(found):
            raise wrong_dtype(
                f"'{name}' is {found.dtype!r}; rounds average {', '.join(FLOATS)} arrays: keep "
                "others as well"
            )
        copies[name] = np.array(found, dtype=np.float32, order="C")
    return copies


def layout_of(model: Mapping[str, np.ndarray]) -> Layout:
    """Names and shapes, in order."""
    return tuple(TensorLayout(name, tuple(array.shape)) for name, array in model.items())


def check_layout(found: Layout, due: Layout, whose: str) -> None:
    """Raises "Mismatch" with the first difference."""
    names, due_names = {t.name for t in found}, {t.name for t in due}
    if names != due_names:
        missing, strange = sorted(due_names - names), sorted(names - due_names)
        raise mismatch(
            f"{whose} has other tensors than the model: missing {missing[:3]}, strange "
            f"{strange[:3]}; return the tensors that came"
        )
    for tensor, other in zip(found, due, strict=True):
        if tensor != other:
            raise mismatch(
                f"{whose} has {tensor.name}{list(tensor.shape)} where the model has "
                f"{other.name}{list(other.shape)}; return the tensors as they came"
            )


def zeros(layout: Layout) -> dict[str, np.ndarray]:
    """A model of zeros."""
    return {tensor.name: np.zeros(tensor.shape, np.float32) for tensor in layout}


def digest_of(model: Mapping[str, np.ndarray]) -> int:
    """CRC-32 of all values, in order: a client checks by it that it has the server's model."""
    digest = 0
    for array in model.values():
        digest = zlib.crc32(array.reshape(-1).view(np.uint8), digest)
    return digest
