"""The state of a process that joins: chunks, which it takes from all members that have them.

A chunk is named by the digest of its bytes. So a process that begins again, because the member died
that had told it what the state is made of, takes only what it lacks.
"""

import collections
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from deltawire import _core, foreign_json
from deltawire.elastic.calls import SILENCE, Caller, hear_within, receive_bytes, say, send_bytes
from deltawire.errors import DeltawireError, make_error

CHUNK_BYTES = 4 << 20
_CHUNKS_MAX = 1 << 13  # of a state; longer ones have longer chunks
_BYTES_MAX = 1 << 40
_GIVERS_MAX = 8  # whom one process takes chunks from at once
_CODEC = "gcomp:lossless=on"  # keeps every bit of any float32, and so of any four bytes
_LOOK = 0.05  # seconds between two looks at what was taken
_ASK_AGAIN = 0.2  # seconds, where a member hasn't got a chunk, or not yet


class Offer:
    """A state that a member can give, while it waits at a meeting.

    Args:
        arrays: by name. They are only read, and must not change meanwhile.

    Raises:
        InvalidArgumentError, DTypeError: not arrays by name, or dtypes that bytes don't tell.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        if not isinstance(arrays, Mapping):
            raise _no_state(f"a {type(arrays).__name__}")
        held = [(name, _as_array(name, array)) for name, array in arrays.items()]
        self._pieces = [array.reshape(-1).view(np.uint8) for _, array in held]
        self._count = sum(piece.size for piece in self._pieces)
        self._chunk_bytes = max(CHUNK_BYTES, 4 * -(-self._count // (4 * _CHUNKS_MAX)))
        self._rows = [[name, array.dtype.str, list(array.shape)] for name, array in held]
        starts = range(0, self._count, self._chunk_bytes)
        self._digests = [hashlib.sha256(self._bytes_at(at)).hexdigest() for at in starts]
        self._starts = dict(zip(self._digests, starts, strict=True))

    def plan(self) -> bytes:
        """What the state is made of, for `Plan`."""
        return json.dumps(
            {"rows": self._rows, "chunk_bytes": self._chunk_bytes, "digests": self._digests}
        ).encode()

    def chunk(self, digest: object) -> bytes | None:
        """The chunk of that digest, compressed; None if it is none of this state's."""
        at = self._starts.get(digest) if isinstance(digest, str) else None
        if at is None:
            return None
        data = self._bytes_at(at)
        words = np.frombuffer(data + bytes(-len(data) % 4), np.float32)
        return _core.encode_file(words, _CODEC, 0, None)

    def _bytes_at(self, start: int) -> bytes:
        end, first, parts = min(start + self._chunk_bytes, self._count), 0, []
        for piece in self._pieces:
            begin, stop = max(start - first, 0), min(end - first, piece.size)
            if begin < stop:
                parts.append(piece[begin:stop].tobytes())
            first += piece.size
        return b"".join(parts)


def _as_array(name: object, array: object) -> np.ndarray:
    if not isinstance(name, str):
        raise _no_state(f"the name {name!r}")
    try:
        found = np.asarray(array, order="C")
    except (ValueError, TypeError, RuntimeError) as cause:
        raise _no_state(f"'{name}', of which NumPy makes no array ({cause})") from cause
    if found.dtype.hasobject or np.dtype(found.dtype.str) != found.dtype:
        raise make_error(
            "UnsupportedDType",
            f"state= gave '{name}' as {found.dtype}, which others can't read from its bytes; give "
            "a view of numbers, e.g. .view(np.uint16) of bfloat16",
        )
    return found


def _no_state(what: str) -> DeltawireError:
    return make_error(
        "InvalidArgument", f"state= gave {what}, where a dict of arrays by name is due"
    )


class Plan:
    """What a state is made of, as another member says.

    Attributes:
        digests: of the chunks, in order.
    """

    def __init__(self, told: bytes) -> None:
        """Raises DeltawireError (Corrupt)."""
        try:
            found = foreign_json.parse(told)
            self._rows = [
                (str(name), np.dtype(kind), [int(dim) for dim in shape])
                for name, kind, shape in found["rows"]
            ]
            self._chunk_bytes = int(found["chunk_bytes"])
            self.digests = [str(each) for each in found["digests"]]
            sizes = [kind.itemsize * _elements(shape) for _, kind, shape in self._rows]
            odd = any(kind.hasobject or not kind.itemsize for _, kind, _ in self._rows)
        except foreign_json.UNFIT as error:
            raise make_error("Corrupt", f"another member told no state: {error!r}") from None
        self._count = sum(sizes)
        chunks = -(-self._count // max(1, self._chunk_bytes))
        if odd or self._chunk_bytes < 4 or self._count > _BYTES_MAX:
            raise make_error("Corrupt", "another member told a state that can't be")
        if len(self.digests) != chunks:
            raise make_error("Corrupt", "another member told a state with other chunks")

    def size_of(self, digest: str) -> int:
        """Bytes of that chunk."""
        if digest != self.digests[-1]:
            return self._chunk_bytes
        return self._count - (len(self.digests) - 1) * self._chunk_bytes

    def arrays(self, held: Mapping[str, bytes]) -> dict[str, np.ndarray]:
        """The state, once all chunks are held, by digest."""
        data, at, arrays = b"".join(held[each] for each in self.digests), 0, {}
        for name, kind, shape in self._rows:
            count = _elements(shape)
            arrays[name] = np.frombuffer(data, kind, count, at).reshape(shape).copy()
            at += count * kind.itemsize
        return arrays


def _elements(shape: list[int]) -> int:
    count = 1
    for dim in shape:
        if dim < 0:
            raise ValueError(f"a dimension of {dim}")
        count *= dim
    return count


def give(line: _core.Line, first: dict, offer: Callable[[], Offer | None], seconds: float) -> None:
    """Answers on a line what another process takes, until it hangs up.

    Args:
        first: what it has said.
        offer: gives what can be given now, or None.
        seconds: for each chunk, and until the next is asked for.
    """
    message = first
    while message["say"] == "take":
        now = offer()
        data = None if now is None else now.chunk(message.get("digest"))
        say(line, {"say": "lacks" if data is None else "gives"})
        if data is not None:
            send_bytes(line, data, seconds)
        message = hear_within(line, seconds)


class Taking:
    """The chunks that a process which joins has, however often it has to begin again.

    Attributes:
        taken: how many it was given.
    """

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}
        self.taken = 0
        self._lock = threading.Lock()
        self._missing: collections.deque[str] = collections.deque()  # and not asked for
        self._lacking: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._plan: Plan | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """The state, when all has been taken; without arrays if no member has one."""
        return {} if self._plan is None else self._plan.arrays(self._held)

    def take(
        self, plan: Plan, caller: Caller, doors: list[tuple[str, int]], seconds: float
    ) -> Iterator[int]:
        """Takes what is missing from the members at these doors at once; yields some times a second
        how many chunks it has, and ends when it has all, or when nobody gives any more.

        Args:
            seconds: for each chunk.
        """
        needed = [each for each in dict.fromkeys(plan.digests) if each not in self._held]
        with self._lock:
            self._plan, self._missing, self._lacking = plan, collections.deque(needed), set(needed)
            self._asked_at.clear()
        stops = threading.Event()
        threads = [
            threading.Thread(
                target=self._take_from, args=(door, plan, caller, seconds, stops), daemon=True
            )
            for door in doors[:_GIVERS_MAX]
        ]
        for each in threads:
            each.start()
        try:
            while not self.has_all() and any(each.is_alive() for each in threads):
                yield self.taken
                stops.wait(_LOOK)
        finally:
            stops.set()  # who waits for a member that is frozen sees it later

    def has_all(self) -> bool:
        """Whether all of the last plan has been taken."""
        return not self._lacking

    # The next one that nobody was asked for, or whose giver is silent.
    def _next(self, refused: set[str]) -> str | None:
        with self._lock:
            now = time.monotonic()
            late = [each for each, at in self._asked_at.items() if now > at + SILENCE]
            for digest in [*self._missing, *late]:
                if digest not in refused and digest in self._lacking:
                    if digest in self._missing:
                        self._missing.remove(digest)
                    self._asked_at[digest] = now
                    return digest
        return None

    def _take_from(
        self,
        door: tuple[str, int],
        plan: Plan,
        caller: Caller,
        seconds: float,
        stops: threading.Event,
    ) -> None:
        refused: set[str] = set()
        digest, line = None, None
        try:
            while not stops.is_set() and not self.has_all():
                digest = self._next(refused)
                if digest is None:
                    refused.clear()
                    stops.wait(_ASK_AGAIN)
                    continue
                line = line or caller.call(door)
                say(line, {"say": "take", "digest": digest})
                if hear_within(line, seconds)["say"] == "gives":
                    data = receive_bytes(line, seconds)
                    self._keep(digest, _unpacked(data, plan.size_of(digest), digest))
                else:
                    refused.add(digest)
                    self._put_back(digest)
                digest = None
        except DeltawireError:
            pass  # others give what it did not
        finally:
            if digest is not None:
                self._put_back(digest)

    def _keep(self, digest: str, data: bytes) -> None:
        with self._lock:
            self._held[digest] = data
            self._lacking.discard(digest)
            self._asked_at.pop(digest, None)
            self.taken += 1

    def _put_back(self, digest: str) -> None:
        with self._lock:
            self._asked_at.pop(digest, None)
            if digest in self._lacking and digest not in self._missing:
                self._missing.append(digest)


def _unpacked(data: bytes, count: int, digest: str) -> bytes:
    flat = np.frombuffer(data, np.uint8)
    shape = tuple(_core.read_file_header(flat).shape)
    if shape != (-(-count // 4),):
        raise make_error("Corrupt", f"a chunk of {count} bytes came as {shape} words")
    words = np.empty(shape, np.float32)
    _core.decode_file(flat, words)
    found = words.tobytes()[:count]
    if hashlib.sha256(found).hexdigest() != digest:
        raise make_error("Corrupt", "a chunk of the state does not have the digest that it had")
    return found
