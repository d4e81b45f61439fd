"""`lab.probes.width`: what its table is made of."""

import deltawire
import numpy as np
import pytest

from lab.probes import width


def test_steps_of_one_rank() -> None:
    with deltawire.Session("direct(3lc)", rank=0, world_size=1) as session:
        for values in (np.ones(1000, np.float32), np.ones(1, np.float32)):
            seconds, used = width.take_steps(session, values, 3)
            assert len(seconds) == 3 and min(seconds) > 0 and used >= 0
        assert session.steps == 8


def test_a_row_has_the_worst_rank_and_the_sum_of_all() -> None:
    first = (0.5, 7, 2 << 20, [0.1, 0.3, 0.2], 0.01, [0.002], 0.001)
    second = (1.5, 6, 3 << 20, [9.0, 9.0, 9.0], 0.02, [9.0], 0.004)
    text = width.row(2, "fp32", [first, second])
    assert text == "| 2 | `fp32` | 1.50 | 7 | 3.0 | 200 | 30.0 | 2.0 | 5.00 |"


@pytest.mark.parametrize("given", [["--ranks", "1"], ["--steps", "0"]])
def test_what_it_does_not_measure(given: list[str], capsys) -> None:
    with pytest.raises(SystemExit):
        width.parse(given)
    assert "at least" in capsys.readouterr().err
