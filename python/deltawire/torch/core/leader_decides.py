"""Rank 0 decides from what all ranks report, in JSON over the process group."""

import json
from collections.abc import Callable

import torch
import torch.distributed as dist

from deltawire import foreign_json
from deltawire.errors import make_error
from deltawire.torch.core import arguments

_MOST_BYTES = 1 << 24


def leader_decides(
    own: dict,
    decide: Callable[[list[dict]], dict],
    group: dist.ProcessGroup,
    near: torch.device | None = None,
) -> dict:
    """Returns, on every rank, what rank 0 decides from the reports of all. Collectives on `group`,
    under its own timeout.

    Args:
        own: this rank's; with the key "problem", a text, it is an error on every rank.
        decide: called on rank 0 alone, with what the ranks say, in their order.
        near: as for `arguments.device_of`.

    Raises DeltawireError ("Aborted"), alike on every rank: a rank's problem, rank 0's exception.
    """
    said = _gathered(own, group, near)
    for rank, each in enumerate(said):
        if "problem" in each:
            raise make_error("Aborted", f"rank {rank}: {each['problem']}", rank)
    answer = {}
    if dist.get_rank(group) == 0:
        try:
            answer = decide(said)
        except Exception as cause:  # the others wait for an answer
            answer = {"problem": f"{type(cause).__name__}: {cause}"}
    answer = _gathered(answer, group, near)[0]
    if "problem" in answer:
        raise make_error("Aborted", f"rank 0 could not plan: {answer['problem']}", 0)
    return answer


def told_by(
    rank: int, own: object, group: dist.ProcessGroup, near: torch.device | None = None
) -> object:
    """Returns, on every rank, what rank `rank` of the group passed as `own`. Collectives, like
    `leader_decides`; `near` is as for `arguments.device_of`."""
    device, source = arguments.device_of(group, near), dist.get_global_rank(group, rank)
    text = torch.frombuffer(bytearray(json.dumps(own).encode()), dtype=torch.uint8).to(device)
    count = torch.tensor([text.numel()], dtype=torch.int64, device=device)
    dist.broadcast(count, source, group=group)
    if int(count) > _MOST_BYTES:
        raise make_error(
            "Limit", f"rank {rank} says {int(count):,} bytes, more than {_MOST_BYTES:,}"
        )
    if dist.get_rank(group) != rank:
        text = torch.empty(int(count), dtype=torch.uint8, device=device)
    dist.broadcast(text, source, group=group)
    return _json(text.cpu().numpy().tobytes(), rank)


def _gathered(own: dict, group: dist.ProcessGroup, near: torch.device | None) -> list[dict]:
    device = arguments.device_of(group, near)
    text = torch.frombuffer(bytearray(json.dumps(own).encode()), dtype=torch.uint8).to(device)
    count = torch.tensor([text.numel()], dtype=torch.int64, device=device)
    counts = [torch.empty_like(count) for _ in range(dist.get_world_size(group))]
    dist.all_gather(counts, count, group=group)
    longest = max(int(each) for each in counts)
    if longest > _MOST_BYTES:
        raise make_error("Limit", f"a rank says {longest:,} bytes, more than {_MOST_BYTES:,}")
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: text.numel()] = text
    slots = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(slots, padded, group=group)
    texts = (
        slot[: int(length)].cpu().numpy().tobytes()
        for slot, length in zip(slots, counts, strict=True)
    )
    said = [_json(text, rank) for rank, text in enumerate(texts)]
    for rank, each in enumerate(said):
        if not isinstance(each, dict):
            raise make_error("Corrupt", f"what rank {rank} says is no object", rank)
    return said


def _json(text: bytes, rank: int) -> object:
    try:
        return foreign_json.parse(text)
    except ValueError as cause:
        raise make_error("Corrupt", f"what rank {rank} says is no JSON: {cause}", rank) from cause
