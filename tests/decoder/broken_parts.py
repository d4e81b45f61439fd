"""Parts that no encoder writes: what one writes, with bytes, lengths, scalars or counts changed."""

import random
from collections.abc import Iterator

import deltawire
import numpy as np
from file_writing import coded, file_header, frame
from spec_codec import Coded
from spec_codecs import codec_of_spec
from spec_decoder import parse_file_header, parse_frame

SCALARS = [0, 1, 0x80000000, 0x7F800000, 0x7F7FFFFF, 0x7FC00000, 0xBF800000, 0x3F000000]


def encoded(spec: str, count: int, share: float = 1) -> tuple[bytes, Coded]:
    """The canonical spec, and the part of values of which so many are not 0."""
    made = np.random.default_rng(count)
    values = made.standard_normal(count, np.float32) * (made.random(count) < share)
    written = deltawire.encode(values.astype(np.float32), spec, min_elements=0)
    header = parse_file_header(written)
    parsed = parse_frame(written[header.header_bytes :])
    (segment,) = parsed.segments
    chunks = [parsed.payload[each.begin : each.end] for each in segment.chunks]
    return header.spec, Coded(chunks, count, segment.scalars, codec_of_spec(header.spec)[1])


def file_of(spec: bytes, part: Coded) -> bytes:
    """A file of one part, with right checksums."""
    scalars = list(part.scalars)
    while scalars and scalars[-1] == 0:
        scalars.pop()
    codec, _ = codec_of_spec(spec)
    segment = coded(0, part.count, part.chunks, tuple(scalars), codec=codec.codec_id)
    return file_header(spec, (part.count,)) + frame(spec, part.count, [segment])


def spoil(chunk: bytearray, scalars: list[int], draws: random.Random) -> int:
    """Changes a chunk or a scalar; returns how many elements more the part then says it has."""
    at = draws.randrange(min(len(chunk), draws.choice((8, 20, 1 << 20))))
    match draws.randrange(10):
        case 0 | 1 | 2 | 3:
            chunk[at] = draws.choice((0, 1, 128, 255, draws.randrange(256)))
        case 4 | 5:
            chunk[draws.randrange(len(chunk))] ^= 1 << draws.randrange(8)
        case 6:
            del chunk[draws.randrange(1, len(chunk) + 1) :]
        case 7:
            chunk += bytes([draws.choice((0, 1))]) * draws.randrange(1, 9)
        case 8:
            scalars[draws.randrange(len(scalars))] = draws.choice(SCALARS)
        case _:
            return draws.choice((-1, 1, -8, 8, 1000))
    return 0


def broken_parts(spec: str, number: int) -> Iterator[tuple[bytes, Coded]]:
    """So many of each of some sizes, with the canonical spec; the same ones every time."""
    draws = random.Random(spec)
    for count in (1, 7, 70, 400):
        for share in (1, 0.1):
            canonical, part = encoded(spec, count, share)
            for _ in range(number):
                chunks, scalars, elements = [*map(bytearray, part.chunks)], [*part.scalars], count
                for _ in range(draws.choice((1, 1, 1, 2, 3))):
                    elements = max(1, elements + spoil(draws.choice(chunks), scalars, draws))
                whole = [*map(bytes, chunks)]
                yield canonical, Coded(whole, elements, tuple(scalars), part.parameters)
