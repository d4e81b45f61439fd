"""Chunks one directly after another, and their checksums."""

import functools

import numpy as np
import torch
import triton
import triton.language as tl

from deltawire.torch.gpu.kernels.launching import INTERPRETED, launch

CRC_POLYNOMIAL = 0x82F63B78
CRC_LANES = 4096 if INTERPRETED else 512
JOINED_BYTES = 8192 if INTERPRETED else 2048  # at a time


@triton.jit
def copy_chunk(slots_ptr, sizes_ptr, ends_ptr, out_ptr, slot_bytes, BYTES: tl.constexpr):
    """A chunk from its slot to its place in the payload."""
    c = tl.program_id(0)
    size = tl.load(sizes_ptr + c)
    begin = tl.load(ends_ptr + c) - size
    slot = slots_ptr + c.to(tl.int64) * slot_bytes
    i = tl.arange(0, BYTES)
    for first in range(0, size, BYTES):
        ok = first + i < size
        byte = tl.load(slot + first + i, mask=ok, other=0)
        tl.store(out_ptr + begin + first + i, byte, mask=ok)


def join(
    slots: torch.Tensor, slot_bytes: int, sizes: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The payload (a buffer as long as the slots) and the chunks' ends."""
    ends = torch.cumsum(sizes, 0)  # in int64
    payload = torch.empty(slots.numel(), dtype=torch.uint8, device=slots.device)
    launch(copy_chunk, len(sizes), slots, sizes, ends, payload, slot_bytes, BYTES=JOINED_BYTES)
    return payload, ends


@triton.jit
def either(a, b):
    """What tl.reduce sums checksums with."""
    return a ^ b


@triton.jit
def crc32c(data_ptr, begins_ptr, sizes_ptr, sums_ptr, step_ptr, shift_ptr, LANES: tl.constexpr):
    """A chunk's CRC-32C. Lane l takes every LANES-th word of 4 bytes, the last lane the last one.

    Zero bytes before them change nothing; four bytes directly before them, whose checksum from 0 is
    0xFFFFFFFF, make the initial value.
    """
    c = tl.program_id(0)
    begin = tl.load(begins_ptr + c)
    end = begin + tl.load(sizes_ptr + c)
    lane = tl.arange(0, LANES)
    turns = ((end - begin).to(tl.int32) + 4 + 4 * LANES - 1) // (4 * LANES)
    state = tl.zeros((LANES,), tl.uint32)
    for turn in range(turns):
        first = end - (turns - turn).to(tl.int64) * (4 * LANES) + 4 * lane
        word = tl.zeros((LANES,), tl.uint32)
        for i in tl.static_range(4):
            at = first + i
            byte = tl.load(data_ptr + at, mask=at >= begin, other=0).to(tl.uint32)
            before = (begin - 1 - at).to(tl.int32)
            start = ((0x54641F64 >> (8 * (before & 3))) & 0xFF).to(tl.uint32)
            byte = tl.where((before >= 0) & (before < 4), start, byte)
            word |= byte << (8 * i)
        low = tl.load(step_ptr + (state & 0xFF)) ^ tl.load(step_ptr + 256 + ((state >> 8) & 0xFF))
        high = tl.load(step_ptr + 512 + ((state >> 16) & 0xFF))
        state = word ^ low ^ high ^ tl.load(step_ptr + 768 + (state >> 24))
    total = tl.zeros((LANES,), tl.uint32)
    for bit in range(32):
        row = tl.load(shift_ptr + bit * LANES + lane)
        total ^= tl.where(((state >> bit) & 1) != 0, row, 0)
    crc = tl.reduce(total, 0, either) ^ 0xFFFFFFFF
    tl.store(sums_ptr + c, crc.to(tl.int32, bitcast=True))


def checksums(
    data: torch.Tensor, begins: torch.Tensor, sizes: torch.Tensor, sums: torch.Tensor
) -> None:
    """CRC-32C, seed 0, as int32, of chunks of so many bytes that begin there."""
    tables = _crc_tables(data.device)
    launch(crc32c, len(begins), data, begins, sizes, sums, *tables, LANES=CRC_LANES)


@functools.cache
def _crc_tables(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """For each byte of a state, what it is LANES words later; for each bit and lane, at the end."""
    bytes_ = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        bytes_ = bytes_ >> 1 ^ np.where(bytes_ & 1, np.uint32(CRC_POLYNOMIAL), np.uint32(0))
    rows = np.uint32(1) << np.arange(32, dtype=np.uint32)  # the images of the 32 bits
    shift = np.empty((32, CRC_LANES), np.uint32)
    for lane in reversed(range(CRC_LANES)):
        for _ in range(4):
            rows = bytes_[rows & 0xFF] ^ rows >> np.uint32(8)
        shift[:, lane] = rows
    step = np.zeros((4, 256), np.uint32)
    for place in range(4):
        for bit in range(8):
            step[place] ^= np.where(np.arange(256) >> bit & 1, rows[8 * place + bit], np.uint32(0))
    return tuple(torch.from_numpy(each.view(np.int32)).to(device) for each in (step, shift))
