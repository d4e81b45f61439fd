"""Every table of figures has, in its section or in the lead of one above it, the command that made
it, or the commit that has it: figures that nothing can write grow stale. And it has the commit or
the date of that run, unless a test or `make check` compares it with what the command says now."""

import re
from pathlib import Path

import pages

LINE = re.compile(r"\|[-:| ]+\|")
FIGURE = re.compile(r"\**[~<>−–-]?\d[\d.,]*")
COMMAND = re.compile(
    r"python3? -m lab\.\w|\bcoding --|\bbench/\w|\b(?:scripts|examples|tests)/[\w/-]+\.\w+"
    r"|\bdeltawire (?:encode|compare|plan|patch|trace|train)\b|\bmake [a-z]+|--gtest_filter"
    r"|<!-- (?:rows of|codecs|compared|demo|block: )|`lab\.\w|\bcommit [0-9a-f]{8}\b"
    r"|\bdeltawire_simulate --|in the history: "
)
WHEN = re.compile(
    r"\b(?=\d*[a-f])[0-9a-f]{8}\b|`\d{8}`|\b20\d\d-\d\d-\d\d\b"
    r"|<!-- (?:rows of|codecs|compared|demo|block: )"  # tests, or make check, compare them
    r"|[Tt]his page is made by `|makes the page from"  # so do tests, with the results next to it
)
# Heads of tables whose numbers are chosen or specified, not measured.
SPECIFIED = ["parameter", "name", "format", "request", "reply", "setting", "mode"]
SPECIFIED += ["T", "symbol", "higher bit"]


def tables(lines: list[str]):
    """(index of the head, cells of the rows without their first) of each table."""
    for at, line in enumerate(lines[1:]):
        if LINE.fullmatch(line) and lines[at].startswith("|"):
            rows = []
            for row in lines[at + 2 :]:
                if not row.startswith("|"):
                    break
                rows += [cell.strip() for cell in row.strip("|").split(" | ")[1:]]
            yield at, rows


def is_of_figures(head: str, cells: list[str]) -> bool:
    figures = sum(bool(FIGURE.match(cell)) for cell in cells)
    return figures >= max(4, 0.3 * len(cells)) and head.strip("| ").split(" |")[0] not in SPECIFIED


def around(lines: list[str], at: int) -> str:
    """The table's section, and the leads of those that it is a part of."""
    heads = [
        (number, len(found[0]))
        for number, line in enumerate(lines)
        if (found := re.match("#+(?= )", line))
    ]
    heads.append((len(lines), 0))
    text, level = "", 7
    for (begin, own), (end, _) in reversed(list(zip(heads, heads[1:], strict=False))):
        if begin < at and own < level:
            text, level = "\n".join(lines[begin:end]) + text, own
    return text


def test_tables_of_figures_name_their_command():
    found, lacking, undated = 0, [], []
    for page in pages.all_pages():
        lines = Path(page).read_text().splitlines()
        for at, cells in tables(lines):
            if is_of_figures(lines[at], cells):
                found += 1
                place = f"{page.relative_to(pages.ROOT)}:{at + 1}: {lines[at]}"
                if not COMMAND.search(around(lines, at)):
                    lacking.append(place)
                if not WHEN.search(around(lines, at)):
                    undated.append(place)
    assert found > 150
    assert not lacking, "say which command makes these figures:\n" + "\n".join(lacking)
    assert not undated, "say at which commit, or when, these were measured:\n" + "\n".join(undated)
