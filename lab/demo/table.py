"""The results as a table, on the terminal and in the report."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from lab.demo.settings import Settings
from lab.links import link_in_words

_WIDE = 100  # columns for everything; narrower terminals get the table without the parts of a step
_PARTS = ("compute_ms", "encode_ms", "exchange_ms", "decode_ms")
_NUMBERS = (
    ("ms_per_step", "ms per step", "{:.1f}"),
    ("compute_ms", "com- pute", "{:.1f}"),
    ("encode_ms", "en- code", "{:.2f}"),
    ("exchange_ms", "ex- change", "{:.1f}"),
    ("decode_ms", "de- code", "{:.2f}"),
    ("wire_mb_per_rank", "MB sent", "3 digits"),
    ("times_smaller", "times smaller", "{:.1f}"),
    ("bits_per_value", "bits per value", "{:.2f}"),
    ("times_faster", "times faster", "{:.2f}"),
)


def columns(with_parts: bool = True) -> list[str]:
    """The heads, in the order of `cells_of`."""
    numbers = [head for key, head, _ in _NUMBERS if with_parts or key not in _PARTS]
    return ["method", "accu- racy", *numbers, "than plain", "bit- equal"]


def cells_of(row: dict, with_parts: bool = True) -> list[str]:
    """A row that did not fail, as text."""
    numbers = [
        _number(row[key], form) for key, _, form in _NUMBERS if with_parts or key not in _PARTS
    ]
    return [
        row["detail"]["label"],
        f"{100 * row['accuracy']:.2f} %",
        *numbers,
        _number(row["detail"]["times_faster_than_plain"], "{:.2f}"),
        "yes" if row["bit_equal"] else "NO",
    ]


def print_table(rows: list[dict], settings: Settings, console: Console | None = None) -> None:
    """All rows on the terminal."""
    console = console or Console()
    if not console.is_terminal:
        console.width = _WIDE  # a log has no edge
    with_parts = console.width >= _WIDE
    table = Table(
        title=title_of(settings),
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 0),
    )
    for index, head in enumerate(columns(with_parts)):
        lines = head.replace(" ", "\n")
        table.add_column(lines, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        if row["failed"] is not None:
            table.add_row(row["detail"]["label"], "failed", style="red")
        else:
            table.add_row(*cells_of(row, with_parts), style=None if row["bit_equal"] else "red")
    console.print(table)


def title_of(settings: Settings) -> str:
    """What was trained, on how many ranks, over which link."""
    link = link_in_words(settings.link)
    place = " between network namespaces" if settings.namespaces else ""
    return (
        f"LeNet5, {settings.ranks} ranks x batch {settings.batch}, {settings.steps} steps, over "
        f"{link}" + place
    )


def _number(value: float | None, form: str) -> str:
    if value is None:
        return "-"
    if form == "3 digits":  # megabytes: from thousandths to thousands
        form = "{:,.0f}" if value >= 100 else "{:.1f}" if value >= 10 else "{:.2f}"
    return form.format(value)
