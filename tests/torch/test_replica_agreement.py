"""Errors of the ranks with the same rows, in numbers of all ranks."""

import deltawire
import pytest
from deltawire.torch.fsdp.replica_agreement import among

ODD = "the replicas differ: rank(s) 1 hold other means; restart"
WAITED = "rank 0 waited 9 ms for rank 1, of part 'layers.rank 1.w'"
KEY = "(rank r here is global rank 1 + 2 r)"
BUG = "gave up: ValueError: rank 0"


@pytest.mark.parametrize(
    ("ranks", "text", "suspect", "told", "blamed"),
    [
        ([1, 3], ODD, 1, f"global rank 3: {ODD} {KEY}", 3),
        ([1, 3], WAITED, 1, f"global rank 3: {WAITED} {KEY}", 3),
        ([1, 3], f"rank 0 reports: {WAITED}", 1, f"global rank 1 reports: {WAITED} {KEY}", 3),
        ([1, 3], f"rank 1 {BUG}", 1, f"global rank 3 {BUG}", 3),
        (  # of another row
            *([2, 3], f"rank 1 reports: global rank 1 {BUG}", 1),
            *(f"global rank 3 reports: global rank 1 {BUG}", 1),
        ),
        (
            *([2, 3], f"rank 1 reports: global rank 1: {ODD} {KEY}", 1),
            *(f"global rank 3 reports: global rank 1: {ODD} {KEY}", 1),
        ),
        (
            *([2, 3], f"rank 1 reports: global rank 3: {ODD} {KEY}", 0),
            *(f"global rank 3 reports: {ODD} {KEY}", 3),
        ),
        (
            *([0, 5, 6], "rank 2 reports: part 'rank 1.w'", 2),
            "global rank 6 reports: part 'rank 1.w' (rank 0 here is global rank 0, 1 here is "
            "global rank 5, 2 here is global rank 6)",
            6,
        ),
    ],
)
def test_numbers_are_told_apart_from_names(ranks, text, suspect, told, blamed):
    error = among(ranks, deltawire.DeltawireError(text, "Mismatch", suspect, 4))
    assert str(error) == told
    assert (error.code, error.suspect, error.last_committed_step) == ("Mismatch", blamed, 4)
