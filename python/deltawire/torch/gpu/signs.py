"""onebit and signsgd on a device."""

import numpy as np
import torch

from deltawire.errors import make_error
from deltawire.torch.gpu.codec_twin import Twin
from deltawire.torch.gpu.fixed import kept_on
from deltawire.torch.gpu.kernels import signs as kernels
from deltawire.torch.gpu.kernels.launching import INTERPRETED, blocks, launch
from deltawire.torch.gpu.parts import INFINITY, EncodedPart, Encoding, check_fixed_ends

CHUNK = 65536
BYTES = 8192 if INTERPRETED else 256  # of a program
SUMMED = 2 if INTERPRETED else 1  # blocks of a program
ONE = 0x3F800000
SIGN = 0x80000000


def sign_ends(count: int) -> list[int]:
    """Where the chunks of a part end."""
    return [blocks(min(count, end), 8) for end in range(CHUNK, count + CHUNK, CHUNK)]


class SignTwin(Twin):
    """A codec that sends a bit for each value."""

    chunk_elements = CHUNK
    sides = 1
    bare = False

    def _encode(
        self, values: torch.Tensor, residual: torch.Tensor | None, after: torch.Tensor
    ) -> Encoding:
        n, device = values.numel(), values.device
        has, number = residual is not None, blocks(values.numel(), CHUNK)
        r = residual if has else values
        status = torch.zeros(4, dtype=torch.int32, device=device)
        payload = torch.empty(blocks(n, 8), dtype=torch.uint8, device=device)
        sums = torch.empty(2 * number, dtype=torch.float64, device=device)
        counts = torch.empty(number, dtype=torch.int32, device=device)
        kind = {"HAS_R": has, "SIDES": self.sides}
        block_sums = (values, r, status, sums, counts, n, number)
        programs = blocks(number, SUMMED)
        launch(kernels.sum_blocks, programs, *block_sums, BLOCKS=SUMMED, warps=1, **kind)
        launch(kernels.find_means, 1, sums, counts, status, n, number, SIDES=self.sides, warps=1)
        if self.bare:
            status[1] = ONE
        coded = (values, r, after, status, payload, n)
        launch(kernels.encode, blocks(n, 8 * BYTES), *coded, BYTES=BYTES, **kind)
        ends = kept_on(device, tuple(sign_ends(n)))
        return self._encoded(payload, ends, status, values, residual)

    def _check(self, part: EncodedPart, count: int) -> None:
        check_fixed_ends(part, sign_ends(count))
        if part.scalars[0] >= INFINITY:
            raise make_error("Corrupt", f"{self.name}: a mean is {part.scalars[0]:#x}")

    def _decode(self, payload, ends, scalars, out, scale, add, error) -> None:
        n = out.numel()
        low = scalars[1] if self.sides == 2 else scalars[0] ^ SIGN
        launch(
            kernels.decode,
            blocks(n, 8 * BYTES),
            *(payload, out, error, scalars[0], low, float(np.float32(scale)), n),
            ADD=add,
            BYTES=BYTES,
        )


class OneBit(SignTwin):
    """Each side as its mean."""

    name = "onebit"
    scalars = sides = 2

    def _read(self, parameters: dict[str, str]) -> None:
        if parameters.get("means", "part") != "part":
            text = f"{self.spec} has no twin for tensors on a GPU: its means must be the part's"
            raise make_error("InvalidArgument", text)

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

    def _check(self, part: EncodedPart, count: int) -> None:
        super()._check(part, count)
        if self.bare and part.scalars[0] != ONE:
            raise make_error("Corrupt", f"signsgd: the scale is {part.scalars[0]:#x}, not 1")
