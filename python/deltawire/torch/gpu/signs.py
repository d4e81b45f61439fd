"""onebit and signsgd on a device."""

import numpy as np
import torch

from deltawire.errors import make_error
from deltawire.torch.gpu.fixed import FixedTwin, decode_by, encode_by
from deltawire.torch.gpu.kernels import signs as kernels
from deltawire.torch.gpu.kernels.launching import BLOCK, blocks, launch
from deltawire.torch.gpu.part_batches import DecodeBatch, EncodeBatch, Segment
from deltawire.torch.gpu.parts import INFINITY, EncodedPart

BYTES = BLOCK // 8  # of a program
ONE = 0x3F800000
SIGN = 0x80000000


class SignTwin(FixedTwin):
    """A codec that sends a bit for each value."""

    greatest_scalar = INFINITY - 1
    sides = 1
    bare = False

    def bytes_of(self, elements):
        """Eight values to a byte."""
        return blocks(elements, 8)

    def plan(self, parts: np.ndarray, counts: np.ndarray, device: torch.device) -> torch.Tensor:
        """A row for each part: its number, its first chunk in the segment, and its chunks."""
        chunks = self.chunks_of(counts)
        rows = np.stack([parts, np.cumsum(chunks) - chunks, chunks], axis=1)
        return torch.from_numpy(rows.astype(np.int32)).to(device)

    def encode_parts(self, segment: Segment, batch: EncodeBatch) -> None:
        """By three launches: sums, means, bits."""
        chunks, device = len(segment.chunks), batch.out.device
        sums = torch.empty(2 * chunks, dtype=torch.float64, device=device)
        counts = torch.empty(chunks, dtype=torch.int32, device=device)
        found = (batch.table, segment.chunks, sums, counts)
        kind = {"KIND": segment.kind, "SCALED": batch.scaled}
        launch(kernels.sum_parts_blocks, chunks, *found, SIDES=self.sides, warps=1, **kind)
        means = (batch.table, segment.plan, sums, counts, batch.facts, chunks)
        how = {"SIDES": self.sides, "BARE": self.bare, "warps": 1}
        launch(kernels.find_parts_means, len(segment.plan), *means, **how)
        constants = {"SIDES": self.sides, "BYTES": BYTES}
        encode_by(kernels.encode_parts, torch.uint8, segment, batch, **constants)

    def decode_parts(self, segment: Segment, batch: DecodeBatch) -> None:
        """By one launch."""
        constants = {"SIDES": self.sides, "BYTES": BYTES}
        decode_by(kernels.decode_parts, torch.uint8, segment, batch, **constants)

    def _check(self, part: EncodedPart, count: int) -> None:
        super()._check(part, count)
        if part.scalars[0] >= INFINITY:
            raise make_error("Corrupt", f"{self.name}: a mean is {part.scalars[0]:#x}")


class OneBit(SignTwin):
    """Each side as its mean."""

    name = "onebit"
    scalars = sides = 2

    def _read(self, parameters: dict[str, str]) -> None:
        if parameters.get("means", "part") != "part":
            text = f"{self.spec} has no twin for tensors on a GPU: its means must be the part's"
            raise make_error("InvalidArgument", text)

    def may_be(self, counts, chunks, ends, scalars) -> bool:
        """As every twin; and the negative mean is 0 or negative."""
        low = scalars[:, 1]
        good = (low == 0) | ((low > SIGN) & (low < SIGN + INFINITY))
        return bool(good.all()) and super().may_be(counts, chunks, ends, scalars)

    def _check(self, part: EncodedPart, count: int) -> None:
        super()._check(part, count)
        low = part.scalars[1]
        if low and not SIGN < low < SIGN + INFINITY:
            raise make_error("Corrupt", f"onebit: a mean is {low:#x}")


class SignSGD(SignTwin):
    """Signs, and the mean of all magnitudes or 1."""

    name = "signsgd"
    scalars = 1

    def _read(self, parameters: dict[str, str]) -> None:
        self.bare = parameters.get("scale") == "one"

    def may_be(self, counts, chunks, ends, scalars) -> bool:
        """As every twin; and the scale is 1 where the spec says so."""
        good = not self.bare or bool((scalars[:, 0] == ONE).all())
        return good and super().may_be(counts, chunks, ends, scalars)

    def _check(self, part: EncodedPart, count: int) -> None:
        super()._check(part, count)
        if self.bare and part.scalars[0] != ONE:
            raise make_error("Corrupt", f"signsgd: the scale is {part.scalars[0]:#x}, not 1")
