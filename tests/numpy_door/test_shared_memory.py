"""Ranks of one machine share memory, or say why not."""

import resource
from pathlib import Path

import deltawire
import numpy as np
import pytest
from rank_threads import in_threads

LIMIT = resource.RLIMIT_FSIZE  # of files, and so of shared memory; Python ignores the signal


def is_mapped() -> bool:
    return "memfd:deltawire" in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_system_that_gives_none_is_said_in_the_log(
    is_allowed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    mapped: list[bool] = []

    def run(rank: int, address: str) -> None:
        with deltawire.Session(
            "fp32", rank=rank, world_size=2, address=address, token="t" * 16
        ) as session:
            values = np.full(1000, rank, np.float32)
            session.all_reduce({"x": values})
            assert (values == 0.5).all()
            mapped.append(is_mapped())

    before = resource.getrlimit(LIMIT)
    if not is_allowed:
        resource.setrlimit(LIMIT, (4096, before[1]))
    try:
        in_threads(run, 2, seconds=60)
    finally:
        resource.setrlimit(LIMIT, before)
    assert mapped == [is_allowed] * 2
    said = [each.message for each in caplog.records if "shares no memory" in each.message]
    assert len(said) == (0 if is_allowed else 2)
    assert is_allowed or any("the system gives none (File too large)" in each for each in said)
