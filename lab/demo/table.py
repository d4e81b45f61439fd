"""The results as a table, on the terminal and in the report."""

from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lab.demo.settings import Settings
from lab.ranks.links import link_in_words

_NO_EDGE = 200  # columns of a log


def _number(form: str, key: str) -> Callable[[dict], str]:
    def text(row: dict) -> str:
        return "-" if row[key] is None else form.format(row[key])

    return text


def megabytes(row: dict) -> str:
    """What a rank sent, with three digits: the numbers range from thousandths to thousands."""
    value = row["wire_mb_per_rank"]
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def accuracy_range(row: dict) -> str:
    """In percent, of the row's trainings."""
    low, high = row["accuracy_range"]
    return f"{100 * low:.1f}-{100 * high:.1f}"


def ms_range(row: dict) -> str:
    """Milliseconds per step, of the row's trainings."""
    low, high = row["ms_per_step_range"]
    return f"{low:.0f}-{high:.0f}"


_PARTS = {
    "com\u00adpute": _number("{:.1f}", "compute_ms"),
    "en\u00adcode": _number("{:.2f}", "encode_ms"),
    "ex\u00adchange": _number("{:.1f}", "exchange_ms"),
    "de\u00adcode": _number("{:.2f}", "decode_ms"),
}
_SPREAD = {"lowest- highest": accuracy_range, "fastest- slowest": ms_range}
_TIMES = {"ms per step", "fastest- slowest", "times faster", *_PARTS}
_COLUMNS = {
    "method": lambda row: row["detail"]["label"],
    "accu\u00adracy": lambda row: f"{100 * row['accuracy']:.2f} %",
    "lowest- highest": accuracy_range,
    "ms per step": _number("{:.1f}", "ms_per_step"),
    "fastest- slowest": ms_range,
    **_PARTS,
    "MB sent": megabytes,
    "times smaller": _number("{:.1f}", "times_smaller"),
    "bits per value": _number("{:.2f}", "bits_per_value"),
    "times faster": _number("{:.2f}", "times_faster"),
    "bit equal": lambda row: "yes" if row["bit_equal"] else "NO",
}


def columns(rows: list[dict], with_parts: bool = True) -> dict[str, Callable[[dict], str]]:
    """Head (with soft hyphens) -> text of a row that did not fail. The spread is left out where
    each row has one training, the parts of a step where there is no room for them, times where the
    machine was busy.
    """
    left_out = set() if with_parts else set(_PARTS)
    if all(row["ms_per_step"] is None for row in rows):
        left_out |= _TIMES
    if all(len(row["detail"]["repeats"]) == 1 for row in rows):
        left_out |= set(_SPREAD)
    return {head: text for head, text in _COLUMNS.items() if head not in left_out}


def print_table(rows: list[dict], settings: Settings, console: Console | None = None) -> None:
    """All rows on the terminal; without the parts of a step where they don't fit."""
    console = console or Console()
    if not console.is_terminal:
        console.width = _NO_EDGE
    table = _table(rows, settings, with_parts=True)
    unbounded = console.options.update(width=_NO_EDGE)
    if console.measure(table, options=unbounded).maximum > console.width:
        table = _table(rows, settings, with_parts=False)
    console.print(table)


def _table(rows: list[dict], settings: Settings, with_parts: bool) -> Table:
    table = Table(
        title=title_of(settings),
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 0),
    )
    shown = columns(rows, with_parts)
    for head in shown:
        is_name = head == "method"  # the one that may take several lines
        lines = head.replace("\u00ad", "-\n").replace(" ", "\n")
        justify = "left" if is_name else "right"
        table.add_column(lines, justify=justify, no_wrap=not is_name, overflow="fold")
    for row in rows:
        if row["failed"] is not None:
            table.add_row(row["detail"]["label"], "failed", style="red")
        else:
            cells = [text(row) for text in shown.values()]
            table.add_row(*cells, style=None if row["bit_equal"] else "red")
    return table


def title_of(settings: Settings) -> str:
    """What was trained, on how many ranks, over which link, from which seeds."""
    place = " between network namespaces" if settings.namespaces else ""
    return (
        f"{settings.workload.label}, {settings.ranks} ranks x batch {settings.batch}, "
        f"{settings.steps} steps, over "
        f"{link_in_words(settings.link)}{place}, {seeds_in_words(settings.seeds)}"
    )


def seeds_in_words(seeds: list[int]) -> str:
    """ "seed 1", or that the numbers are medians."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"medians of the seeds {', '.join(map(str, seeds))}"
