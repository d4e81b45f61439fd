"""A reader of the saved states of a parameter server, its workers and powersgd, written from
section 7 of docs/reference/format.md alone."""

import struct
from dataclasses import dataclass

import numpy as np
from spec_hashes import crc32c, require, xxh64

VERSION = 1
HEAD = 32  # of a server's and of a worker's state


class Reader:
    """Takes numbers and values one after the other from a state's body."""

    def __init__(self, body: bytes) -> None:
        self.rest = body

    def take(self, count: int) -> bytes:
        """The next bytes."""
        require(count <= len(self.rest), "Truncated", "the state ends within a part")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def numbers(self, form: str) -> tuple:
        """The next numbers, as struct names them."""
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def floats(self, count: int) -> np.ndarray:
        """The next fp32 values."""
        return np.frombuffer(self.take(4 * count), "<f4")

    def end(self) -> None:
        """Nothing may be left."""
        require(not self.rest, "Corrupt", "bytes beyond the last part")


@dataclass(frozen=True)
class Entry:
    """What a channel keeps of a part: residual and momentum in the unit of their scales."""

    name: str
    first: int
    scale: float
    residual: np.ndarray
    momentum: np.ndarray


@dataclass(frozen=True)
class Moments:
    """What an optimizer keeps of a part."""

    steps: int
    lists: list[np.ndarray]


@dataclass(frozen=True)
class ServedPart:
    """A part at its server."""

    number: int
    view: np.ndarray
    master: np.ndarray


@dataclass(frozen=True)
class Served:
    step: int
    hash: int
    learning_rate: float
    parts: list[ServedPart]
    pull: list[Entry]
    moments: dict[str, Moments]


@dataclass(frozen=True)
class Worked:
    """A worker's state: of each part the late gradient, or nothing, and the push channel's."""

    step: int
    hash: int
    parts: list[tuple[np.ndarray, list[Entry]]]


@dataclass(frozen=True)
class Matrix:
    """What powersgd keeps of one; q as columns x rank."""

    scale: float
    residual: np.ndarray
    q: np.ndarray


def opened(state: bytes, magic: bytes, head: int) -> bytes:
    """The body behind magic and version, without the checksum."""
    require(len(state) >= head + 4, "Truncated", "too few bytes")
    require(state[:8] == magic, "Corrupt", "wrong magic")
    (version,) = struct.unpack_from("<I", state, 8)
    require(version == VERSION, "UnsupportedVersion", f"version {version}")
    (crc,) = struct.unpack_from("<I", state, len(state) - 4)
    require(crc == crc32c(state[:-4]), "Corrupt", "wrong checksum")
    return state[12:-4]


def channel_entries(state: bytes) -> list[Entry]:
    reader = Reader(opened(state, b"DWSTATE\n", 24))
    entries = []
    for _ in range(reader.numbers("IQ")[0]):
        length, first, count, scale, momentum_scale = reader.numbers("IQQff")
        name = reader.take(length).decode()
        residual = reader.floats(count)
        momentum = reader.floats(count if momentum_scale else 0)
        entries.append(Entry(name, first, scale, residual, momentum))
    reader.end()
    return entries


def optimizer_moments(state: bytes) -> dict[str, Moments]:
    """An optimizer's state."""
    reader = Reader(opened(state, b"DWOPTIM\n", 20))
    kind, entries = reader.numbers("II")
    lists = (kind in (2, 3, 6, 7)) + (kind in (4, 5, 6, 7))
    moments = {}
    for _ in range(entries):
        length, steps, count = reader.numbers("IQQ")
        name = reader.take(length).decode()
        moments[name] = Moments(steps, [reader.floats(count) for _ in range(lists)])
    reader.end()
    return moments


def server_state(state: bytes) -> Served:
    reader = Reader(opened(state, b"DWSERVER", HEAD))
    count, step, state_hash, rate, pull_bytes, optimizer_bytes = reader.numbers("IQQdQQ")
    parts = []
    for _ in range(count):
        number, elements = reader.numbers("QQ")
        parts.append(ServedPart(number, reader.floats(elements), reader.floats(elements)))
    pull, optimizer = reader.take(pull_bytes), reader.take(optimizer_bytes)
    reader.end()
    moments = optimizer_moments(optimizer)
    return Served(step, state_hash, rate, parts, channel_entries(pull), moments)


def worker_state(state: bytes) -> Worked:
    reader = Reader(opened(state, b"DWWORKER", HEAD))
    count, step, state_hash = reader.numbers("IQQ")
    parts = []
    for _ in range(count):
        channel_bytes, late = reader.numbers("QQ")
        held = reader.floats(late)
        parts.append((held, channel_entries(reader.take(channel_bytes))))
    reader.end()
    return Worked(step, state_hash, parts)


def served_hash(push: str, pull: str, layout_hash: int) -> int:
    """What a server's or worker's state belongs to."""
    return xxh64(f"push={push};pull={pull};parts={layout_hash}".encode())


def layout_hash(parts: list[tuple[str, int, int, tuple[int, ...]]]) -> int:
    """Section 5's, of float32 parts: name, first, count, and the tensor's shape.

    A part that is not the whole tensor has one dim, its count, behind the number of dims of the
    whole.
    """
    text = b""
    for name, first, count, shape in parts:
        elements = int(np.prod(shape, dtype=np.int64))
        dims = shape if count == elements else (count,)
        text += struct.pack("<I", len(name.encode())) + name.encode()
        text += struct.pack("<QQBQB", first, count, 1, elements, len(shape or (1,)))
        text += struct.pack(f"<{len(dims or (1,))}Q", *(dims or (elements,)))
    return xxh64(text) & 0xFFFFFFFF


def powersgd_state(state: bytes) -> tuple[int, dict[str, Matrix], int, int, list[list[Entry]]]:
    """The factors' rank, the matrices, and of what direct saves: world, rank, both channels."""
    require(len(state) >= 24, "Truncated", "too few bytes")
    (own,) = struct.unpack_from("<Q", state, 16)
    reader = Reader(opened(state[:own], b"DWPOWER\n", 28))
    rank_of_factors, _, count = reader.numbers("IQI")
    matrices = {}
    for _ in range(count):
        length, rows, columns, scale = reader.numbers("IQQf")
        name = reader.take(length).decode()
        residual = reader.floats(rows * columns).reshape(rows, columns)
        q = reader.floats(rank_of_factors * columns).reshape(rank_of_factors, columns).T
        matrices[name] = Matrix(scale, residual, q)
    reader.end()
    rest = state[own:]
    world, first_bytes, rank = struct.unpack_from("<IQI", opened(rest[:32], b"DWPOWSGD", 28))
    push, pull = rest[32 : 32 + first_bytes], rest[32 + first_bytes :]
    return rank_of_factors, matrices, world, rank, [channel_entries(push), channel_entries(pull)]
