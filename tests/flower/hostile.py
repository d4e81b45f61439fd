"""What a hostile Flower client does to its reply, outside deltawire's mod."""

import json
from collections.abc import Callable, Mapping

import deltawire
import numpy as np
from deltawire.flower import records
from flwr.app import ArrayRecord, ConfigRecord, Message

Shapes = Mapping[str, tuple[int, ...]]


def header(reply: Message, **fields) -> None:
    """Changes fields of the reply's header."""
    said = records.fields_of(reply.content) | fields
    reply.content[records.HEADER] = ConfigRecord({"header": json.dumps(said)})


def frame(reply: Message, data: bytes) -> None:
    """Replaces the frame by other bytes."""
    (name,) = reply.content.array_records
    reply.content[name] = ArrayRecord({records.FRAME: records.bytes_array(data)})


def values(reply: Message, shapes: Shapes, value: float, codec: str = "fp32") -> None:
    """A whole frame of `value`s by a codec; the header still names the client's own codec."""
    arrays = {name: np.full(shape, value, np.float32) for name, shape in shapes.items()}
    channel = deltawire.Channel(codec, rank=0, world_size=65_535)
    frame(reply, channel.encode(arrays, step=records.fields_of(reply.content)["round"]))


def named(reply: Message, shapes: Shapes, value: float = 0.0) -> None:
    """A frame of `value`s by fp32, with a header that says so: only the values are wrong."""
    values(reply, shapes, value)
    header(reply, spec="fp32")


def grown(reply: Message, shapes: Shapes) -> None:
    """A frame of tensors with one more dimension."""
    named(reply, {name: (*shape, 2) for name, shape in shapes.items()})


KINDS: dict[str, Callable[[Message, Shapes], None]] = {
    "NaN": lambda reply, shapes: named(reply, shapes, np.nan),
    "wrong shape": grown,
    "huge norm": lambda reply, shapes: named(reply, shapes, 1e30),
    "an old round": lambda reply, shapes: header(reply, round=-1),
    "garbage bytes": lambda reply, shapes: frame(reply, b"garbage" * 99),
    "another codec's frame": lambda reply, shapes: values(reply, shapes, 0.0, "int8"),
}
