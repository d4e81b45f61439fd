"""The tables of codecs in docs/ are what the registry and each spec.md say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("DELTAWIRE_BIN", str(ROOT / "build" / "release" / "deltawire"))
PAGES = (
    "docs/design/determinism.md",
    *(f"docs/reference/{name}.md" for name in ("algorithms", "compare", "errata", "format")),
)


def tables(root: Path, *options: str) -> subprocess.CompletedProcess:
    script = ROOT / "scripts" / "codec_tables.py"
    command = [sys.executable, script, "--binary", BINARY, "--root", root, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_columns_of_traces_that_are_not_there_stay() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    import codec_tables

    found = {"bits_per_value": 2, "relative_l2": 0.5, "feedback_relative_l2": 0.25}
    page = codec_tables.COMPARED["docs/reference/compare.md"]
    assert [name for name in page.inputs if "traces/" in name][0] == "tests/traces/lenet5-sgd"
    cells = page.row([found, None, None, found, found], ["1", "2", "3", "4", "5", "6"])
    assert cells == ["2.00; 0.5; 0.25", "2", "3", "2.00; 0.5; 0.25", "2.00; 0.5; 0.25", "6"]


COMPARED = ("src/codecs/fp4/spec.md", "src/codecs/qsgd/spec.md")  # the others take longer


def test_figures_of_this_tree_are_those_that_compare_finds() -> None:
    done = tables(ROOT, "--check", "--compared", *COMPARED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_stale_figure_is_named_and_mended(tree: Path) -> None:
    page = tree / COMPARED[0]
    fresh = page.read_text()
    edit(page, "| `blockint:bits=4` | 4.13 |", "| `blockint:bits=4` | 4.15 |")
    done = tables(tree, "--check", "--compared", COMPARED[0])
    assert done.returncode == 1
    assert done.stdout == f"{COMPARED[0]}: stale, run scripts/codec_tables.py --compared\n"
    assert tables(tree, "--compared", COMPARED[0]).returncode == 0
    assert page.read_text() == fresh


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The pages and specifications, to be spoilt."""
    specs = [path.relative_to(ROOT) for path in ROOT.glob("src/codecs/**/spec.md")]
    for name in (*PAGES, *specs):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


def test_this_tree_is_fresh() -> None:
    done = tables(ROOT, "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for line in (ROOT / page).read_text().splitlines():
            if "spec.md" not in line or not line.startswith("| "):
                continue
            target, _, anchor = line.split("](")[1].split(")")[0].partition("#")
            text = (ROOT / page).parent.joinpath(target).read_text()
            headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
            assert not anchor or anchor in [name.lower().replace(" ", "-") for name in headings]


def test_a_stale_page_is_named_and_mended(tree: Path) -> None:
    fresh = (tree / "docs" / "reference" / "format.md").read_text()
    edit(tree / "docs" / "reference" / "format.md", "| 7 | [`int8`]", "| 8 | [`int8`]")
    done = tables(tree, "--check")
    assert done.returncode == 1
    assert done.stdout == "docs/reference/format.md: stale, run scripts/codec_tables.py\n"
    assert tables(tree).returncode == 0
    assert (tree / "docs" / "reference" / "format.md").read_text() == fresh


def test_what_spec_md_says_reaches_the_pages(tree: Path) -> None:
    spec = tree / "src" / "codecs" / "int8" / "spec.md"
    edit(spec, "| scalars | the step |", "| scalars | the stride |")
    edit(spec, "## The same bytes everywhere", "## Bytes")
    done = tables(tree, "--check")
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "docs/reference/format.md",
        "docs/design/determinism.md",
    ]


def test_a_codec_without_a_row_of_figures_is_named(tree: Path) -> None:
    page = tree / "docs" / "reference" / "compare.md"
    rows = page.read_text().splitlines(keepends=True)
    page.write_text("".join(row for row in rows if not row.startswith("| `zlib` | 2")))
    done = tables(tree, "--compared", "docs/reference/compare.md")
    assert (done.returncode, "no row of zlib" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        (
            "docs/reference/errata.md",
            *("<!-- /codecs -->", ""),
            ["docs/reference/errata.md", "<!-- codecs -->"],
        ),
        ("src/codecs/int8/spec.md", "| scalars | the step |\n", "", ["int8", "scalars"]),
        ("src/codecs/fp32/spec.md", "| loses | nothing |\n", "", ["fp32", "loses"]),
        ("src/codecs/fp32/spec.md", "Codec id 1.", "Codec id 99.", ["fp32", "1"]),
        ("src/codecs/fp32/spec.md", "Codec id 1.", "Codec 1.", ["fp32", "Codec id"]),
    ],
)
def test_what_is_missing_is_named(tree: Path, file: str, old: str, new: str, words: list) -> None:
    edit(tree / file, old, new)
    done = tables(tree)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and all(word in done.stderr for word in words), done.stderr
