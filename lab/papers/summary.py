"""All papers' tables on one page: how many of their numbers are reached, and why the others are
not."""

from lab.command.markdown import wrapped
from lab.papers.declaration import Table
from lab.papers.page import Page, Verdict, seeds_in_words

_HEAD = "| paper | table or figure | here | numbers | reached | near | missed | verdict |"
_INTRODUCTION = (
    "The tables and figures of four papers, made again by deltawire. A number is *reached* if the "
    "median over our seeds is at least as good as the paper's, or the paper's lies within their "
    "spread, and *near* within a tenth of it, unless the table says otherwise. *Explained* means "
    "that the section names the cause of what is missed, from an experiment; *open*, that it does "
    "not. This page is made by `python -m lab.papers page all` from the results next to it "
    "([how to run them](../papers.md))."
)


def summary(pages: list[Page]) -> str:
    """The Markdown, with the papers' rows in the order of their pages."""
    rows = [_HEAD, "|---|---|---|" + "---:|" * 4 + "---|"]
    for page in pages:
        rows += [_row(page, table) for table in page.paper.tables if table.rows]
    return "\n\n".join(["# The papers' numbers, and ours", wrapped(_INTRODUCTION), "\n".join(rows)])


def _row(page: Page, table: Table) -> str:
    name = page.paper.name
    number, _, about = table.title.partition(": ")
    link = f"[{number}]({name}.md#{_anchor(table.title)}): {about}"
    if not page.is_run(table):
        return f"| {name} | {link} | not run yet | | | | | |"
    scales = "; ".join(
        f"`{scale}`, {seeds_in_words(counts)}" for scale, counts in page.scales(table).items()
    )
    found = page.verdict(table)
    missed = found.count - found.reached - found.near
    counts = (found.count, found.reached, found.near, missed)
    numbers = " | ".join(map(str, counts)) if found.count else " | | | "
    return f"| {name} | {link} | {scales} | {numbers} | {_judged(found, table)} |"


def _judged(found: Verdict, table: Table) -> str:
    """ "reached", "explained", "open", or that there is nothing to compare with."""
    if found.count == 0:
        return "scales differ too much" if found.shown else "no numbers in the paper's text"
    if not found.missed and not found.absent:
        return "reached" if not found.near else "reached or near"
    return "explained" if table.because and not found.absent else "open"


def _anchor(title: str) -> str:
    """A heading's anchor in the documentation."""
    kept = (each for each in title.lower() if each.isalnum() or each in " -")
    return "".join(kept).replace(" ", "-")
