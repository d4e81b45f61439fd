"""The pictures: the report's plots, and that every one in docs can be read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.legend import Legend
from pictures import faults

from lab.command.paths import REPOSITORY
from lab.demo import plots
from lab.figures import style
from lab.figures.labels import label_points

PICTURES = sorted((REPOSITORY / "docs").rglob("*.svg"))


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
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list]:
    """The figures of every `draw_plots`, laid out and still open."""
    figures = []
    save, close = plots.to_svg, plots.plt.close

    def keep(figure) -> str:
        monkeypatch.setattr(plots.plt, "close", lambda _: None)
        text = save(figure)
        figures.append(figure)
        return text

    monkeypatch.setattr(plots, "to_svg", keep)
    yield figures
    close("all")


def test_every_row_that_lived_has_its_curve_and_its_bar(drawn: list):
    made = plots.draw_plots([a_row(0), a_row(1, failed="lost"), a_row(2)])
    assert not drawn[0].legends and legend_of(drawn[0]), "a free corner takes it"
    assert sorted(made) == ["accuracy-bytes", "accuracy-time", "step-parts"]
    for svg in made.values():
        assert "row 0" in svg and "row 2" in svg
        assert "row 1" not in svg
    assert "row 0: 30 ms -->" in made["step-parts"], "of one training there is no range"


def test_several_trainings_show_their_spread(drawn: list):
    made = plots.draw_plots([a_row(0, spread=0.05)])
    (band,) = drawn[0].axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(0.05) and heights.max() == pytest.approx(0.85)
    assert "row 0: 30 ms (28-32)" in made["step-parts"]


LABELS = ["SBC p=1%, 10 steps", "direct(w: topk:k=1%,values=2bit,positions=auto,chunk=64,warmup=8)"]


def legend_of(figure):
    """The only one, inside the axes or below them."""
    (legend,) = [*figure.legends, *figure.axes[0].findobj(Legend)]
    return legend


@pytest.mark.parametrize(
    ("label", "count"),
    [("short", 3), *(pytest.param(label, 9, marks=pytest.mark.thorough) for label in LABELS)],
)
def test_a_phone_shows_all_words_large_enough_and_uncovered(drawn: list, label: str, count: int):
    made = plots.draw_plots([a_row(number, label, spread=0.05) for number in range(count)])
    assert [faults(svg) for svg in made.values()] == [[]] * 3
    phone = 320 / 72  # pixels for the width of a card on it, by points of an inch
    for figure in drawn:
        axes, legend = figure.axes[0], legend_of(figure)
        texts = [*axes.texts, *legend.get_texts(), axes.title, axes.xaxis.label, axes.yaxis.label]
        for text in filter(lambda text: text.get_text(), texts):
            assert text.get_fontsize() * phone / figure.get_figwidth() >= 10, text
        check_that_it_covers_nothing(axes, legend.get_window_extent())
    lines = "\n".join(text.get_text() for text in legend_of(drawn[0]).get_texts()).split("\n")
    assert all(line[-1] == "," or f"{line.split()[-1]} " in f"{label} " for line in lines)


def check_that_it_covers_nothing(axes, extent) -> None:
    if extent.y1 <= axes.xaxis.label.get_window_extent().y0:
        return  # it stands below the plot
    assert axes.bbox.contains(*extent.min) and axes.bbox.contains(*extent.max)
    for line in axes.lines:
        for x, y in line.get_transform().transform(line.get_xydata()):
            assert not extent.contains(x, y)
    for thing in (*axes.texts, *axes.patches):
        assert not thing.get_window_extent().overlaps(extent)


def test_the_parts_of_a_step_add_up_to_it():
    assert plots.step_parts(a_row(0)) == (7.0, 23.0)
    by_chance = a_row(0) | {"compute_ms": 31.0}
    assert plots.step_parts(by_chance) == (30.0, 0.0)


def test_step_bars_end_with_the_step(drawn: list):
    rows = [a_row(0), a_row(1)]
    rows[1]["ms_per_step"], rows[1]["exchange_ms"] = 90.0, 60.0
    plots.draw_plots(rows)
    bars = drawn[2].axes[0].patches
    for place, row in enumerate(rows):
        for offset in (0, 0.23):  # the step, and its exchange
            height = place + offset
            own = [bar for bar in bars if abs(bar.get_y() + bar.get_height() / 2 - height) < 0.01]
            assert max(bar.get_x() + bar.get_width() for bar in own) == pytest.approx(
                row["ms_per_step"]
            )


def test_the_accuracy_axis_covers_the_curves():
    row = a_row(0)
    row["detail"]["curve"] = [
        {"accuracy_range": [accuracy, accuracy]}
        for accuracy in (0.1, 0.3, 0.76, 0.8, 0.82, 0.83, 0.84, 0.84, 0.84)
    ]
    low, high = plots.accuracy_limits([row])
    assert low == pytest.approx(0.75) and 0.84 < high < 0.86
    row["detail"]["curve"][-1]["accuracy_range"] = [0.2, 0.99]  # the spread is shown whole
    low, high = plots.accuracy_limits([row])
    assert low == pytest.approx(0.1) and high == 1.0
    assert plots.accuracy_limits([]) == (0.0, 1.0)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_in_docs_can_be_read(picture: Path):
    assert not faults(picture.read_text())


@pytest.mark.parametrize(
    ("inside", "fault"),
    [
        ("<rect fill='#fff'/><text x='90' y='20'>wide</text>", "'wide' ends outside"),
        ("<rect fill='#fff'/><text x='9' y='20'>a</text><text x='9' y='24'>b</text>", "'b' cover"),
        ("<text x='9' y='20'>words</text><rect fill='#fff'/>", ""),
        ("<path d='M0 0H99V9z'/><text x='9' y='20'>words</text>", "no background"),
        ("<rect fill='#fff'/><g transform='translate(95 5)'><path d='M0 0L9 9'/></g>", "a line"),
    ],
)
def test_a_picture_that_can_not_be_read_is_found(inside: str, fault: str):
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 100 50'>{inside}</svg>"
    found = faults(svg)
    assert len(found) == bool(fault) and fault in "".join(found)


def test_labels_of_points_at_one_place_stand_apart():
    with plots.plt.rc_context(style.STYLE):
        figure, axes = plots.plt.subplots(figsize=(style.WIDTH, style.PLOT_HEIGHT))
        near = [(1 + 0.01 * number, 1.0) for number in range(12)]
        axes.plot(*zip((0, 0), *near, (9, 9), strict=True))
        label_points(axes, [(*at, f"name {number}", "#111111") for number, at in enumerate(near)])
        svg = style.to_svg(figure)
    assert sum(bool(text.get_text()) for text in axes.texts) == len(near) and not faults(svg)


def test_no_two_rows_look_alike():
    assert len({style.look_of(index) for index in range(40)}) == 40


@pytest.mark.parametrize("rows", [[], [a_row(0, failed="lost")]])
def test_nothing_to_draw_is_drawn_empty(rows: list[dict]):
    assert all("<svg" in svg for svg in plots.draw_plots(rows).values())
