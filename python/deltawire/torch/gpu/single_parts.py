"""One part, as a batch of one."""

import numpy as np
import torch

from deltawire.torch.gpu.batch_codec import BatchCodec
from deltawire.torch.gpu.kernels.chunks import join
from deltawire.torch.gpu.kernels.part_tables import LARGEST
from deltawire.torch.gpu.part_batches import ALIGNED, PartBatches
from deltawire.torch.gpu.parts import (
    INFINITY,
    KINDS,
    TO_DECODE,
    TO_ENCODE,
    EncodedPart,
    Encoding,
    row_of,
)

_NUMBERS = {getattr(torch, kind): number for number, kind in KINDS.items()}


def encode(
    batches: PartBatches,
    twin: BatchCodec,
    values: torch.Tensor,
    residual: torch.Tensor | None,
    after: torch.Tensor | None,
) -> Encoding:
    """As `Twin.encode`, of at least one value; the new residual goes to `after`."""
    left = after
    if not twin.in_place and residual is not None and after.data_ptr() == residual.data_ptr():
        left = torch.empty_like(residual)
    before, behind = (0 if each is None else each.data_ptr() for each in (residual, left))
    row = row_of(
        TO_ENCODE,
        values=values.data_ptr(),
        count=len(values),
        dtype=_NUMBERS[values.dtype],
        before=before,
        after=behind,
    )
    rows = np.array([row], TO_ENCODE)
    facts, sizes, sums, payload = batches.encode_on_device([twin], rows, np.ones(1))
    if left is not after:
        if twin.finite_only:
            left = torch.where(facts[LARGEST.value] < INFINITY, left, residual)
        after.copy_(left)
    if twin.fixed:
        ends = torch.cumsum(sizes, 0)
    else:
        payload, ends = join(payload, twin.slot_bytes, sizes)
    chunks = (sizes > 0).sum(dtype=torch.int32)  # values may not have needed all
    status = torch.cat([facts[:3], chunks.view(1)])
    return Encoding(
        payload, ends, sums, status, lambda most, first: twin.refuse(values, residual, most, first)
    )


def decode(
    batches: PartBatches,
    twin: BatchCodec,
    part: EncodedPart,
    out: torch.Tensor,
    add: bool,
    scale: float,
) -> torch.Tensor:
    """Decodes a part that `Twin.check` has found good into at least one value. Gives bits, as
    Decoding has them."""
    error = torch.zeros(1, dtype=torch.int32, device=out.device)
    payload = part.payload.to(out.device)
    if payload.data_ptr() % ALIGNED:
        payload = payload.clone()
    scalar, scalar2 = part.scalars
    place = {"slot": out.data_ptr(), "count": out.numel(), "chunks": len(part.ends)}
    row = row_of(TO_DECODE, **place, scalar=scalar, scalar2=scalar2)
    ends = np.array(part.ends, np.int64)
    batches.room([twin], np.array([row], TO_DECODE), ends, payload)
    batches.decode(error, add, scale)
    return error
