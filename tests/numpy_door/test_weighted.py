"""Means in which each rank counts by its weight."""

import deltawire
import numpy as np
import pytest
from rank_threads import in_threads

SECRET = "a secret of the tests, of no special length"
ELEMENTS = 3000


def on_ranks(weights: list, more: dict) -> list[np.ndarray]:
    """Each rank's array after two steps of it with these weights."""
    found: list = [None] * len(weights)

    def run(rank: int, address: str) -> None:
        values = gradient(rank)
        with deltawire.Session(
            "fp32", rank=rank, world_size=len(weights), address=address, token=SECRET, **more
        ) as session:
            for _ in range(2):
                values = gradient(rank)
                try:
                    session.all_reduce({"x": values}, weight=weights[rank])
                except deltawire.DeltawireError as error:
                    found[rank] = error, values
                    return
        found[rank] = values

    in_threads(run, len(weights), 60)
    return found


def gradient(rank: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(ELEMENTS).astype(np.float32)


@pytest.mark.parametrize("more", [{}, {"elastic": True}])
def test_ranks_count_by_their_weight(more) -> None:
    found = on_ranks([1, 0, 2.5], more)
    expected = (gradient(0).astype(np.float64) + 2.5 * gradient(2)) / 3.5
    assert all((each == found[0]).all() for each in found)
    np.testing.assert_allclose(found[0], expected, atol=1e-6)


@pytest.mark.parametrize("more", [{}, {"elastic": True}])
def test_weights_of_nothing_leave_the_plain_mean(more) -> None:
    found = on_ranks([0, 0], more)
    plain = on_ranks([None, None], more)
    assert (found[0] == plain[0]).all() and (found[1] == plain[1]).all() and plain[0].any()


def test_who_gives_no_weight_differs_from_who_does() -> None:
    for rank, (error, values) in enumerate(on_ranks([1.0, None], {"timeout": 5.0})):
        assert error.code == "Mismatch", error
        assert (values == gradient(rank)).all()  # untouched


def test_what_is_no_weight_is_refused() -> None:
    with deltawire.Session("fp32", rank=0, world_size=1) as session:
        for weight in (-1, float("nan"), 1e39, True, "2"):
            with pytest.raises(deltawire.InvalidArgumentError, match="weight="):
                session.all_reduce({"x": gradient(0)}, weight=weight)
    with (
        deltawire.Session("3lc", rank=0, world_size=1, min_elements=1) as session,
        pytest.raises(deltawire.InvalidArgumentError, match="min_elements=2"),
    ):
        session.all_reduce({"x": gradient(0)}, weight=1)
