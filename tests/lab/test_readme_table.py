"""The demo's tables in README and docs/: what `lab.demo.readme` writes, nothing typed by hand."""

import copy
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from deltawire import _core  # noqa: E402

from lab.demo import (
    methods,  # noqa: E402
    readme,  # noqa: E402
)
from lab.demo.arguments import parse  # noqa: E402
from lab.demo.labels import own_optimizer  # noqa: E402
from lab.demo.output import in_words  # noqa: E402
from lab.demo.results import add_ratios, make_repeat, make_row  # noqa: E402


def results_of(repeats: int, real: bool = False) -> dict:
    """A made-up demo with all rows."""
    request = parse(["--repeats", str(repeats), f"--{'' if real else 'no-'}namespaces"])
    report = {
        **dict.fromkeys(("accuracy", "encode_ms", "exchange_ms", "decode_ms"), 0.85),
        **{"ms_per_step": 61.2, "compute_ms": 50.0, "digests": "d"},
        "parameters": "p",
        "points": [
            {"step": step, "seconds": step, "wire_mb": step, "accuracy": 0.5} for step in (0, 9)
        ],
    }
    sent = dict.fromkeys(methods.names(), 4e6) | {"3lc:s=1.00": 8e5}
    rows = [
        make_row(
            method,
            [
                make_repeat(seed, [report | {"bytes_sent": sent[method.name]}] * 4)
                for seed in request.settings.seeds
            ],
            request.settings,
        )
        for method in request.methods
    ]
    add_ratios(rows)
    return {
        "command": "python -m lab.demo" + f" --repeats {repeats}" * (repeats > 1),
        "settings": in_words(request),
        "machine": {"cores": 2},
        "warnings": [],
        "rows": rows,
    }


MARKED = "<!-- headline -->\n<!-- /headline -->\n<!-- demo -->\nold\n<!-- /demo -->\nafter\n"


def form(text: str) -> str:
    """The text without figures, line ends, options and the number of seeds."""
    text = re.sub(" ARGS='.*?'", "", " ".join(text.split()))
    return re.sub("#(, #)+", "#", re.sub(r"\d[\d.,]*\b", "#", text))


@pytest.mark.parametrize(("page", "marker"), readme.WRITERS)
def test_pages_have_the_form_that_the_command_writes(page: str, marker: str):
    (found,) = readme.block_in(marker).findall((readme.REPOSITORY / page).read_text())
    write = readme.WRITERS[page, marker]
    forms = [form(write(results_of(repeats, real))) for repeats in (1, 3) for real in (0, 1)]
    assert form(found).startswith(tuple(forms))


def test_readmes_headline_is_a_row_of_its_table():
    text = (readme.REPOSITORY / "README.md").read_text()
    told, table = (readme.block_in(each).search(text)[0] for each in ("headline", "demo"))
    smaller, faster, accuracy = re.match(
        r"\*\*(\S+) times fewer bytes, steps (\S+) times as fast .*?, (\S+ %)", told, re.DOTALL
    ).groups()
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if " % | " in line]
    (row,) = [row for row in rows if row[3] == smaller and row[4].startswith(accuracy)]
    plain = float(re.search(r"plain|takes ([\d.]+)", table)[1])
    assert f"{plain / float(row[5].split()[0]):.2g}" == faster


def test_readmes_rows_are_those_of_the_other_page():
    """One run writes both."""
    blocks = [
        readme.block_in("demo").search((readme.REPOSITORY / page).read_text())[0]
        for page in readme.PAGES
    ]
    short, whole = (
        {
            # The other page's names may say more: "`3lc/adamw`, optimizer's rule".
            (name := re.sub("`, .*", "`", line.split(" | ")[0])): {name, *line.split(" | ")[1:]}
            for line in text.splitlines()
            if " % " in line
        }
        for text in blocks
    )
    assert len(short) == len(readme.SHORT)
    for name, cells in short.items():
        assert len(cells & whole[name]) == 4, name  # accuracy, bytes, times smaller, the name
        assert any(cell.rstrip(" |") in whole[name] for cell in cells if cell.endswith("|")), name


def test_the_rows_have_the_optimizers_that_the_demo_gives_them():
    """So does every page that quotes the rows, or says how other settings diverge."""
    (found,) = readme.block_in("demo").findall(
        (readme.REPOSITORY / "docs/results/training.md").read_text()
    )
    settings = parse([]).settings
    cells = [line.split(" | ")[0].removeprefix("| ") for line in found.splitlines() if "%" in line]
    due = [f"`{row.name}`{own_optimizer(row, settings)}" for row in methods.METHODS[1:]]
    assert cells[1:] == due
    assert [own_optimizer(row, settings) for row in methods.METHODS if row.late] == [
        ", momentum 0, rate x 5"
    ]
    for page in ("results/training.md", "start/choose-a-codec.md"):
        text = " ".join((readme.REPOSITORY / "docs" / page).read_text().split())
        assert re.search("momentum 0,? (and|rate x) (5|five)", text), page
    late = [info.name for info in _core.registered_codecs() if info.late]
    assert len(late) == 7
    for codec in late:
        assert (
            f"`{codec}" in (readme.REPOSITORY / "docs" / "start" / "choose-a-codec.md").read_text()
        )


def test_figures_reach_readme_and_its_plot(tmp_path: Path):
    (tmp_path / readme.PLOT).parent.mkdir(parents=True)
    for name in readme.PAGES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(MARKED)
    results = results_of(3)
    results["rows"][4]["accuracy_range"] = [0.8412, 0.8622]
    readme.update(tmp_path, results)
    pages = [(tmp_path / name).read_text() for name in readme.PAGES]
    assert pages[0].startswith("<!-- headline -->\n**5.0 times fewer bytes, steps 1 times as fast")
    for page in pages:
        assert "<!-- demo -->\nWhat `make demo ARGS='--repeats 3'` showed" in page
        assert page.endswith("\n<!-- /demo -->\nafter\n")
        assert "50 to 50 ms" in " ".join(page.split())
        assert max(map(len, re.findall("^[^|\n]+$", page, re.MULTILINE))) <= 120
    assert "slow links | 0.80 MB | 5.0 | 85.0 % (84.1-86.2) | 61 (61-61) |\n" in pages[0]
    assert "PyTorch's own DDP (modelled) takes 61 (61-61) ms per step" in pages[0]
    assert "| `3lc:s=1.00` | 85.0 % (84.1-86.2) | 61 (61-61) | 0.80 MB | 5.0 | 0.0" in pages[1]
    assert "SBC p=1%, 10 steps" in (tmp_path / readme.PLOT).read_text()
    plain = next(row for row in results["rows"] if row["method"] == "plain")
    plain["detail"]["label"] = "plain DDP (real link)"
    writers = [write for (name, _), write in readme.WRITERS.items() if name == readme.PAGES[0]]
    page = "".join(write(results) for write in writers)
    assert "as plain DDP's, 85" in page and "own DDP takes 61" in page, "measured, as all rows are"


def test_an_incomplete_demo_is_refused(tmp_path: Path):
    whole = results_of(1)
    pages = [tmp_path / name for name in readme.PAGES]
    for page in pages:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(MARKED)
    for page in pages:
        page.write_text(MARKED.replace("/demo", "demo"))
        with pytest.raises(readme.NoDemo, match=f"{page.name} has no lines <!-- demo -->"):
            readme.update(tmp_path, whole)
        page.write_text(MARKED)
    busy = copy.deepcopy(whole) | {"warnings": ["the machine was busy: computing alone"]}
    with pytest.raises(readme.NoDemo, match="the machine was busy"):
        readme.update(tmp_path, busy)
    for change, reason in (
        (lambda rows: rows.pop(), "its rows are not those"),
        (lambda rows: rows[1].update(failed="rank 2 ended"), "fp32: rank 2 ended"),
        (lambda rows: rows[2].update(bit_equal=False), "bf16: the replicas differ"),
    ):
        spoilt = copy.deepcopy(whole)
        change(spoilt["rows"])
        with pytest.raises(readme.NoDemo, match=reason):
            readme.update(tmp_path, spoilt)
    for page in pages:
        assert page.read_text() == MARKED


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert readme.main([str(tmp_path / "results.json")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert readme.main(["--help"]) == 2
    assert "python -m lab.demo.readme" in capsys.readouterr().err
