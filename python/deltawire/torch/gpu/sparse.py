"""topk and sbc on a device."""

from abc import abstractmethod
from fractions import Fraction

import numpy as np
import torch

from deltawire.errors import DeltawireError, make_error
from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.int8 import GREATEST_STEP
from deltawire.torch.gpu.kernels import positions_decoding as decoding
from deltawire.torch.gpu.kernels import positions_encoding, sent_values
from deltawire.torch.gpu.kernels.bit_streams import RICE_BOUNDS
from deltawire.torch.gpu.kernels.chunks import checksums, join
from deltawire.torch.gpu.kernels.launching import BLOCK, INTERPRETED, blocks, constant, launch
from deltawire.torch.gpu.kernels.selection import select
from deltawire.torch.gpu.parts import INFINITY, EncodedPart, Encoding

CHUNK = 16384  # positions
LANES = (1, 4, 8)
VALUE_BYTES = {"fp32": 4, "bf16": 2, "int8": 1}
CODES = 16384 if INTERPRETED else 1024  # at a time


class SparseTwin(Twin):
    """A codec that sends the elements of largest magnitude."""

    scalars = 1
    sides = 1
    value_bytes = 0
    scalar_rule = 0  # 1: the scalar is 0 where nothing is sent; 2: and only there
    share: float

    def _read(self, parameters: dict[str, str]) -> None:
        if parameters.get("positions", "golomb") != "golomb":
            raise self._refused("its positions must be golomb")
        self.share = float(np.float32(parameters.get("k") or parameters["p"]))

    def _refused(self, why: str) -> DeltawireError:
        return make_error("InvalidArgument", f"{self.spec} has no twin for tensors on a GPU: {why}")

    def _encode(
        self, values: torch.Tensor, residual: torch.Tensor | None, after: torch.Tensor
    ) -> Encoding:
        n, device = values.numel(), values.device
        k = min(max(int(Fraction(self.share) * n + Fraction(1, 2)), 1), n)
        status = torch.zeros(6, dtype=torch.int32, device=device)
        listed, chosen = select(values, residual, after, status, k, self.sides)
        sent = self._choose(after, listed, chosen, status, k)
        launch(sent_values.count_chunks, 1, sent, status, warps=1)
        chunks = blocks(k, CHUNK)
        each = min(k, CHUNK)
        slot_words = (each * (7 + self.value_bytes) + 29) // 4 + 3
        words = torch.zeros(chunks * slot_words, dtype=torch.int32, device=device)
        sizes = torch.zeros(chunks, dtype=torch.int32, device=device)
        bounds = constant(RICE_BOUNDS, torch.int64, device)
        for lanes in LANES:
            rows = max(CODES // lanes, 1)
            where = (listed, sent, bounds, words, sizes, slot_words)
            launch(positions_encoding.encode_positions, chunks, *where, ROWS=rows, LANES=lanes)
        slots = words.view(torch.uint8)
        self._send(after, listed, sent, status, slots, sizes, k, residual is not None)
        payload, ends = join(slots, 4 * slot_words, sizes)
        sums = checksums(payload, ends)
        return Encoding(payload, ends, sums, status, None, self._refusal(values, residual))

    @abstractmethod
    def _choose(self, left, listed, chosen, status, k: int) -> torch.Tensor:
        """Where in the list the positions begin that are sent, and how many they are."""

    @abstractmethod
    def _send(self, left, listed, sent, status, slots, sizes, k: int, has: bool) -> None:
        """Appends values, and takes what is sent from the residual."""

    def _check(self, part: EncodedPart, count: int) -> None:
        if len(part.ends) > blocks(count, CHUNK):
            raise make_error(
                "Corrupt", f"{self.name}: {len(part.ends)} chunks for {count} elements"
            )

    def _decode(self, payload, ends, scalars, out, scale, add, error) -> None:
        chunks, device = len(ends), out.device
        scalar, n, size = scalars[0], out.numel(), self.value_bytes
        listed = torch.empty(chunks * CHUNK, dtype=torch.int64, device=device)
        counts = torch.empty(chunks, dtype=torch.int32, device=device)
        lasts = torch.empty(chunks, dtype=torch.int64, device=device)
        bytes_ = (payload, ends)
        gaps = (*bytes_, listed, counts, error, n, chunks)
        launch(decoding.decode_gaps, chunks, *gaps, VALUE_BYTES=size, warps=1)
        launch(decoding.sum_gaps, chunks, listed, counts, lasts, error, n, BLOCK=CODES)
        order = (listed, counts, lasts, error, scalar)
        launch(decoding.check_order, chunks, *order, SCALAR=self.scalar_rule, warps=1)
        if size:
            values = (*bytes_, counts, error, scalar)
            launch(decoding.check_values, chunks, *values, VALUE_BYTES=size, BLOCK=CODES)
        if not add:
            out.zero_()
        launch(
            decoding.scatter,
            (chunks, blocks(CHUNK, CODES)),
            *(*bytes_, listed, counts, out, error, scalar, float(np.float32(scale))),
            VALUE_BYTES=size,
            ADD=add,
            BLOCK=CODES,
        )


class TopK(SparseTwin):
    """The largest elements of both signs, each with its value."""

    name = "topk"

    def _read(self, parameters: dict[str, str]) -> None:
        super()._read(parameters)
        if parameters["values"] not in VALUE_BYTES:
            raise self._refused(f"its values must be {', '.join(VALUE_BYTES)}")
        if "chunk" in parameters:
            raise self._refused("it must select from the whole tensor, without chunk=")
        self.value_bytes = VALUE_BYTES[parameters["values"]]
        self.scalars = self.scalar_rule = 1 if self.value_bytes == 1 else 0

    def _check(self, part: EncodedPart, count: int) -> None:
        super()._check(part, count)
        if part.scalars[0] > GREATEST_STEP:
            raise make_error("Corrupt", f"topk: the step is {part.scalars[0]:#x}")

    def _choose(self, left, listed, chosen, status, k: int) -> torch.Tensor:
        return chosen[1:3] * constant((0, 1), torch.int32, left.device)

    def _send(self, left, listed, sent, status, slots, sizes, k: int, has: bool) -> None:
        launch(
            sent_values.append_values,
            len(sizes),
            *(listed, sent, left, status, slots, sizes, len(slots) // len(sizes)),
            VALUE_BYTES=self.value_bytes,
            HAS_R=has,
            BLOCK=CODES,
        )


class SBC(SparseTwin):
    """The largest elements of one sign, and their mean."""

    name = "sbc"
    sides = 2
    scalar_rule = 2

    def _check(self, part: EncodedPart, count: int) -> None:
        super()._check(part, count)
        mean = part.scalars[0]
        if mean & 0x7FFFFFFF >= INFINITY or mean == 0x80000000:
            raise make_error("Corrupt", f"sbc: the mean is {mean:#x}")

    def _choose(self, left, listed, chosen, status, k: int) -> torch.Tensor:
        per_side = blocks(k, 4096)
        sums = torch.empty(2 * per_side, dtype=torch.float64, device=left.device)
        sent = torch.empty(2, dtype=torch.int32, device=left.device)
        launch(
            sent_values.sum_blocks, (per_side, 2), left, chosen, listed, sums, k, per_side, warps=2
        )
        launch(sent_values.choose_side, 1, chosen, sums, status, sent, k, per_side, warps=1)
        return sent

    def _send(self, left, listed, sent, status, slots, sizes, k: int, has: bool) -> None:
        if has:
            launch(sent_values.take_mean, blocks(k, BLOCK), left, listed, sent, status, BLOCK=BLOCK)
