"""What the library makes of a tensor: the part in its message, and what it keeps."""

from dataclasses import dataclass

import deltawire
import numpy as np
import torch
from spec_decoder import parse_frame
from spec_hashes import crc32c


@dataclass(frozen=True)
class Part:
    """A part as frames carry it."""

    payload: bytes
    ends: list[int]
    scalars: tuple[int, int]

    @property
    def sums(self) -> list[int]:
        """CRC-32C of each chunk, from seed 0."""
        begins = [0, *self.ends[:-1]]
        return [crc32c(self.payload[b:e], 0) for b, e in zip(begins, self.ends, strict=True)]


def parts_of(message: bytes) -> list[Part]:
    """The parts of a message's segments."""
    parts = []
    while message:
        frame = parse_frame(message)
        for segment in frame.segments:
            if not segment.chunks:
                continue
            begin = segment.chunks[0].begin
            ends = [chunk.end - begin for chunk in segment.chunks]
            payload = frame.payload[begin : begin + ends[-1]]
            parts.append(Part(payload, ends, tuple(segment.scalars)))
        message = message[frame.frame_bytes :]
    return parts


class Library:
    """A channel with one tensor, and its receiver."""

    def __init__(self, spec: str):
        self._sender = deltawire.Channel(spec, min_elements=0)
        self._receiver = deltawire.Channel(spec, min_elements=0)

    def encode(self, values: np.ndarray) -> tuple[bytes, Part]:
        """A message and the part in it; of several frames, one part."""
        message = bytes(self._sender.encode({"t": values}))
        payload, ends, scalars = b"", [], (0, 0)
        for part in parts_of(message):
            ends += [len(payload) + end for end in part.ends]
            payload += part.payload
            scalars = part.scalars
        return message, Part(payload, ends, scalars)

    def residual(self) -> np.ndarray:
        return np.asarray(self._sender.residual("t"))

    def decode(self, message: bytes, slot: np.ndarray, scale: float, add: bool) -> None:
        self._receiver.decode(message, {"t": slot}, scale=scale, accumulate=add)


def has_feedback(spec: str) -> bool:
    name = spec.partition(":")[0]
    found = next(codec for codec in deltawire.codecs() if codec.name == name)
    return found.error_feedback and "feedback=off" not in spec


def bits(values) -> np.ndarray:
    """The bits of float32 values."""
    array = values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    return array.view(np.uint32)
