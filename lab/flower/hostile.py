"""What a hostile client of Flower's does to its reply, outside of deltawire's mod."""

import json
from collections.abc import Callable, Mapping

import deltawire
import numpy as np
from deltawire.flower import records
from flwr.app import ArrayRecord, ConfigRecord, Message

Shapes = Mapping[str, tuple[int, ...]]


def header(reply: Message, **fields) -> None:
    """Changes what the reply says of itself."""
    said = records.fields_of(reply.content) | fields
    reply.content[records.HEADER] = ConfigRecord({"header": json.dumps(said)})


def frame(reply: Message, data: bytes) -> None:
    """Other bytes in the place of the frame."""
    (name,) = reply.content.array_records
    reply.content[name] = ArrayRecord({records.FRAME: records.bytes_array(data)})


def values(reply: Message, shapes: Shapes, value: float, codec: str = "fp32") -> None:
    """A whole frame of `value`s by a codec; the header goes on to name the client's own."""
    arrays = {name: np.full(shape, value, np.float32) for name, shape in shapes.items()}
    channel = deltawire.Channel(codec, rank=0, world_size=65_535)
    frame(reply, channel.encode(arrays, step=records.fields_of(reply.content)["round"]))


def named(reply: Message, shapes: Shapes, value: float = 0.0) -> None:
    """A frame of `value`s by fp32, and the header says so: nothing is amiss but the values."""
    values(reply, shapes, value)
    header(reply, spec="fp32")


def grown(reply: Message, shapes: Shapes) -> None:
    """A frame of tensors that have a dimension more."""
    named(reply, {name: (*shape, 2) for name, shape in shapes.items()})


KINDS: dict[str, Callable[[Message, Shapes], None]] = {
    "NaN": lambda reply, shapes: named(reply, shapes, np.nan),
    "wrong shape": grown,
    "huge norm": lambda reply, shapes: named(reply, shapes, 1e30),
    "an old round": lambda reply, shapes: header(reply, round=-1),
    "garbage bytes": lambda reply, shapes: frame(reply, b"garbage" * 99),
    "another codec's frame": lambda reply, shapes: values(reply, shapes, 0.0, "int8"),
}


def mod_of(kinds: Mapping[int, str], shapes: Shapes):
    """A mod, to stand before deltawire's: the client of partition p replies to training as
    `kinds[p]` says; others are honest."""

    def hostile(message, context, call_next):
        reply = call_next(message, context)
        kind = kinds.get(context.node_config["partition-id"])
        if kind is not None and reply.has_content() and reply.content.array_records:
            KINDS[kind](reply, shapes)
        return reply

    return hostile
