"""The report's plots."""

import pytest

from lab.demo import plots


def a_row(number: int, label: str | None = None, spread: float = 0.0, failed: str | None = None):
    curve = [
        {
            **{"accuracy": accuracy, "accuracy_range": [accuracy - spread, accuracy + spread]},
            **{"seconds": 10.0 * accuracy, "wire_mb": 3.0 * accuracy},
        }
        for accuracy in (0.1, 0.5, 0.8)
    ]
    return {
        "method": f"method-{number}",
        "accuracy": 0.8,
        "failed": failed,
        "ms_per_step": 30.0,
        "ms_per_step_range": [30.0 - 40 * spread, 30.0 + 40 * spread],
        **dict.fromkeys(("compute_ms", "encode_ms", "exchange_ms", "decode_ms"), 7.0),
        "detail": {
            "label": label or f"row {number}",
            "curve": curve,
            "repeats": [{}] * (2 if spread else 1),
        },
    }


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list:
    """The figures of every `draw_plots`, laid out and still open."""
    figures = []
    save = plots.to_svg

    def keep(figure) -> str:
        monkeypatch.setattr(plots.plt, "close", lambda _: None)
        text = save(figure)
        figures.append(figure)
        return text

    monkeypatch.setattr(plots, "to_svg", keep)
    return figures


def test_every_row_that_lived_has_its_curve_and_its_bar():
    made = plots.draw_plots([a_row(0), a_row(1, failed="lost"), a_row(2)])
    assert sorted(made) == ["accuracy-bytes", "accuracy-time", "step-parts"]
    for svg in made.values():
        assert "row 0" in svg and "row 2" in svg
        assert "row 1" not in svg


def test_several_trainings_show_their_spread(drawn: list):
    made = plots.draw_plots([a_row(0, spread=0.05)])
    (band,) = drawn[0].axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(0.05) and heights.max() == pytest.approx(0.85)
    assert "row 0: 30 ms (28-32)" in made["step-parts"]
    assert "row 0: 30 ms -->" in plots.draw_plots([a_row(0)])["step-parts"]


@pytest.mark.parametrize(
    "label", ["SBC p=1%, 10 steps", "direct(conv* size>100: 3lc:s=1.75, *.bias: fp32, rest int8)"]
)
def test_a_phone_shows_all_words_large_enough(drawn: list, label: str):
    plots.draw_plots([a_row(number, label, spread=0.05) for number in range(9)])
    phone = 320 / 72  # pixels for the width of a card on it, by points of an inch
    for figure in drawn:
        axes = figure.axes[0]
        (legend,) = figure.legends
        texts = [*axes.texts, *legend.get_texts(), axes.title, axes.xaxis.label, axes.yaxis.label]
        for text in filter(lambda text: text.get_text(), texts):
            extent = text.get_window_extent()
            assert extent.x0 >= 0 and extent.x1 <= figure.bbox.x1, text
            assert text.get_fontsize() * phone / figure.get_figwidth() >= 10, text
        assert legend.get_window_extent().y1 <= axes.xaxis.label.get_window_extent().y0


def test_no_two_rows_look_alike():
    assert len({plots.look_of(index) for index in range(40)}) == 40


@pytest.mark.parametrize("rows", [[], [a_row(0, failed="lost")]])
def test_nothing_to_draw_is_drawn_empty(rows: list[dict]):
    assert all("<svg" in svg for svg in plots.draw_plots(rows).values())
