"""The report's figures."""

import pytest

from lab import figures


def a_row(number: int, *, failed: str | None = None) -> dict:
    curve = [
        {"accuracy": accuracy, "seconds": 10.0 * accuracy, "wire_mb": 3.0 * accuracy}
        for accuracy in (0.1, 0.5, 0.8)
    ]
    return {
        "method": f"method-{number}",
        "accuracy": 0.8,
        "failed": failed,
        "ms_per_step": 30.0,
        **dict.fromkeys(("compute_ms", "encode_ms", "exchange_ms", "decode_ms"), 7.0),
        "detail": {"label": f"row {number}", "curve": curve},
    }


def test_every_row_that_lived_has_its_curve_and_its_bar():
    drawn = figures.draw_figures([a_row(0), a_row(1, failed="lost"), a_row(2)])
    assert sorted(drawn) == ["accuracy-bytes", "accuracy-time", "step-parts"]
    for svg in drawn.values():
        assert "row 0" in svg and "row 2" in svg
        assert "row 1" not in svg


def test_no_two_rows_look_alike():
    looks = {
        (colour, figures.marker_of(index))
        for index, (_, colour) in enumerate(figures.coloured([a_row(i) for i in range(40)]))
    }
    assert len(looks) == 40


@pytest.mark.parametrize("rows", [[], [a_row(0, failed="lost")]])
def test_nothing_to_draw_is_drawn_empty(rows: list[dict]):
    assert all("<svg" in svg for svg in figures.draw_figures(rows).values())
