"""Errors of the ranks with the same rows, in numbers of all ranks."""

import deltawire
import pytest
from deltawire.torch.fsdp.replica_agreement import among

ODD = "the replicas differ: rank(s) 1 hold other means; restart"
WAITED = "rank 0 waited 9 ms for rank 1, of part 'layers.rank 1.w'"


@pytest.mark.parametrize(
    ("ranks", "text", "suspect", "told", "blamed"),
    [
        ([1, 3], ODD, 1, f"{ODD} (where rank r is global rank 1 + 2 r)", 3),
        (
            *([1, 3], WAITED, 1),
            f"global rank 1{WAITED[6:]} (where rank r is global rank 1 + 2 r)",
            1,
        ),
        (
            [1, 3],
            "rank 1 gave up: ValueError: rank 0",
            1,
            "global rank 3 gave up: ValueError: rank 0",
            3,
        ),
        (
            *([2, 3], "rank 1 reports: global rank 1 gave up: rank 0", 1),
            *("global rank 3 reports: global rank 1 gave up: rank 0", 1),
        ),
        (
            *([0, 5, 6], "rank 2 reports: from rank 1: part 'rank 2.w'", 1),
            "global rank 6 reports: from rank 1: part 'rank 2.w' (where rank 0 is global rank 0, "
            "1 is global rank 5, 2 is global rank 6)",
            6,
        ),
    ],
)
def test_numbers_are_told_apart_from_names(ranks, text, suspect, told, blamed):
    error = among(ranks, deltawire.DeltawireError(text, "Mismatch", suspect, 4))
    assert str(error) == told
    assert (error.code, error.suspect, error.last_committed_step) == ("Mismatch", blamed, 4)
