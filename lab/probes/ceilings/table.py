"""The cells as Markdown."""

from lab.probes.ceilings.contestants import AUTO, COMPUTE, PLAIN

_HEAD = (
    "network, link",
    "method",
    "ms a step (deciles)",
    "times plain's speed",
    "share of the ceiling",
    "MB sent a step",
    "predicted",
)


def table_of(cells: list[dict]) -> str:
    """A line for each method; compute's line has the ceiling."""
    lines = ["| " + " | ".join(_HEAD) + " |", "|---|---|" + "---:|" * (len(_HEAD) - 2)]
    for cell in cells:
        by_name = {row["method"]: row for row in cell["rows"]}
        lines.extend(_line(cell, row, by_name) for row in cell["rows"])
    return "\n".join(lines)


def _line(cell: dict, row: dict, by_name: dict[str, dict]) -> str:
    compute, plain = by_name[COMPUTE], by_name.get(PLAIN)
    predicted, measured = row["predicted_ms"], row["measured_ms"]
    label = "compute alone" if row is compute else f"`{row['method']}`"
    if row["spec"] != row["method"] and row["method"] == AUTO:
        label += f": `{row['spec']}`"
    cells = (
        f"{cell['network']}, {cell['link']}",
        label,
        f"{row['ms']:.0f} ({row['low_ms']:.0f}–{row['high_ms']:.0f})",
        "-" if plain is None else f"{plain['ms'] / row['ms']:.2f}",
        f"{compute['ms'] / row['ms']:.0%}",
        f"{row['bytes_sent'] / 1e6:.3f}",
        f"{predicted:.0f} ({predicted / measured - 1:+.0%})" if predicted and measured else "-",
    )
    return "| " + " | ".join(cells) + " |"
