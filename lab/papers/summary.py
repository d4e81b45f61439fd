"""All papers' tables on one page: how many of their numbers are reached, and why the others are
not."""

from collections.abc import Iterator

from lab.command import markdown
from lab.command.markdown import wrapped
from lab.papers.page import Page, Verdict, seeds_in_words

_HEAD = ("paper", "table or figure", "here", "verdict")
_COUNTS = ("numbers", "reached", "near", "explained", "open", "absent")
_NOTHING = ("",) * len(_COUNTS)
_INTRODUCTION = (
    "The tables and figures of four papers, made again by deltawire. A number is *reached* if the "
    "median over our seeds is at least as good as the paper's, or the paper's lies within their "
    "spread, and *near* within a tenth of it, unless the table says otherwise. A missed one is "
    "*explained* if runs show why, which its section names and the results next to it have; all "
    "others are *open*, and so is a table with one. This page is made by `python -m lab.papers "
    "page all` from those results ([how to run them](../papers.md))."
)


def summary(pages: list[Page]) -> str:
    """The Markdown, with the papers' rows in the order of their pages, and their sum."""
    rows = markdown.table((*_HEAD, *_COUNTS), _rows(pages), len(_HEAD))
    return "\n\n".join(["# The papers' numbers, and ours", wrapped(_INTRODUCTION), rows])


def _rows(pages: list[Page]) -> Iterator[list[str]]:
    sums = [0] * len(_COUNTS)
    for page in pages:
        name = page.paper.name
        for table in page.paper.tables:
            if not table.rows or table.ours:
                continue
            number, _, about = table.title.partition(": ")
            kept = "".join(each for each in table.title.lower() if each.isalnum() or each in " -")
            link = f"[{number}]({name}.md#{kept.replace(' ', '-')}): {about}"
            if not page.is_run(table):
                yield [name, link, "not run yet", "", *_NOTHING]
                continue
            found = page.verdict(table)
            sums = list(map(sum, zip(sums, found.counts(), strict=True)))
            counts = map(str, found.counts()) if found.count else _NOTHING
            scales = "; ".join(
                f"`{scale}`, {seeds_in_words(each)}" for scale, each in page.scales(table).items()
            )
            yield [name, link, scales, _judged(found), *counts]
    yield ["all", "", "", "", *map(str, sums)]


def _judged(found: Verdict) -> str:
    """ "reached", "explained", "open", or that there is nothing to compare with."""
    if found.count == 0:
        return "scales differ too much" if found.shown else "no numbers in the paper's text"
    if found.open or found.absent:
        return "open"
    if found.explained:
        return "explained"
    return "reached or near" if found.near else "reached"
