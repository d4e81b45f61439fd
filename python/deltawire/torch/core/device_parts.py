"""Gradients that stay on their device: what the core asks of it.

The core keeps the exchange (frames, sends, votes, failures) and asks an object of this class to
encode and decode parts, by the addresses of their values: a `part_backend.h` in Python.
"""

import bisect
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from deltawire.errors import DeltawireError, make_error
from deltawire.torch.core.mean_digest import MeanDigest
from deltawire.torch.gpu.parts import Decoding, EncodedPart, Encoding

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Magnitudes that round to infinity: half a step above the largest value.
_BEYOND = {"bfloat16": float.fromhex("0x1.ffp127"), "float16": 65520.0}
_ALIGNED = 16  # bytes
_POLL_SECONDS = 5e-5


def until(event: torch.cuda.Event | None, timeout: float, rank: int | None, what: str) -> None:
    """Waits for the event. Raises DeltawireError ("Timeout"), which says what is late on `rank`."""
    deadline = time.monotonic() + timeout
    while event is not None and not event.query():
        if time.monotonic() > deadline:
            text = f"{what} after {timeout:g} s: the GPU is busy with something else, or hangs"
            raise make_error("Timeout", text, rank)
        time.sleep(_POLL_SECONDS)


class DeviceParts:
    """Codes the parts of one hook on the device of its gradients.

    Work goes to a stream of its own, in the order of calls. Memory is known by its address:
    buckets between `adopt` and `forget`, residuals and means between `allocate` and `release`.

    Thread rule: `adopt` and `forget` belong to whoever owns the buckets, everything else to the
    core, which makes one call at a time but for `release`.

    Args:
        device: of the gradients.
        make_twin: gives the twin of a codec's canonical spec.
        timeout: seconds that the device may take for one call.
        rank: this one, whom the error of such a call names.

    Attributes:
        stream: None on the CPU.
    """

    def __init__(
        self,
        device: torch.device,
        make_twin: Callable[[str], object],
        timeout: float,
        rank: int | None = None,
    ) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._make_twin = make_twin
        self._twins: dict[str, object] = {}
        self._timeout, self._rank = timeout, rank
        self._digest = MeanDigest(device)
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._bases: list[int] = []  # sorted; guarded by the lock, like the next
        self._regions: dict[int, torch.Tensor] = {}

    def twin(self, spec: str):
        """The twin of a codec, made once."""
        if spec not in self._twins:
            self._twins[spec] = self._make_twin(spec)
        return self._twins[spec]

    def adopt(self, bucket: torch.Tensor) -> torch.cuda.Event | None:
        """Makes a bucket known. The event, if there is one, says that its gradients are complete;
        what the core asks for then comes after it."""
        self._add(bucket)
        if self.stream is None:
            return None
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        bucket.record_stream(self.stream)
        event = torch.cuda.Event()
        event.record(self.stream)
        return event

    def forget(self, bucket: torch.Tensor) -> None:
        """The core is done with a bucket."""
        self.release(bucket.data_ptr())

    def check(self) -> None:
        """Raises what kept means of a committed step from their bucket."""
        if self._failure is not None:
            raise self._failure

    def allocate(self, count: int) -> int:
        """The address of float32 zeros."""
        with self._own_stream():
            return self._add(torch.zeros(max(count, 1), device=self.device))

    def release(self, address: int) -> None:
        """Gives memory back, or forgets it."""
        with self._lock:
            if self._regions.pop(address, None) is not None:
                self._bases.remove(address)

    def fill(self, address: int, count: int, value: float) -> None:
        """Sets float32 values."""
        with self._own_stream():
            self._at(address, count).fill_(value)

    def upload(self, values: np.ndarray, address: int) -> None:
        """Copies from the host."""
        with self._own_stream():
            self._at(address, len(values)).copy_(torch.from_numpy(values))

    def download(self, address: int, values: np.ndarray) -> None:
        """Copies to the host."""
        with self._own_stream():
            torch.from_numpy(values).copy_(self._at(address, len(values)))

    def encode(self, jobs: Sequence[tuple]) -> list[tuple]:
        """Of each job (spec, address, count, dtype, residual, new residual, factor, carrier):
        (what a frame carries or None, error or None, all values are zeros, the carrier holds
        them)."""
        with self._own_stream():
            launched = [self._launch(*job) for job in jobs]
            return self._collect(launched)

    def decode(self, jobs: Sequence[tuple], add: bool, scale: float) -> list[Exception | None]:
        """Of each job (spec, payload, ends, scalar, scalar2, address, count): its error or None."""
        with self._own_stream():
            payloads = self._sent_to_device([payload for _, payload, *_ in jobs])
            under_way = [
                self._decode(payload, add, scale, job)
                for payload, job in zip(payloads, jobs, strict=True)
            ]
            decodings = [each for each in under_way if isinstance(each, Decoding)]
            if not decodings:
                return under_way
            found = iter(self._to_host(torch.cat([each.error for each in decodings])))
            return [
                _error_of(each, next(found)) if isinstance(each, Decoding) else each
                for each in under_way
            ]

    def examine(self, means: Sequence[tuple]) -> tuple:
        """Of (address of a tensor's mean, of the tensor, count, dtype) for each tensor of a bucket:
        (both sums of the digest, all finite, index of a tensor that can't hold its mean or None,
        that mean)."""
        with self._own_stream():
            whole = self._at(means[0][0], sum(count for *_, count, _ in means))
            narrow = [
                (i, self._at(mean, count), _BEYOND[dtype])
                for i, (mean, _, count, dtype) in enumerate(means)
                if dtype in _BEYOND
            ]
            beyond = [_is_beyond(mean, least).any() for _, mean, least in narrow]
            facts = [*self._digest.of(whole), torch.isfinite(whole).all(), *beyond]
            first, second, finite, *found = self._to_host(
                torch.stack([each.to(torch.int64) for each in facts])
            ).tolist()
            sums = (first % 2**64, second % 2**64)
            if not any(found):
                return (*sums, bool(finite), None, 0.0)
            index, mean, least = narrow[found.index(1)]
            value = mean[_is_beyond(mean, least)][0].item()
            return (*sums, bool(finite), index, value)

    def publish(self, means: Sequence[tuple]) -> None:
        """Rounds each mean into its tensor."""
        try:
            with self._own_stream():
                for mean, tensor, count, dtype in _joined(means):
                    self._at(tensor, count, dtype).copy_(self._at(mean, count))
        except Exception as cause:  # the step counts: whoever takes the bucket hears of it
            self._failure = cause

    def _own_stream(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def _add(self, memory: torch.Tensor) -> int:
        address = memory.data_ptr()
        with self._lock:
            if address not in self._regions:
                bisect.insort(self._bases, address)
            self._regions[address] = memory.view(-1).view(torch.uint8)
        return address

    def _at(self, address: int, count: int, dtype: str = "float32") -> torch.Tensor:
        with self._lock:
            base = self._bases[bisect.bisect_right(self._bases, address) - 1]
            region = self._regions[base]
        first = address - base
        kind = _DTYPES[dtype]
        return region[first : first + count * kind.itemsize].view(kind)

    def _launch(
        self,
        spec: str,
        address: int,
        count: int,
        dtype: str,
        before: int,
        after: int,
        factor: float,
        carrier: str,
    ) -> tuple[Encoding | Exception, torch.Tensor]:
        """What is encoded, and on the device: values that aren't zeros, values that the carrier
        can't hold, a residual that is out of range."""
        values = self._at(address, count, dtype)
        residual = left = None
        flags = [torch.zeros((), dtype=torch.bool, device=self.device)] * 3
        if before:
            residual, left = self._at(before, count), self._at(after, count)
            flags[0] = values.any()
        if factor != 1:
            residual = (residual.double() * factor).float()
            flags[2] = ~torch.isfinite(residual).all()
        if carrier:
            flags[1] = _not_carried(values, carrier)
        try:
            encoding = self.twin(spec).encode(values, residual, after=left)
        except DeltawireError as cause:
            return cause, torch.stack(flags)
        return encoding, torch.stack(flags)

    def _collect(self, launched: list[tuple]) -> list[tuple]:
        """Waits three times for all parts: for what refuses them and their numbers of chunks, for
        the chunks' ends and checksums, and for the payloads."""
        rows = [_status(encoding, flags) for encoding, flags in launched]
        stats = self._to_host(torch.stack(rows)).tolist()
        results: list = []
        good: list[tuple[int, Encoding, int, tuple[int, int]]] = []
        for (encoding, _), row in zip(launched, stats, strict=True):
            *status, some, not_carried, out_of_range = row
            error = _refusal(encoding, status, out_of_range)
            if error is None:
                chunks = status[3] if encoding.chunks is None else encoding.chunks
                scalars = (status[1] & 0xFFFFFFFF, status[2] & 0xFFFFFFFF)
                good.append((len(results), encoding, chunks, scalars))
            results.append((None, error, not some, not not_carried))
        for (at, *_), part in zip(good, self._parts(good), strict=True):
            results[at] = (part, *results[at][1:])
        return results

    def _parts(self, good: list[tuple]) -> Iterator[tuple]:
        """What frames carry, as arrays: (payload, ends, sums, scalars)."""
        if not good:
            return
        lists = [each.ends[:chunks].long() for _, each, chunks, _ in good]
        lists += [each.sums[:chunks].long() for _, each, chunks, _ in good]
        numbers = self._to_host(torch.cat(lists)).numpy().astype(np.uint32)
        lists = np.split(numbers, np.cumsum([len(each) for each in lists[:-1]]))
        ends, sums = lists[: len(good)], lists[len(good) :]
        sizes = [int(each[-1]) if len(each) else 0 for each in ends]
        payloads = [each.payload[:size] for (_, each, *_), size in zip(good, sizes, strict=True)]
        bytes_ = np.split(self._to_host(torch.cat(payloads)).numpy(), np.cumsum(sizes[:-1]))
        for (*_, scalars), payload, end, checksum in zip(good, bytes_, ends, sums, strict=True):
            yield payload, end, checksum, scalars

    def _decode(self, payload: torch.Tensor, add: bool, scale: float, job: tuple):
        spec, _, ends, first, second, address, count = job
        part = EncodedPart(payload, ends.tolist(), (), (first, second))
        try:
            twin, slot = self.twin(spec), self._at(address, count)
            return twin.decode_add(part, slot, scale) if add else twin.decode(part, slot, scale)
        except DeltawireError as cause:
            return cause

    def _sent_to_device(self, payloads: list[np.ndarray]) -> list[torch.Tensor]:
        """All payloads in one copy."""
        starts = np.cumsum([0, *(-(-len(each) // _ALIGNED) * _ALIGNED for each in payloads)])
        pinned = self.stream is not None
        host = torch.empty(int(starts[-1]), dtype=torch.uint8, pin_memory=pinned)
        for start, payload in zip(starts, payloads, strict=False):
            host.numpy()[start : start + len(payload)] = payload
        sent = host.to(self.device, non_blocking=True)
        return [sent[s : s + len(each)] for s, each in zip(starts, payloads, strict=False)]

    def _to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.stream is None:
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        event = torch.cuda.Event()
        event.record(self.stream)
        until(event, self._timeout, self._rank, "what the GPU encodes or decodes was not there")
        return host


def _status(encoding: Encoding | Exception, flags: torch.Tensor) -> torch.Tensor:
    if isinstance(encoding, Exception):
        return torch.cat([torch.zeros(4, dtype=torch.int32, device=flags.device), flags.int()])
    return torch.cat([encoding.status[:4], flags.int()])


def _refusal(
    encoding: Encoding | Exception, status: list[int], out_of_range: int
) -> Exception | None:
    if isinstance(encoding, Exception):
        return encoding
    if out_of_range:
        text = "its residual is too large for the new scale; let the scale grow in smaller steps"
        return make_error("Range", text)
    try:
        encoding.refuse(status[0], status[1])
    except DeltawireError as cause:
        return cause
    return None


def _error_of(decoding: Decoding, on_host: torch.Tensor) -> Exception | None:
    """`on_host`: the decoding's `error`, which would otherwise be waited for once more."""
    try:
        dataclasses.replace(decoding, error=on_host).check()
    except DeltawireError as cause:
        return cause
    return None


def _is_beyond(values: torch.Tensor, least: float) -> torch.Tensor:
    """Which finite values round to infinity."""
    magnitude = values.abs()
    return (magnitude >= least) & torch.isfinite(magnitude)


def _not_carried(values: torch.Tensor, carrier: str) -> torch.Tensor:
    """Whether a 16-bit dtype rounds any value to infinity, or its codec refuses one."""
    wide = values.float()
    if carrier == "float16":  # whose codec carries finite values only
        return ~(wide.abs() < _BEYOND[carrier]).all()
    return _is_beyond(wide, _BEYOND[carrier]).any()


def _joined(means: Sequence[tuple]) -> list[tuple]:
    """The same with neighbours as one: mostly a whole bucket."""
    joined: list[tuple] = []
    for mean, tensor, count, dtype in means:
        if joined:
            at, to, before, kind = joined[-1]
            width = _DTYPES[dtype].itemsize
            follows = (mean, tensor) == (at + 4 * before, to + width * before)
            if follows and kind == dtype:
                joined[-1] = (at, to, before + count, dtype)
                continue
        joined.append((mean, tensor, count, dtype))
    return joined
