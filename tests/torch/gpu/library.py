"""What the library makes of a tensor: the part in its message, and what it keeps."""

from dataclasses import dataclass

import deltawire
import numpy as np
import torch
from spec_decoder import parse_frame
from spec_hashes import crc32c

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


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


def unmixed(z: int) -> int:
    """What SplitMix64 scrambles into these 64 bits."""
    z ^= z >> 31 ^ z >> 62
    z = z * pow(0x94D049BB133111EB, -1, 1 << 64) & MASK
    z ^= z >> 27 ^ z >> 54
    z = z * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & MASK
    return z ^ z >> 30 ^ z >> 60


def stream_of(part: Part) -> int:
    """A stream of which randomk makes the part's seed."""
    key = unmixed(part.scalars[0]) - GOLDEN & MASK
    return unmixed(key) - GOLDEN & MASK


def has_feedback(spec: str) -> bool:
    name = spec.partition(":")[0]
    found = next(codec for codec in deltawire.codecs() if codec.name == name)
    without = "feedback=off" in spec or "unbiased=on" in spec
    return found.error_feedback and not without


def bits(values) -> np.ndarray:
    """The bits of float32 values."""
    array = values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    return array.view(np.uint32)
