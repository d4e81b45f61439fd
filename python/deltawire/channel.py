"""Updates as bytes, with error feedback from step to step; the program transports them."""

import dataclasses
import threading
from collections.abc import Mapping
from typing import Any, overload

import numpy as np

from deltawire import _core, arguments, arrays
from deltawire.errors import invalid, wrong_dtype, wrong_state


@dataclasses.dataclass(frozen=True)
class Sender:
    """Who encoded a message, according to the message.

    Attributes:
        step: the sender's, from 0.
        rank, world_size: those of its `Channel`.
        scale: the factor by which its values are scaled.
    """

    step: int
    rank: int
    world_size: int
    scale: float


class Channel:
    """One direction of updates, with a residual for each array that keeps what steps don't send::

        channel = deltawire.Channel("3lc:s=1.75")
        message = channel.encode({"conv": gradient})          # bytes
        channel.decode(message, {"conv": total})              # total += gradient, roughly

    Sender and receiver need channels of the same spec and `min_elements`, and the same names,
    shapes, dtypes and order of arrays; other messages are refused ("Mismatch"). Decoding needs no
    state, so one channel can receive messages from any number of senders.

    Attributes:
        spec: canonical, e.g. "3lc:s=1.75,mode=auto,runs=on".
        rank, world_size: the sender that messages name.

    Thread rule: any thread may call any member; calls run one at a time. The GIL is released.
    """

    def __init__(
        self,
        spec: str,
        *,
        rank: int = 0,
        world_size: int = 1,
        min_elements: int = 256,
        revert: arguments.Revert = "exact",
        error_feedback: bool = True,
        seed: int = 0,
    ) -> None:
        """
        Args:
            spec: a codec and its parameters, or rules, "conv*: 3lc, rest fp32". No pattern: there
                is one sender.
            rank, world_size: of this sender, for messages and codecs that draw random numbers.
            min_elements: arrays below this many elements are sent uncompressed.
            revert: what `revert` does to all arrays of a step: "exact" (it never happened: give its
                input again; costs a second buffer of the residuals' size) or "fold" (its input is
                kept and sent later: never give it again; messages are kept until their step ends).
            error_feedback: False: no residuals, so nothing to fold; each message is independent. A
                receiver needs none, whatever the sender keeps.
            seed: for codecs that draw random numbers.

        Raises:
            InvalidArgumentError (a ValueError): a bad spec, or another invalid argument.
        """
        self.rank, self.world_size = arguments.check_rank(rank, world_size)
        arguments.check_count("min_elements", min_elements)
        arguments.check_count("seed", seed)
        self._core = _core.Channel(
            arguments.check_spec(spec), min_elements, str(revert), bool(error_feedback), seed
        )
        self.spec = self._core.spec
        self._step = 0
        self._open = False
        self._lock = threading.Lock()

    @property
    def step(self) -> int:
        """The number of the open step, or of the one that `encode` begins next."""
        return self._step

    @overload
    def encode(
        self,
        arrays_by_name: Mapping[str, Any],
        *,
        scale: float = 1.0,
        commit: bool = True,
        step: int | None = None,
        out: None = None,
    ) -> bytes: ...

    @overload
    def encode(
        self,
        arrays_by_name: Mapping[str, Any],
        *,
        scale: float = 1.0,
        commit: bool = True,
        step: int | None = None,
        out: Any,
    ) -> memoryview: ...

    def encode(
        self,
        arrays_by_name: Mapping[str, Any],
        *,
        scale: float = 1.0,
        commit: bool = True,
        step: int | None = None,
        out: Any = None,
    ) -> bytes | memoryview:
        """Encodes all the arrays as one message. Each array's residual is added, and keeps what the
        codec left out.

        Args:
            arrays_by_name: float32, float16 or ml_dtypes.bfloat16 NumPy arrays of any order, or
                anything that supports DLPack on the CPU, PyTorch tensors of bfloat16 included; only
                read. They may differ from step to step.
            scale: the factor by which the values are scaled (a loss scale); residuals are rescaled.
            commit: True: the message counts as delivered, and the step ends. False: it stays open,
                for further messages of the step, until `commit` or `revert`.
            step: the step's number, on which rules and random numbers depend; for programs that
                don't keep the channel from step to step. Default: the last one's plus 1. "State"
                while another step is open.
            out: writable, contiguous memory of at least `message_bound(...)` bytes (a bytearray, a
                uint8 array), apart from the arrays, for the message, for programs that keep it: of
                new memory each page is made first, which may take as long as encoding.

        Returns:
            The message; with `out` a view of its first bytes.

        Raises:
            DTypeError (a TypeError), InvalidArgumentError (a ValueError): an array or scale that
                is not supported.
            DeltawireError: "NotFinite", "Range" (names the array and the element). The step is then
                reverted as by `revert`. "OutputTooSmall": nothing has begun.
        """
        arrays.check_names(arrays_by_name)
        arguments.check_scale(scale)
        room = None if out is None else memoryview(out).cast("B")
        if room is not None and room.readonly:
            raise invalid("'out' can't be written: give a bytearray or array")
        read = {name: arrays.to_read(name, array) for name, array in arrays_by_name.items()}
        with self._lock:
            if step is not None:
                self._go_to(step)
            given = (_places(read), self._step, self.rank, self.world_size, scale)
            try:
                if room is None:
                    message = self._core.encode(*given)
                else:
                    message = room[: self._core.encode_to(*given, np.frombuffer(room, np.uint8))]
            except BaseException as error:
                if getattr(error, "code", None) not in ("OutputTooSmall", "InvalidArgument"):
                    self._end(self._core.revert)
                raise
            self._open = True
            if commit:
                self._end(self._core.commit)
            return message

    def message_bound(self, arrays_by_name: Mapping[str, Any], *, step: int | None = None) -> int:
        """The most bytes that the message of such arrays takes in the open or next step, or in
        `step`; their values are not read. Raises as `encode`."""
        arrays.check_names(arrays_by_name)
        if step is not None:
            arguments.check_count("step", step)
        read = {name: arrays.to_read(name, array) for name, array in arrays_by_name.items()}
        with self._lock:
            return self._core.message_bound(_places(read), self._step if step is None else step)

    def commit(self) -> None:
        """Ends the open step: its messages have arrived. Does nothing if none is open."""
        with self._lock:
            if self._open:
                self._end(self._core.commit)

    def revert(self) -> None:
        """Ends the open step: its messages have not arrived (`revert=` says what happens to its
        input). Does nothing if none is open."""
        with self._lock:
            if self._open:
                self._end(self._core.revert)

    def _go_to(self, step: int) -> None:
        step = arguments.check_count("step", step)
        if self._open and step != self._step:
            raise wrong_state(f"step {self._step} is open; commit or revert it before step {step}")
        self._step = step

    def _end(self, how) -> None:
        how()
        self._open = False
        self._step += 1

    def decode(
        self,
        message: bytes,
        into: Mapping[str, Any],
        *,
        accumulate: bool = True,
        scale: float = 1.0,
        step: int | None = None,
        rank: int | None = None,
    ) -> Sender:
        """Adds a message's values, times `scale`, to arrays, or writes them to the arrays.

        Args:
            message: what `encode` made, any bytes-like object; hostile bytes are safe.
            into: float32, float16 or bfloat16, C-contiguous, writable arrays (or what `encode`
                takes) with the names, shapes, dtypes and order that were encoded, no two
                of which share memory. On error their content is unspecified.
            accumulate: False: the arrays are replaced. True needs float32 arrays, as sums in 16
                bits would be rounded: decode into other arrays, and add these up in float32.
            scale: 1 / world_size makes a mean of all ranks' messages.
            step, rank: that the message must have; None: any.

        Returns:
            The message's sender.

        Raises:
            DTypeError (a TypeError): an array of another dtype, or of 16 bits with `accumulate`.
            InvalidArgumentError (a ValueError): any other invalid array, scale, step or rank.
            DeltawireError: "Truncated", "Corrupt", "UnsupportedVersion", "Mismatch" (of another
                spec, other arrays, another step or rank), "Range" (a value times `scale` is beyond
                the array's 16 bits).
        """
        arrays.check_names(into)
        arguments.check_finite("scale", scale)
        if step is not None:
            step = arguments.check_count("step", step)
        if rank is not None:
            rank, _ = arguments.check_rank(rank)
        written = {
            name: arrays.to_write(name, array, arrays.DTYPES) for name, array in into.items()
        }
        for name, array in written.items():
            if accumulate and array.dtype != np.float32:
                raise wrong_dtype(
                    f"'{name}' is {arrays.dtype_of(array)}, to which nothing can be added: decode "
                    "with accumulate=False, and add up in float32"
                )
        places = _places(written)
        flat = np.frombuffer(message, dtype=np.uint8)
        with self._lock:
            if not any(array.size for array in written.values()) and not flat.size:
                return Sender(step or 0, rank or 0, self.world_size, 1.0)
            found = Sender(*_core.message_sender(flat))
            due = (
                found.step if step is None else step,
                found.rank if rank is None else rank,
                found.world_size,
            )
            self._core.decode(flat, places, due, bool(accumulate), scale, found.scale)
            return found

    def residual(self, name: str) -> np.ndarray:
        """A copy of an array's residual, flat float32; empty if there is none."""
        with self._lock:
            return np.frombuffer(bytearray(self._core.residual(name)), dtype=np.float32)

    def save(self) -> bytes:
        """All residuals (format.md, "Channel state"); "State" while a step is open."""
        with self._lock:
            return self._core.save()

    def load(self, state: bytes) -> None:
        """Replaces all residuals by saved ones of a channel of the same spec and `min_elements`, or
        raises "Truncated", "Corrupt", "Mismatch", "State" and changes nothing."""
        flat = np.frombuffer(state, dtype=np.uint8)
        with self._lock:
            self._core.load(flat)


def _places(held: dict[str, np.ndarray]) -> list[tuple[str, int, int, list[int], str]]:
    return [
        (name, array.ctypes.data, array.nbytes, list(array.shape), arrays.dtype_of(array))
        for name, array in held.items()
    ]
