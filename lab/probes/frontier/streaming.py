"""The page's table that takes Streaming DiLoCo apart: what each part costs in loss, and what it
asks of a link."""

from lab.probes.frontier.results import Row
from lab.probes.frontier.times import Line, Times
from lab.probes.local_rounds.methods import STREAMING

WHOLE = ("diloco", "streaming-fp4")  # what the parts are compared with
ABOUT = """What the parts of Streaming DiLoCo cost: fragments, the overlap of tau steps, what is
    kept of a worker's own weights where a result is applied (alpha; "on top": all that it has moved
    since), and `fp4`. kB are what a worker sends in one exchange, measured; "hides it" is the rate
    at which that takes exactly the steps of overlap, without latency; stalled are the steps that
    could be computed while training waits, in each round, computed as the times above."""


def is_part(row: Row) -> bool:
    """Whether a row belongs in this table alone."""
    return row.name in STREAMING


def table(rows: list[Row], times: Times, lines: list[Line]) -> str | None:
    """Markdown; None without any of the parts."""
    if not any(map(is_part, rows)):
        return None
    shown = [row for row in rows if is_part(row) or row.name in WHOLE]
    against = next((row.loss for row in shown if row.name == "diloco"), None)
    rates = [f"stalled at {line.mbit:g} Mbit/s" for line in lines]
    head = ("method", "codec", "steps a round", "loss", "to DiLoCo", "kB at once", "hides it")
    made = ["| " + " | ".join((*head, *rates)) + " |"]
    made.append("|---|---|" + "---:|" * (len(head) - 2 + len(rates)))
    for row in shown:
        at_once = row.bytes / (row.rounds * row.method.fragments)
        hides = times.hiding_mbit(row, at_once)
        cells = [
            row.method.words,
            f"`{row.method.spec}`",
            str(row.steps),
            f"{row.loss:.3f}",
            "-" if against is None else f"{100 * (row.loss / against - 1):+.1f} %",
            f"{at_once / 1e3:,.0f}",
            "-" if hides is None else f"{hides:.3g} Mbit/s",
            *(f"{times.stalled_steps(row, line):.1f}" for line in lines),
        ]
        made.append("| " + " | ".join(cells) + " |")
    return "\n".join(made)
