"""The frontier page: what is best, computed times, and a page from JSON alone."""

import json
from pathlib import Path

import pytest
from refusals import raised

from lab.data.images import DataError
from lab.probes.frontier import __main__ as program
from lab.probes.frontier import page as pages
from lab.probes.frontier import results
from lab.probes.frontier.page import streaming_table
from lab.probes.frontier.results import Row, cheapest, first_at, frontier
from lab.probes.frontier.times import Line, Times

ELEMENTS = 502_848  # of the network of size small
STEP = 0.010
SLOW = Line(1.0, 0.0)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "results"


def row(name: str, loss: float, sent: float = 1e6, bits: float = 32.0, steps: int = 5) -> Row:
    curve = [(5, sent / 2, loss + 0.5), (10, sent, loss)]
    return Row(name, 4, 10, steps, (loss,), sent, bits, curve)


def test_the_frontier_is_what_none_beats() -> None:
    cheap, good, beaten, best = row("sbc", 3, 1), row("diloco", 2, 5), row("local", 2.5, 6), None
    best = row("ddp", 1.5, 9)
    twin = row("sparseloco", 3, 1)  # as good and as cheap as the first
    given = [best, beaten, good, cheap, twin]
    assert frontier(given, lambda each: each.bytes) == [cheap, good, best]


def test_the_cheapest_way_to_a_loss_is_found_on_the_curves() -> None:
    early, late = row("ddp", 1.5, 8), row("sbc", 1.9, 6)

    def cost(_: Row, __: int, sent: float) -> float:
        return sent

    assert first_at(early, 2.0, cost) == 4 and first_at(late, 2.0, cost) == 6
    assert cheapest([late, early], 2.0, cost) == (early, 4)
    assert cheapest([late, early], 1.9, cost) == (late, 6)
    assert cheapest([late, early], 1.4, cost) is None


def seconds_of(bits: float, copies: float) -> float:
    """On a link of 1 Mbit/s."""
    return bits * ELEMENTS * copies / 1e6


@pytest.mark.parametrize(
    ("name", "bits", "copies"), [("diloco", 32.0, 1.5), ("diloco-3lc", 1.0, 1.5), ("sbc", 0.5, 3.0)]
)
def test_a_round_waits_for_its_whole_exchange(name: str, bits: float, copies: float) -> None:
    times = Times("small", STEP)
    due = 10 * (5 * STEP + seconds_of(bits, copies))
    assert times.after(row(name, 2, bits=bits), 10, SLOW) == pytest.approx(due, rel=0.03)


def test_a_round_of_ddp_is_as_many_exchanges_as_steps() -> None:
    times = Times("small", STEP)
    for name, bits in (("ddp", 32.0), ("ddp-3lc", 16.0)):
        due = 10 * 5 * (STEP + seconds_of(bits, 1.5))
        assert times.after(row(name, 2, bits=bits), 10, SLOW) == pytest.approx(due, rel=0.05)


def test_overlap_hides_what_its_steps_can() -> None:
    """Three fragments: at 15 steps a round the next exchange comes after 5, at 6 after 2."""
    times = Times("small", STEP)
    whole = seconds_of(4.0, 1.5)
    for steps, hidden in ((15, 5 * STEP), (6, 2 * STEP)):
        given = row("streaming-fp4", 2, bits=4.0, steps=steps)
        for mbit in (1.0, 100.0):
            waited = max(0.0, whole / mbit / 3 - hidden)
            due = steps * STEP + 3 * waited
            assert times.after(given, 1, Line(mbit, 0.0)) == pytest.approx(due, rel=0.03)


def test_latency_counts_for_each_exchange() -> None:
    times = Times("small", STEP)
    given = row("diloco", 2)
    far = times.after(given, 1, Line(1.0, 100.0)) - times.after(given, 1, SLOW)
    assert far == pytest.approx(0.2, rel=0.05)  # there and back


def test_streaming_is_taken_apart_in_a_table_of_its_own() -> None:
    """Each fragment's exchange is a third; 5 steps of 10 ms hide it from 5 kB in 50 ms on."""
    whole, alone = row("diloco", 2.0, 3e5), row("streaming-fragments", 2.1, 3e5, steps=15)
    hidden = row("streaming-5-0.5", 2.2, 3e5, steps=15)
    others = [whole, row("sbc", 2.5), alone, hidden]
    lines = streaming_table(others, Times("small", STEP), [SLOW]).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines[2:]]
    assert [each[0] for each in cells] == [each.method.words for each in (whole, alone, hidden)]
    assert [each[4:7] for each in cells] == [
        *(["+0.0 %", "30", "-"], ["+5.0 %", "10", "-"], ["+10.0 %", "10", "1.6 Mbit/s"])
    ]
    waits = [float(each[7]) for each in cells]
    assert waits[0] == pytest.approx(seconds_of(32.0, 1.5) / STEP, rel=0.03)
    assert waits[2] == pytest.approx(waits[1] - 3 * 5, abs=0.2)
    assert streaming_table([whole], Times("small", STEP), [SLOW]) is None


def kept(rows: dict[int, list[Row]], seed: int = 1) -> dict:
    """As local_rounds writes them."""
    return {
        f"tiny 4x10x{steps} lr=0.003 every=5 cpu batch=2 bf16": {
            f"{each.name}, seed {seed}": {
                **{"method": each.name, "seed": seed, "loss": each.loss, "seconds": 4.2},
                **{"bytes": each.bytes, "bits": each.bits, "curve": each.curve},
                "parameters": ELEMENTS,
            }
            for each in own
        }
        for steps, own in rows.items()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    nan = row("sparseloco", float("nan"))
    given = {5: [row("ddp", 1.5, 9e6), row("diloco", 1.8, 2e6), row("sbc", 2.5, 3e6), nan]}
    (tmp_path / "rows.json").write_text(json.dumps(kept(given)))
    more = {5: [row("diloco-3lc", 1.9, 1e6, bits=1.0)]}
    (tmp_path / "more.json").write_text(json.dumps(kept(more)))
    return tmp_path


def test_a_page_from_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["--results", str(folder / "kept"), "--page", str(folder / "page.md")]
    add = ["--add", str(folder / "rows.json"), "--step-ms", "10", "--step-words", "a guess"]
    with monkeypatch.context() as undrawn:  # a figure takes seconds
        undrawn.setattr(pages, "points", lambda *_: "")
        assert program.main([*files, *add]) == 0
        assert program.main([*files, "--add", str(folder / "more.json")]) == 0
    text = (folder / "page.md").read_text()
    assert "## 0.5 million parameters, 50 steps" in text
    assert "takes 10 ms (a guess)" in text and "computed" in text
    assert "| DiLoCo | `direct(3lc)` | 5 | 1.900 | **1.00** |" in text
    assert "| SBC | `gather(sbc:p=1%)` | 5 | 2.500 | 3.00 |" in text, "DiLoCo beats it"
    assert "| SparseLoCo |" not in text, "it diverged"
    assert "Not run: local steps `direct(fp32)`, SparseLoCo `gather(sparseloco)`" in text
    assert "| 1.545 (lowest + 3%) | DDP fp32: 9.00 |" in text
    assert program.main(files) == 0
    assert (folder / "page.md").read_text() == text, "it follows from the files"
    for name in ("bytes", "1", "10", "100"):
        assert (folder / "page" / f"tiny-50-{name}.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.thorough
def test_seeds_are_medians(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(pages, "points", lambda *_: "")
    files = ["--results", str(folder / "kept"), "--page", str(folder / "page.md")]
    add = [*files, "--add", str(folder / "rows.json")]
    assert program.main(add) == 1
    assert "tiny.json is new: give --step-ms and --step-words, too" in capsys.readouterr().err
    assert program.main([*add, "--step-ms", "10", "--step-words", "a guess"]) == 0
    for seed, loss in ((3, 1.71), (2, 1.84)):
        (folder / "more.json").write_text(json.dumps(kept({5: [row("diloco", loss)]}, seed)))
        assert program.main([*files, "--add", str(folder / "more.json")]) == 0
    text = (folder / "page.md").read_text()
    assert "| DiLoCo | `direct(fp32)` | 5 | 1.800 (1.800, 1.840, 1.710) |" in text
    assert "| SBC | `gather(sbc:p=1%)` | 5 | 2.500 |" in text and "medians of seeds" in text


def test_what_is_refused(folder: Path, capsys: pytest.CaptureFixture) -> None:
    files = ["--results", str(folder / "kept"), "--page", str(folder / "page.md")]
    assert program.main(files) == 1
    assert "give --add" in capsys.readouterr().err
    (folder / "odd.json").write_text('{"huge": {}}')
    assert program.main([*files, "--add", str(folder / "odd.json")]) == 1
    assert "'huge' is no setting" in capsys.readouterr().err
    for bad in (
        ["--step-ms", "3"],
        ["--step-ms", "3", "--step-words", "a guess"],
        ["--add", "rows.json", "--step-ms", "0", "--step-words", "a guess"],
    ):
        assert raised(SystemExit, program.parse, bad).code == 2
    (folder / "tiny.json").write_text("[]")
    with pytest.raises(DataError, match=r"tiny\.json"):
        results.read(folder / "tiny.json")


@pytest.mark.thorough
def test_the_page_in_docs_is_that_of_its_files(tmp_path: Path) -> None:
    page = tmp_path / "frontier.md"
    assert program.main(["--results", str(DOCS / "frontier"), "--page", str(page)]) == 0
    assert page.read_text() == (DOCS / "frontier.md").read_text(), "python -m lab.probes.frontier"
