"""Gradients that stay on their device: what the core asks of it.

The core keeps the exchange (frames, sends, votes, failures) and asks an object of this class to
encode and decode parts, by the addresses of their values: a `part_backend.h` in Python.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from deltawire.errors import wrong_state
from deltawire.torch.core.device.decoding import PartDecoder
from deltawire.torch.core.device.encoding import BEYOND, Encoded, PartEncoder, is_beyond
from deltawire.torch.core.device.memory import DeviceMemory
from deltawire.torch.gpu.parts import TO_DECODE, TO_ENCODE, records

_ELEMENTS = 1 << 22  # that are digested at a time, so that temporary memory is bounded
_FACTOR = 0x9E3779B1 - 2**32


def is_captured(device: torch.device) -> bool:
    """Whether this thread captures a CUDA graph on the device."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):  # whose current stream is asked
        return torch.cuda.is_current_stream_capturing()


def refuse_capture(device: torch.device) -> None:
    """Raises DeltawireError ("State") while this thread captures a CUDA graph on the device, whose
    replay would exchange nothing."""
    if is_captured(device):
        raise wrong_state(
            "a CUDA graph is being captured, and an exchange can't be a part of it: it waits for "
            "the GPU and for other ranks; capture forward and backward passes alone "
            "(of the bare model, or with no_sync())"
        )


class DeviceParts(DeviceMemory):
    """Codes the parts of one hook on the device of its gradients.

    Work goes to a stream of its own, in the order of calls. Buckets are known between `adopt` and
    `forget`.

    Thread rule: `adopt` and `forget` belong to whoever owns the buckets, everything else to the
    core, which makes one call at a time but for `release`.

    Args:
        device: of the gradients.
        make_twin: gives the twin of a codec's canonical spec.
        timeout: seconds that the device may take for one call.
        rank: this one, whom the error of such a call names.
    """

    def __init__(
        self,
        device: torch.device,
        make_twin: Callable[[str], object],
        timeout: float,
        rank: int | None = None,
    ) -> None:
        super().__init__(device, timeout, rank)
        self._make_twin = make_twin
        self._twins: dict[str, object] = {}
        self._digest = MeanDigest(device)
        self._encoder, self._decoder = PartEncoder(self), PartDecoder(self)
        self._failure: Exception | None = None

    def twin(self, spec: str):
        """The twin of a codec, made once."""
        if spec not in self._twins:
            self._twins[spec] = self._make_twin(spec)
        return self._twins[spec]

    def adopt(self, bucket: torch.Tensor) -> torch.cuda.Event | None:
        """Makes a bucket known. The event, if there is one, says that its gradients are complete:
        it must be waited for before the core gets the bucket. The stream doesn't wait for it, since
        older buckets' work, which is launched later, would wait, too."""
        self.add(bucket)
        if self.stream is None:
            return None
        bucket.record_stream(self.stream)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def forget(self, bucket: torch.Tensor) -> None:
        """The core is done with a bucket."""
        self.release(bucket.data_ptr())

    def check(self) -> None:
        """Raises what kept means of a committed step from their bucket."""
        if self._failure is not None:
            raise self._failure

    def load(self, means: Sequence[tuple], factor: float) -> None:
        """Each mean becomes its tensor's values times the factor. Means as `examine` has them."""
        with self.own_stream():
            for mean, tensor, count, dtype in _joined(means):
                values = self.at(tensor, count, dtype).float()
                torch.mul(values, factor, out=self.at(mean, count))

    def encode(self, specs: Sequence[str], rows: np.ndarray, factors: np.ndarray) -> list[Encoded]:
        """Encodes parts, which aren't empty, and waits for them.

        Args:
            specs: of codecs.
            rows: `TO_ENCODE` of each part, int64.
            factors: of the residuals.
        """
        with self.own_stream():
            twins = [self.twin(spec) for spec in specs]
            return self._encoder.encode(twins, records(TO_ENCODE, rows), factors)

    def room(self, specs: Sequence[str], rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Memory of the host for payloads, which `decode` then takes.

        Args:
            rows: `TO_DECODE` of each part, int64.
            ends: of all chunks in their parts' payloads.
        """
        with self.own_stream():
            twins = [self.twin(spec) for spec in specs]
            return self._decoder.room(twins, records(TO_DECODE, rows), ends)

    def decode(self, add: bool, scale: float) -> list[tuple[int, Exception]]:
        """Decodes what is in the room. Errors that are known at once, each with the number of its
        part; what the device finds later, `examine` says."""
        with self.own_stream():
            return self._decoder.decode(add, scale)

    def forget_decoded(self) -> None:
        """A step was reverted: what is wrong with its parts no longer matters."""
        with self.own_stream():
            self._decoder.forget()

    def examine(self, means: Sequence[tuple]) -> tuple:
        """Of (address of a tensor's mean, of the tensor, count, dtype) for each tensor of a bucket:
        (both sums of the digest, all finite, index of a tensor that can't hold its mean or None,
        that mean, None or what is wrong with a part that was decoded since the last call: its
        number, counted from then, and its error)."""
        with self.own_stream():
            whole = self.at(means[0][0], sum(count for *_, count, _ in means))
            narrow = [
                (i, self.at(mean, count), BEYOND[dtype])
                for i, (mean, _, count, dtype) in enumerate(means)
                if dtype in BEYOND
            ]
            beyond = [is_beyond(mean, least).any() for _, mean, least in narrow]
            facts = [*self._digest.of(whole), torch.isfinite(whole).all(), *beyond]
            facts = torch.stack([each.to(torch.int64) for each in facts])
            errors = self._decoder.errors()
            on_host = self.to_host(torch.cat([facts, errors.long()]))
            first, second, finite, *found = on_host[: len(facts)].tolist()
            wrong = self._decoder.refused(on_host[len(facts) :].numpy())
            sums = (first % 2**64, second % 2**64)
            if not any(found):
                return (*sums, bool(finite), None, 0.0, wrong)
            index, mean, least = narrow[found.index(1)]
            first = is_beyond(mean, least).byte().argmax()
            value = self.to_host(mean.take(first)).item()
            return (*sums, bool(finite), index, value, wrong)

    def publish(self, means: Sequence[tuple]) -> None:
        """Rounds each mean into its tensor."""
        try:
            with self.own_stream():
                for mean, tensor, count, dtype in _joined(means):
                    self.at(tensor, count, dtype).copy_(self.at(mean, count))
        except Exception as cause:  # the step counts: whoever takes the bucket hears of it
            self._failure = cause


def _joined(means: Sequence[tuple]) -> list[tuple]:
    """The same with neighbours as one: mostly a whole bucket."""
    joined: list[tuple] = []
    for mean, tensor, count, dtype in means:
        if joined:
            at, to, before, kind = joined[-1]
            width = getattr(torch, dtype).itemsize
            follows = (mean, tensor) == (at + 4 * before, to + width * before)
            if follows and kind == dtype:
                joined[-1] = (at, to, before + count, dtype)
                continue
        joined.append((mean, tensor, count, dtype))
    return joined


class MeanDigest:
    """The digest of means on a device, which any order of adding gives alike: two 64-bit sums over
    the bits of float32 values and their places, modulo 2^64.

    A value that differs changes the first sum for certain; the second, which mixes bits and places
    in another way, tells apart what would cancel out in the first.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._odd = torch.empty(0, dtype=torch.int32, device="cpu")  # 1, 3, 5, ...

    def of(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Both sums, on the device."""
        words = values.view(torch.int32)
        if len(self._odd) < min(len(words), _ELEMENTS):
            self._odd = torch.arange(
                1, 2 * min(len(words), _ELEMENTS), 2, dtype=torch.int32, device=self._device
            )
        sums = [torch.zeros((), dtype=torch.int64, device=self._device) for _ in range(2)]
        for first in range(0, len(words), _ELEMENTS):
            block = words[first : first + _ELEMENTS]
            places = self._odd[: len(block)] + ((2 * first + 2**31) % 2**32 - 2**31)  # as int32
            sums[0] += (block * places).sum(dtype=torch.int64)
            sums[1] += ((block ^ places) * _FACTOR).sum(dtype=torch.int64)
        return sums
